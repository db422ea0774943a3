#include "tiers/disk/rows.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/format/park_rows.h"
#include "src/format/wire.h"

namespace parkade::disk {
namespace {

void PutLittle64(std::uint64_t value, char* out) {
  for (int i = 0; i < 8; ++i) out[i] = static_cast<char>(value >> (8 * i));
}

std::uint64_t GetLittle64(const char* in) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(in[i]);
  return value;
}

std::uint64_t RefSum(const char* numbers, std::string_view inner) {
  std::string covered(numbers, 16);
  covered.append(inner);
  return Checksum64(covered);
}

std::uint64_t AlignUp(std::uint64_t value) {
  return (value + kExtentAlignment - 1) / kExtentAlignment * kExtentAlignment;
}

// A decoder accepts less than an encoder takes: what could not be read back is refused now.
absl::Status CheckReadable(const ParkKey& key, const std::string& manifest,
                           const ParkSegment& park) {
  absl::Status status = DecodeManifest(key, manifest).status();
  for (const CatalogueRow& row : park.rows) {
    if (row.family == Family::kImage) status.Update(DecodeImage(row.value).status());
  }
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("this park can't be stored: ", status.message()));
}

void AddImageRows(const ParkRecord& record, ParkSegment* park) {
  const std::size_t stages = record.summary.stages.stages.size();
  std::vector<std::vector<StoredExtent>> by_stage(stages);
  for (const StoredExtent& extent : park->extents) by_stage[extent.info.stage].push_back(extent);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    park->rows.push_back({Family::kImage,
                          ImageKey(record.summary.key, static_cast<std::uint16_t>(stage)),
                          EncodeImage(park->ref.segment, by_stage[stage])});
  }
}

iovec Piece(const void* data, std::size_t size) { return {const_cast<void*>(data), size}; }

void AddPieces(absl::Span<const ExtentBytes> payload, ParkSegment* park) {
  static constexpr char kZeros[kExtentAlignment] = {};
  park->pieces.push_back(Piece(park->head.data(), park->head.size()));
  std::uint64_t position = park->head.size();
  for (std::size_t i = 0; i < park->extents.size(); ++i) {
    const StoredExtent& extent = park->extents[i];
    const std::uint64_t pad = extent.offset - kExtentHeaderBytes - position;
    if (pad > 0) park->pieces.push_back(Piece(kZeros, pad));
    park->pieces.push_back(Piece(park->headers[i].data(), park->headers[i].size()));
    if (extent.stored_bytes > 0) {
      park->pieces.push_back(Piece(park->StoredBytes(i, payload), extent.stored_bytes));
    }
    position = extent.offset + extent.stored_bytes;
  }
}

}  // namespace

std::string WrapRef(const SegmentRef& ref, std::string_view inner) {
  std::string value(kRefBytes, '\0');
  PutLittle64(ref.segment, value.data());
  PutLittle64(ref.size_bytes, value.data() + 8);
  PutLittle64(RefSum(value.data(), inner), value.data() + 16);
  value.append(inner);
  return value;
}

absl::StatusOr<RefRow> UnwrapRef(std::string_view value) {
  if (value.size() < kRefBytes) return absl::DataLossError("a row is shorter than its header");
  RefRow row;
  row.ref = {GetLittle64(value.data()), GetLittle64(value.data() + 8)};
  row.inner = value.substr(kRefBytes);
  if (GetLittle64(value.data() + 16) != RefSum(value.data(), row.inner)) {
    return absl::DataLossError("a row's checksum is wrong");
  }
  return row;
}

std::string EncodeNumber(std::uint64_t number) {
  std::string value(8, '\0');
  PutLittle64(number, value.data());
  return value;
}

absl::StatusOr<std::uint64_t> DecodeNumber(std::string_view value) {
  if (value.size() != 8) return absl::DataLossError("a number's row is not 8 bytes");
  return GetLittle64(value.data());
}

std::string EncodeSecret(const Digest128& secret) { return DigestKey(secret); }

absl::StatusOr<Digest128> DecodeSecret(std::string_view inner) { return ParseDigestKey(inner); }

std::string DigestKey(const Digest128& digest) { return ConversationKey(digest); }

absl::StatusOr<Digest128> ParseDigestKey(std::string_view key) { return ParseConversationKey(key); }

std::string EncodeTombstone(absl::Span<const std::uint64_t> segments) {
  std::string inner;
  for (const std::uint64_t segment : segments) inner += EncodeNumber(segment);
  return inner;
}

absl::StatusOr<std::vector<std::uint64_t>> DecodeTombstone(std::string_view inner) {
  if (inner.size() % 8 != 0) return absl::DataLossError("a tombstone's size is wrong");
  std::vector<std::uint64_t> segments;
  for (std::size_t i = 0; i < inner.size(); i += 8) {
    segments.push_back(GetLittle64(inner.data() + i));
  }
  return segments;
}

