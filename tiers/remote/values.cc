#include "tiers/remote/values.h"

#include <algorithm>
#include <utility>

#include "src/format/park_rows.h"
#include "src/format/segment.h"
#include "src/format/wire.h"

namespace parkade::remote {
namespace {

using Family = CatalogueRow::Family;

constexpr std::uint8_t kVersion = 1;
constexpr std::string_view kBoundaryMagic = "PKB";
constexpr std::string_view kChainRow = "chain";
constexpr std::string_view kHeadersRow = "headers";
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kStepBytes = 22;
constexpr std::size_t kLabelBytes = 16;
// Of every extent: they stand under keys of their own, and zero can't be one.
constexpr std::uint64_t kOffset = 4096;

absl::Status Damaged(absl::string_view what) { return absl::DataLossError(what); }

void WriteChain(const Chain& chain, ByteWriter* writer) {
  std::vector<ConversationId> labels;
  for (const ChainStep& step : chain.steps) {
    if (labels.empty() || !(labels.back() == step.label)) labels.push_back(step.label);
  }
  writer->U8(chain.whole ? 1 : 0);
  writer->Count(labels.size());
  for (const ConversationId& label : labels) writer->Digest(label);
  writer->Count(chain.steps.size());
  std::size_t label = 0;
  for (const ChainStep& step : chain.steps) {
    if (!(labels[label] == step.label)) ++label;
    writer->Digest(step.row);
    writer->U16(static_cast<std::uint16_t>(label));
    writer->U32(step.end);
  }
}

absl::StatusOr<Chain> ReadChain(ByteReader* reader) {
  Chain chain;
  const std::uint8_t whole = reader->U8();
  chain.whole = whole == 1;
  std::vector<ConversationId> labels(reader->Count(kLabelBytes));
  for (ConversationId& label : labels) label = reader->Digest();
  chain.steps.resize(reader->Count(kStepBytes));
  std::uint32_t end = 0;
  for (ChainStep& step : chain.steps) {
    step.row = reader->Digest();
    const std::uint16_t label = reader->U16();
    step.end = reader->U32();
    if (label >= labels.size() || step.row.IsZero()) return Damaged("a chain names nothing");
    step.label = labels[label];
    if (step.end < end) return Damaged("a chain goes back");
    end = step.end;
  }
  if (!reader->ok() || whole > 1 || chain.steps.size() > kMostSteps) return Damaged("no chain");
  return chain;
}

std::vector<CatalogueRow> RowsOf(const Digest128& row, const RowValue& value,
                                 const ParkRecord& record) {
  std::vector<StoredExtent> extents = value.extents;
  for (StoredExtent& extent : extents) extent.offset = kOffset;
  std::vector<CatalogueRow> rows = ParkRows(record, row.low, extents);
  ByteWriter chain;
  chain.Digest(row);
  WriteChain(value.before, &chain);
  rows.push_back({Family::kMeta, std::string(kChainRow), chain.Take()});
  if (value.sealer == nullptr) return rows;
  std::string headers;
  for (const std::string& header : value.headers) headers += header;
  // Rows have values of at least one byte.
  if (!headers.empty()) rows.push_back({Family::kMeta, std::string(kHeadersRow), headers});
  return rows;
}

absl::Status ReadMeta(const Digest128& row, std::vector<CatalogueRow> rows, RowValue* value) {
  const bool sealed = value->sealer != nullptr && !value->extents.empty();
  if (rows.size() != (sealed ? 2u : 1u) || rows[0].family != Family::kMeta ||
      rows[0].key != kChainRow) {
    return Damaged("a row without its chain");
  }
  ByteReader reader(rows[0].value);
  if (!(reader.Digest() == row)) return Damaged("the value of another row");
  absl::StatusOr<Chain> chain = ReadChain(&reader);
  if (!chain.ok()) return chain.status();
  if (!reader.AtEnd()) return Damaged("bytes after a chain");
  value->before = *std::move(chain);
  if (!sealed) return absl::OkStatus();
  if (rows[1].family != Family::kMeta || rows[1].key != kHeadersRow ||
      rows[1].value.size() != value->extents.size() * kExtentHeaderBytes) {
    return Damaged("a sealed row without its extents' headers");
  }
  for (std::size_t i = 0; i < value->extents.size(); ++i) {
    value->headers.push_back(rows[1].value.substr(i * kExtentHeaderBytes, kExtentHeaderBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckExtents(const RowValue& value) {
  std::uint64_t bytes = 0;
  for (const StoredExtent& extent : value.extents) {
    if (extent.info.raw_bytes > kExtentBytes || extent.stored_bytes > kExtentBytes) {
      return Damaged("an extent is too large");
    }
    bytes += extent.info.raw_bytes;
  }
  if (bytes != value.record.summary.payload_bytes) return Damaged("a park lacks extents");
  if (bytes > kParkBytes) return Damaged("a park is too large");
  return absl::OkStatus();
}

// All of a row's fields from its rows; `value` has the sealer already.
absl::Status ReadRows(const Digest128& row, const std::vector<CatalogueRow>& rows,
                      RowValue* value) {
  if (rows.size() < 2 || rows[0].family != Family::kManifest || rows[1].family != Family::kTokens ||
      rows[0].key != rows[1].key) {
    return Damaged("a row without manifest and tokens");
  }
  const absl::StatusOr<ParkKey> park = ParseManifestKey(rows[0].key);
  if (!park.ok()) return park.status();
  absl::StatusOr<ParkSummary> summary = DecodeManifest(*park, rows[0].value);
  if (!summary.ok()) return summary.status();
  value->record.summary = *std::move(summary);
  absl::StatusOr<std::vector<Token>> tokens = DecodeTokens(rows[1].value);
  if (!tokens.ok()) return tokens.status();
  value->record.tokens = *std::move(tokens);
  if (value->record.tokens.size() != value->record.summary.token_count) {
    return Damaged("wrong number of tokens");
  }
  const std::size_t stages = value->record.summary.stages.stages.size();
  if (rows.size() < 2 + stages) return Damaged("image rows and stages disagree");
  absl::StatusOr<std::vector<StoredExtent>> extents =
      JoinImages(row.low, *park, absl::MakeConstSpan(rows).subspan(2, stages));
  if (!extents.ok()) return extents.status();
  value->extents = *std::move(extents);
  for (const StoredExtent& extent : value->extents) value->record.extents.push_back(extent.info);
  if (absl::Status s = CheckExtents(*value); !s.ok()) return s;
  const auto first_meta = rows.begin() + static_cast<std::ptrdiff_t>(2 + stages);
  return ReadMeta(row, {first_meta, rows.end()}, value);
}

}  // namespace

Chain Shortened(Chain chain) {
  if (chain.steps.size() <= kMostSteps) return chain;
  chain.whole = false;
  chain.steps.erase(chain.steps.begin(),
                    chain.steps.end() - static_cast<std::ptrdiff_t>(kMostSteps));
  return chain;
}

std::string EncodeBoundary(const Chain& chain) {
  ByteWriter writer;
  writer.Raw(kBoundaryMagic);
  writer.U8(kVersion);
  WriteChain(chain, &writer);
  writer.U64(Checksum64(writer.bytes()));
  return writer.Take();
}

absl::StatusOr<Chain> DecodeBoundary(std::string_view value) {
  if (value.size() < kBoundaryMagic.size() + 1 + kChecksumBytes ||
      value.substr(0, kBoundaryMagic.size()) != kBoundaryMagic) {
    return Damaged("no boundary");
  }
  const std::string_view covered = value.substr(0, value.size() - kChecksumBytes);
  if (ByteReader(value.substr(covered.size())).U64() != Checksum64(covered)) {
    return Damaged("the checksum of a boundary differs");
  }
  ByteReader reader(covered.substr(kBoundaryMagic.size()));
  const std::uint8_t version = reader.U8();
  if (version > kVersion) return absl::FailedPreconditionError("a boundary of a newer program");
  if (version != kVersion) return Damaged("a boundary of version 0");
  absl::StatusOr<Chain> chain = ReadChain(&reader);
  if (!chain.ok()) return chain.status();
  if (!reader.AtEnd() || chain->steps.empty()) return Damaged("no boundary");
  return chain;
}

absl::StatusOr<std::string> EncodeRow(const Digest128& row, const RowValue& value) {
  ParkRecord record = value.record;
  std::fill(record.summary.page_hashes.begin(), record.summary.page_hashes.end(), 0);
  for (const StoredExtent& extent : value.extents) {
    if (extent.info.stage >= record.summary.stages.stages.size()) {
      return absl::InvalidArgumentError("an extent has no stage");
    }
  }
  const std::vector<CatalogueRow> rows = RowsOf(row, value, record);
  RowValue read;
  read.sealer = value.sealer;
  // A decoder accepts less than an encoder takes.
  const absl::Status readable = ReadRows(row, rows, &read);
  if (!readable.ok()) return absl::InvalidArgumentError(readable.message());
  return EncodeSegmentHead(row.low, rows, 0, value.sealer.get());
}

absl::StatusOr<RowValue> DecodeRow(const Digest128& row, std::string_view bytes,
                                   const SealKey* key) {
  std::uint64_t needed = 0;
  absl::StatusOr<SegmentHead> head = DecodeSegmentHead(bytes, &needed, key);
  if (absl::IsOutOfRange(head.status())) return Damaged("a row is cut off");
  if (!head.ok()) return head.status();
  if (head->segment != row.low || head->payload_bytes != 0 || head->head_bytes != bytes.size()) {
    return Damaged("no row");
  }
  RowValue value;
  value.sealer = head->sealer;
  if (absl::Status s = ReadRows(row, head->rows, &value); !s.ok()) return s;
  return value;
}

}  // namespace parkade::remote
