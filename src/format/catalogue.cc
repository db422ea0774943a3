#include "src/format/catalogue.h"

#include <lz4.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include "src/format/segment.h"
#include "src/format/wire.h"

namespace parkade {
namespace {

// Bounds that a reader holds a writer to; FORMAT.md names them.
constexpr std::uint32_t kMostTokens = 1u << 28;
constexpr std::uint32_t kMostStages = std::numeric_limits<std::uint16_t>::max();
constexpr std::uint32_t kMostOrdinals = 1u << 20;
constexpr std::uint32_t kMostFields = 1024;
constexpr std::uint32_t kMostPlanes = 1u << 16;
constexpr std::uint64_t kMostRowBytes = kExtentBytes * std::numeric_limits<std::uint16_t>::max();
// Behind a segment's header and the extent's own.
constexpr std::uint64_t kLeastOffset = 128;
constexpr std::uint64_t kMostOffset = 1ull << 40;
// One byte of an LZ4 block stands for at most 255 bytes.
constexpr std::uint64_t kMostLz4Ratio = 255;

constexpr std::size_t kExtentRecordBytes = 52;
constexpr std::size_t kPlaneRecordBytes = 16;
constexpr std::uint8_t kPinnedFlag = 1;

static_assert(static_cast<int>(RowGroup::kState) == 2 &&
                  static_cast<int>(Codec::kZstdShuffled) == 3 &&
                  static_cast<int>(PlaneKind::kExtra) == 4,
              "stored values changed: raise kFormatVersion and the decoders' bounds");

void WriteStages(const StageMap& map, ByteWriter* writer) {
  writer->Count(map.stages.size());
  for (const Stage& stage : map.stages) {
    writer->Sized(stage.device);
    writer->Count(stage.layers.size());
    for (const std::uint16_t layer : stage.layers) writer->U16(layer);
  }
}

// False: malformed. A layer stands once in the whole map, ascending within its stage.
bool ReadStages(ByteReader* reader, StageMap* map) {
  const std::uint32_t stages = reader->Count(8);
  if (stages > kMostStages) return false;
  std::vector<bool> seen(std::numeric_limits<std::uint16_t>::max() + 1u);
  map->stages.resize(stages);
  for (Stage& stage : map->stages) {
    stage.device = reader->Sized();
    stage.layers.resize(reader->Count(2));
    for (std::size_t i = 0; i < stage.layers.size(); ++i) {
      const std::uint16_t layer = reader->U16();
      if (seen[layer] || (i > 0 && layer < stage.layers[i - 1])) return false;
      seen[layer] = true;
      stage.layers[i] = layer;
    }
  }
  return reader->ok();
}

// Pages that end in (first, end].
std::uint32_t PagesEnding(std::uint32_t first, std::uint32_t end) {
  return end / kPageTokens - first / kPageTokens;
}

// What is wrong with an extent on its own; empty: nothing.
std::string_view ExtentFault(const StoredExtent& extent) {
  const ExtentInfo& info = extent.info;
  if (static_cast<int>(info.group) > static_cast<int>(RowGroup::kState)) return "unknown group";
  if (static_cast<int>(extent.codec) > static_cast<int>(Codec::kZstdShuffled)) {
    return "unknown codec";
  }
  const std::uint32_t most_rows = info.group == RowGroup::kState ? 1 : kExtentRows;
  if (info.rows == 0 || info.rows > most_rows) return "rows out of bounds";
  if (info.first > std::numeric_limits<std::uint32_t>::max() - info.rows) {
    return "token positions out of bounds";
  }
  if (info.part >= info.parts || (info.parts > 1 && info.rows != 1)) return "parts out of bounds";
  if (info.raw_bytes == 0 || info.raw_bytes > kExtentBytes) return "raw size out of bounds";
  if (info.part + 1 < info.parts && info.raw_bytes != kExtentBytes) {
    return "a part before the last one is not full";
  }
  const bool raw = extent.codec == Codec::kRaw;
  if (extent.stored_bytes == 0 || extent.stored_bytes > info.raw_bytes ||
      raw != (extent.stored_bytes == info.raw_bytes)) {
    return "stored size does not fit the codec";
  }
  if (extent.offset < kLeastOffset || extent.offset > kMostOffset) return "offset out of bounds";
  if (extent.offset % kExtentAlignment != 0) return "offset is not aligned";
  if (extent.ordinal >= kMostOrdinals) return "ordinal out of bounds";
  return {};
}

void WriteExtent(const StoredExtent& extent, ByteWriter* writer) {
  writer->U8(static_cast<std::uint8_t>(extent.info.group));
  writer->U8(static_cast<std::uint8_t>(extent.codec));
  writer->U16(extent.info.stage);
  writer->U32(extent.info.first);
  writer->U32(extent.info.rows);
  writer->U16(extent.info.part);
  writer->U16(extent.info.parts);
  writer->U32(extent.info.raw_bytes);
  writer->U32(extent.stored_bytes);
  writer->U32(extent.ordinal);
  writer->U64(extent.offset);
  writer->Digest(extent.info.checksum);
}

StoredExtent ReadExtent(ByteReader* reader) {
  StoredExtent extent;
  extent.info.group = static_cast<RowGroup>(reader->U8());
  extent.codec = static_cast<Codec>(reader->U8());
  extent.info.stage = reader->U16();
  extent.info.first = reader->U32();
  extent.info.rows = reader->U32();
  extent.info.part = reader->U16();
  extent.info.parts = reader->U16();
  extent.info.raw_bytes = reader->U32();
  extent.stored_bytes = reader->U32();
  extent.ordinal = reader->U32();
  extent.offset = reader->U64();
  extent.info.checksum = reader->Digest();
  return extent;
}

// False: malformed.
bool ReadPlanes(ByteReader* reader, std::vector<Plane>* planes) {
  const std::uint32_t count = reader->Count(kPlaneRecordBytes);
  if (count > kMostPlanes) return false;
  planes->resize(count);
  const Plane* previous = nullptr;
  for (Plane& plane : *planes) {
    plane.group = static_cast<RowGroup>(reader->U8());
    plane.kind = static_cast<PlaneKind>(reader->U8());
    plane.layer = reader->U16();
    plane.element_type = reader->U32();
    plane.row_bytes = reader->U64();
    if (static_cast<int>(plane.group) > static_cast<int>(RowGroup::kState)) return false;
    if (static_cast<int>(plane.kind) > static_cast<int>(PlaneKind::kExtra)) return false;
    if (plane.row_bytes == 0 || plane.row_bytes > kMostRowBytes) return false;
    if (previous != nullptr && std::tuple(plane.group, plane.layer, plane.kind) <
                                   std::tuple(previous->group, previous->layer, previous->kind)) {
      return false;
    }
    previous = &plane;
  }
  return reader->ok();
}

}  // namespace

std::string EncodeManifest(const ParkSummary& summary) {
  ByteWriter writer = BeginRow(RowKind::kManifest);
  writer.Reserve(256 + 8 * summary.page_hashes.size());
  writer.Digest(summary.identity);
  writer.Digest(summary.parent);
  writer.U32(summary.parent_tokens);
  writer.U32(summary.first_token);
  writer.U32(summary.token_count);
  writer.U64(summary.generation);
  writer.I64(summary.created_unix_ms);
  writer.U64(summary.payload_bytes);
  writer.Count(summary.page_hashes.size());
  for (const std::uint64_t hash : summary.page_hashes) writer.U64(hash);
  writer.Count(summary.window_rows.size());
  for (const TokenRange& range : summary.window_rows) {
    writer.U32(range.begin);
    writer.U32(range.end);
  }
  writer.Count(summary.checkpoints.size());
  for (const std::uint32_t position : summary.checkpoints) writer.U32(position);
  WriteStages(summary.stages, &writer);
  return SealRow(std::move(writer));
}

absl::StatusOr<ParkSummary> DecodeManifest(const ParkKey& key, std::string_view value) {
  constexpr RowKind kKind = RowKind::kManifest;
  const absl::StatusOr<std::string_view> body = OpenRow(kKind, value);
  if (!body.ok()) return body.status();
  ByteReader reader(*body);
  ParkSummary summary;
  summary.key = key;
  summary.identity = reader.Digest();
  summary.parent = reader.Digest();
  summary.parent_tokens = reader.U32();
  summary.first_token = reader.U32();
  summary.token_count = reader.U32();
  summary.generation = reader.U64();
  summary.created_unix_ms = reader.I64();
  summary.payload_bytes = reader.U64();
  summary.page_hashes.resize(reader.Count(8));
  for (std::uint64_t& hash : summary.page_hashes) hash = reader.U64();
  summary.window_rows.resize(reader.Count(8));
  std::uint32_t previous_end = 0;
  for (TokenRange& range : summary.window_rows) {
    range.begin = reader.U32();
    range.end = reader.U32();
    if (range.empty() || range.begin < previous_end) {
      return RowDamaged(kKind, "window rows are not ascending");
    }
    previous_end = range.end;
  }
  summary.checkpoints.resize(reader.Count(4));
  for (std::size_t i = 0; i < summary.checkpoints.size(); ++i) {
    summary.checkpoints[i] = reader.U32();
    if (i > 0 && summary.checkpoints[i] <= summary.checkpoints[i - 1]) {
      return RowDamaged(kKind, "checkpoints are not ascending");
    }
  }
  if (!ReadStages(&reader, &summary.stages)) return RowDamaged(kKind, "malformed stage map");
  if (!reader.AtEnd()) return RowDamaged(kKind, "bytes left over");
  if (summary.token_count > std::numeric_limits<std::uint32_t>::max() - summary.first_token) {
    return RowDamaged(kKind, "token positions out of bounds");
  }
  if (summary.page_hashes.size() != PagesEnding(summary.first_token, summary.end_token())) {
    return RowDamaged(kKind, "page hashes do not fit the tokens");
  }
  return summary;
}

std::string EncodeTokens(absl::Span<const Token> tokens) {
  ByteWriter writer = BeginRow(RowKind::kTokens);
  writer.Count(tokens.size());
  if (!tokens.empty()) {
    const int raw_bytes = static_cast<int>(tokens.size() * sizeof(Token));
    std::string block(LZ4_compressBound(raw_bytes), '\0');
    const int size = LZ4_compress_default(reinterpret_cast<const char*>(tokens.data()),
                                          block.data(), raw_bytes, static_cast<int>(block.size()));
    writer.Raw(std::string_view(block).substr(0, size));
  }
  return SealRow(std::move(writer));
}

absl::StatusOr<std::vector<Token>> DecodeTokens(std::string_view value) {
  constexpr RowKind kKind = RowKind::kTokens;
  const absl::StatusOr<std::string_view> body = OpenRow(kKind, value);
  if (!body.ok()) return body.status();
  ByteReader reader(*body);
  const std::uint32_t count = reader.U32();
  if (!reader.ok()) return RowDamaged(kKind, "too short");
  const std::string_view block = reader.Raw(reader.remaining());
  const std::uint64_t raw_bytes = std::uint64_t{count} * sizeof(Token);
  if (count > kMostTokens || raw_bytes > kMostLz4Ratio * block.size()) {
    return RowDamaged(kKind, "more tokens than its bytes can hold");
  }
  std::vector<Token> tokens(count);
  if (count == 0) {
    if (!block.empty()) return RowDamaged(kKind, "bytes left over");
    return tokens;
  }
  const absl::Status unpacked = Decompress(
      Codec::kLz4, block, absl::MakeSpan(reinterpret_cast<char*>(tokens.data()), raw_bytes));
  if (!unpacked.ok()) return RowDamaged(kKind, "LZ4 block does not hold the tokens");
  return tokens;
}

std::string EncodeImage(std::uint64_t segment, absl::Span<const StoredExtent> extents) {
  ByteWriter writer = BeginRow(RowKind::kImage);
  writer.Reserve(32 + kExtentRecordBytes * extents.size());
  writer.U64(segment);
  writer.Count(extents.size());
  for (const StoredExtent& extent : extents) WriteExtent(extent, &writer);
  return SealRow(std::move(writer));
}

absl::StatusOr<ImageRow> DecodeImage(std::string_view value) {
  constexpr RowKind kKind = RowKind::kImage;
  const absl::StatusOr<std::string_view> body = OpenRow(kKind, value);
  if (!body.ok()) return body.status();
  ByteReader reader(*body);
  ImageRow row;
  row.segment = reader.U64();
  row.extents.resize(reader.Count(kExtentRecordBytes));
  for (std::size_t i = 0; i < row.extents.size(); ++i) {
    StoredExtent& extent = row.extents[i];
    extent = ReadExtent(&reader);
    const std::string_view fault = ExtentFault(extent);
    if (!fault.empty()) return RowDamaged(kKind, fault);
    if (i == 0) continue;
    const StoredExtent& before = row.extents[i - 1];
    if (extent.info.stage != before.info.stage) return RowDamaged(kKind, "more than one stage");
    if (extent.ordinal <= before.ordinal) return RowDamaged(kKind, "ordinals do not ascend");
  }
  if (!reader.AtEnd()) return RowDamaged(kKind, "extents and size disagree");
  return row;
}

std::string EncodeIdentity(const StoredIdentity& identity) {
  ByteWriter writer = BeginRow(RowKind::kIdentity);
  writer.Count(identity.identity.fields().size());
  for (const IdentityField& field : identity.identity.fields()) {
    writer.Sized(field.name);
    writer.Sized(field.value);
  }
  writer.U32(identity.layout.window_tokens);
  writer.Count(identity.layout.planes.size());
  for (const Plane& plane : identity.layout.planes) {
    writer.U8(static_cast<std::uint8_t>(plane.group));
    writer.U8(static_cast<std::uint8_t>(plane.kind));
    writer.U16(plane.layer);
    writer.U32(plane.element_type);
    writer.U64(plane.row_bytes);
  }
  return SealRow(std::move(writer));
}

absl::StatusOr<StoredIdentity> DecodeIdentity(std::string_view value) {
  constexpr RowKind kKind = RowKind::kIdentity;
  const absl::StatusOr<std::string_view> body = OpenRow(kKind, value);
  if (!body.ok()) return body.status();
  ByteReader reader(*body);
  StoredIdentity identity;
  const std::uint32_t fields = reader.Count(8);
  if (fields > kMostFields) return RowDamaged(kKind, "too many fields");
  for (std::uint32_t i = 0; i < fields; ++i) {
    const std::string_view name = reader.Sized();
    const std::string_view field_value = reader.Sized();
    identity.identity.Set(name, field_value);
  }
  identity.layout.window_tokens = reader.U32();
  if (!ReadPlanes(&reader, &identity.layout.planes)) return RowDamaged(kKind, "malformed planes");
  if (!reader.AtEnd()) return RowDamaged(kKind, "bytes left over");
  // Set replaces a name that it has, so a repeated name shows in the number of fields.
  if (identity.identity.fields().size() != fields) return RowDamaged(kKind, "repeated field name");
  return identity;
}

std::string EncodeAttributes(const ConversationAttributes& attributes) {
  ByteWriter writer = BeginRow(RowKind::kAttributes);
  writer.I64(attributes.last_used_unix_ms);
  writer.U64(attributes.hits);
  writer.U8(attributes.pinned ? kPinnedFlag : 0);
  writer.U32(attributes.name_tokens);
  writer.Sized(attributes.name);
  return SealRow(std::move(writer));
}

absl::StatusOr<ConversationAttributes> DecodeAttributes(const ConversationId& id,
                                                        std::string_view value) {
  constexpr RowKind kKind = RowKind::kAttributes;
  const absl::StatusOr<std::string_view> body = OpenRow(kKind, value);
  if (!body.ok()) return body.status();
  ByteReader reader(*body);
  ConversationAttributes attributes;
  attributes.conversation = id;
  attributes.last_used_unix_ms = reader.I64();
  attributes.hits = reader.U64();
  const std::uint8_t flags = reader.U8();
  attributes.pinned = (flags & kPinnedFlag) != 0;
  attributes.name_tokens = reader.U32();
  attributes.name = reader.Sized();
  if (!reader.AtEnd()) return RowDamaged(kKind, "extents past its end or bytes left over");
  if ((flags & ~kPinnedFlag) != 0) return RowDamaged(kKind, "unknown flag");
  return attributes;
}

}  // namespace parkade