absl::StatusOr<ParkSegment> BuildParkSegment(std::uint64_t segment, const ParkRecord& record,
                                             absl::Span<const ExtentBytes> payload,
                                             CodecChoice codec,
                                             absl::Span<const CatalogueRow> copied_rows,
                                             SharedSealer sealer) {
  if (absl::Status s = CheckedPayloadBytes(record, payload).status(); !s.ok()) return s;
  ParkSegment park;
  park.ref.segment = segment;
  park.key = record.summary.key;
  park.sealer = std::move(sealer);
  park.compressed.resize(payload.size());
  for (std::size_t i = 0; i < payload.size(); ++i) {
    StoredExtent stored;
    stored.info = record.extents[i];
    stored.ordinal = static_cast<std::uint32_t>(i);
    stored.codec = Compress(codec, absl::MakeConstSpan(payload[i]->data(), stored.info.raw_bytes),
                            &park.compressed[i]);
    stored.stored_bytes = stored.codec == Codec::kRaw
                              ? stored.info.raw_bytes
                              : static_cast<std::uint32_t>(park.compressed[i].size());
    park.extents.push_back(stored);
  }
  const ParkKey& key = record.summary.key;
  const std::string manifest = EncodeManifest(record.summary);
  const CatalogueRow tokens = {Family::kTokens, ManifestKey(key), EncodeTokens(record.tokens)};

  // The head holds the offsets and the offsets depend on the head's size: rows have the same size
  // whatever their numbers are, so a round without numbers tells it.
  std::vector<CatalogueRow> all;
  for (const bool final_round : {false, true}) {
    const std::uint64_t head_bytes =
        final_round ? SegmentHeadBytes(all, park.sealer != nullptr) : 0;
    std::uint64_t position = head_bytes;
    for (StoredExtent& extent : park.extents) {
      extent.offset = AlignUp(position) + kExtentHeaderBytes;
      position = extent.offset + extent.stored_bytes;
    }
    park.ref.size_bytes = position;
    park.rows = {{Family::kManifest, ManifestKey(key), WrapRef(park.ref, manifest)}, tokens};
    AddImageRows(record, &park);
    all = park.rows;
    all.insert(all.end(), copied_rows.begin(), copied_rows.end());
    if (final_round) {
      park.head = EncodeSegmentHead(segment, all, position - head_bytes, park.sealer.get());
    }
  }
  if (absl::Status s = CheckReadable(key, manifest, park); !s.ok()) return s;
  if (park.sealer != nullptr) {
    park.pieces.push_back(Piece(park.head.data(), park.head.size()));
    return park;
  }
  for (const StoredExtent& extent : park.extents) {
    park.headers.push_back(EncodeExtentHeader(key, extent));
  }
  AddPieces(payload, &park);
  return park;
}

RowsSegment BuildRowsSegment(std::uint64_t segment, absl::Span<const CatalogueRow> inner_rows,
                             const SharedSealer& sealer) {
  RowsSegment built;
  built.ref.segment = segment;
  // Twice, because a reference has a size and the size is known when the rows are.
  for (int round = 0; round < 2; ++round) {
    built.rows.clear();
    for (const CatalogueRow& row : inner_rows) {
      built.rows.push_back({row.family, row.key, WrapRef(built.ref, row.value)});
    }
    built.ref.size_bytes = SegmentHeadBytes(built.rows, sealer != nullptr);
  }
  built.head = EncodeSegmentHead(segment, built.rows, 0, sealer.get());
  return built;
}

absl::StatusOr<std::vector<StoredExtent>> JoinImageRows(std::uint64_t segment,
                                                        absl::Span<const std::string> values) {
  std::vector<StoredExtent> extents;
  for (const std::string& value : values) {
    absl::StatusOr<ImageRow> row = DecodeImage(value);
    if (!row.ok()) return row.status();
    if (row->segment != segment) return absl::DataLossError("an image row names another segment");
    extents.insert(extents.end(), row->extents.begin(), row->extents.end());
  }
  std::vector<StoredExtent> by_ordinal(extents.size());
  std::vector<bool> seen(extents.size(), false);
  for (const StoredExtent& extent : extents) {
    if (extent.ordinal >= extents.size() || seen[extent.ordinal]) {
      return absl::DataLossError("the image rows of a park do not fit together");
    }
    seen[extent.ordinal] = true;
    by_ordinal[extent.ordinal] = extent;
  }
  return by_ordinal;
}

absl::Status StatusInDirectory(absl::Status status, std::string_view bytes) {
  // Whose version is known can only have another key.
  if (!absl::IsFailedPrecondition(status) || !DecodeSegmentKeyId(bytes).ok()) return status;
  return absl::DataLossError(status.message());
}

}  // namespace parkade::disk
