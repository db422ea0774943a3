#include "src/format/segment.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/format/checksum.h"
#include "src/format/wire.h"

namespace parkade {
namespace {

constexpr std::string_view kSegmentMagic = "PARKSEG1";
constexpr std::string_view kExtentMagic = "PKEX";
constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kChecksumBytes = 8;
// Family, key length, value length.
constexpr std::size_t kRowFrameBytes = 9;
constexpr std::uint64_t kMostPayloadBytes = 1ull << 40;
constexpr std::size_t kSealBlockBytes = 64;
static_assert(kSegmentSealBytes == kHeaderBytes + kSealBlockBytes);
// What the tag of the rows holds for besides them: the header up to the size of the rows frame.
constexpr std::size_t kHeaderBoundBytes = 40;
// Of an extent's header: everything before its tag.
constexpr std::size_t kExtentBoundBytes = 40;
constexpr std::string_view kSegmentPurpose = "parkade segment 1";
constexpr SealNonce kRowsNonce = {0, 0};
SealNonce ExtentNonce(const StoredExtent& extent) { return {1, extent.ordinal}; }

static_assert(kHeaderBytes % kExtentAlignment == 0 && kExtentHeaderBytes % kExtentAlignment == 0,
              "what stands before stored bytes must keep their alignment");
static_assert(static_cast<int>(CatalogueRow::Family::kMeta) == 7,
              "stored values changed: raise kFormatVersion and the decoder's bound");

absl::Status SegmentDamaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("segment head: ", what));
}

absl::Status ExtentDamaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("extent header: ", what));
}

bool HasItsChecksum(std::string_view bytes) {
  const std::string_view covered = bytes.substr(0, bytes.size() - kChecksumBytes);
  return ByteReader(bytes.substr(covered.size())).U64() == Checksum64(covered);
}

struct Header {
  std::uint32_t version = 0;
  std::uint32_t rows = 0;
  std::uint64_t segment = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t rows_bytes = 0;
  std::uint64_t rows_checksum = 0;
};

// Magic and checksum first: they stand at the same places in every version.
absl::StatusOr<Header> DecodeHeader(std::string_view bytes) {
  if (!HasItsChecksum(bytes)) return SegmentDamaged("checksum of the header differs");
  ByteReader reader(bytes.substr(kSegmentMagic.size()));
  Header header;
  header.version = reader.U32();
  if (header.version == 0) return SegmentDamaged("version 0");
  if (header.version > kSealedVersion) {
    return absl::FailedPreconditionError(absl::StrCat("segment head: version ", header.version,
                                                      ", this program knows ", kSealedVersion));
  }
  header.rows = reader.U32();
  header.segment = reader.U64();
  header.payload_bytes = reader.U64();
  header.rows_bytes = reader.U64();
  header.rows_checksum = reader.U64();
  if (reader.U64() != 0) return SegmentDamaged("reserved bytes are set");
  if (header.payload_bytes > kMostPayloadBytes) return SegmentDamaged("payload out of bounds");
  if (header.rows_bytes > kMostHeadBytes - kHeaderBytes ||
      header.rows_bytes % kExtentAlignment != 0 ||
      header.rows > header.rows_bytes / (kRowFrameBytes + 1)) {
    return SegmentDamaged("size of the rows out of bounds");
  }
  return header;
}

struct SealBlock {
  Digest128 key_id;
  Digest128 salt;
  SealTag rows_tag;
};

std::string EncodeSealBlock(const SealBlock& block) {
  ByteWriter writer;
  writer.Digest(block.key_id);
  writer.Digest(block.salt);
  writer.Digest(block.rows_tag);
  writer.U64(0);
  writer.U64(Checksum64(writer.bytes()));
  return writer.Take();
}

absl::StatusOr<SealBlock> DecodeSealBlock(std::string_view bytes) {
  if (!HasItsChecksum(bytes)) return SegmentDamaged("checksum of the seal block differs");
  ByteReader reader(bytes);
  SealBlock block;
  block.key_id = reader.Digest();
  block.salt = reader.Digest();
  block.rows_tag = reader.Digest();
  if (reader.U64() != 0) return SegmentDamaged("reserved bytes are set");
  return block;
}

// What has to be known before the rows: the header and, of a sealed one, the block behind it.
struct Front {
  Header header;
  std::uint64_t rows_at = kHeaderBytes;
  SealTag rows_tag;
  SharedSealer sealer;
};

absl::StatusOr<Header> DecodeFirst(std::string_view bytes) {
  const std::size_t seen = std::min(bytes.size(), kSegmentMagic.size());
  if (bytes.substr(0, seen) != kSegmentMagic.substr(0, seen)) return SegmentDamaged("no magic");
  if (bytes.size() < kHeaderBytes) return absl::OutOfRangeError("segment head: 64 bytes needed");
  return DecodeHeader(bytes.substr(0, kHeaderBytes));
}

absl::StatusOr<Front> DecodeFront(std::string_view bytes, const SealKey* key,
                                  std::uint64_t* needed) {
  *needed = kHeaderBytes;
  const absl::StatusOr<Header> header = DecodeFirst(bytes);
  if (!header.ok()) return header.status();
  Front front;
  front.header = *header;
  if (header->version != kSealedVersion) {
    if (key == nullptr) return front;
    return absl::FailedPreconditionError("segment head: not encrypted, and a key is given");
  }
  *needed = kSegmentSealBytes;
  if (bytes.size() < kSegmentSealBytes) {
    return absl::OutOfRangeError("segment head: 128 bytes needed");
  }
  const absl::StatusOr<SealBlock> block =
      DecodeSealBlock(bytes.substr(kHeaderBytes, kSealBlockBytes));
  if (!block.ok()) return block.status();
  if (key == nullptr || !(key->id() == block->key_id)) {
    return absl::FailedPreconditionError(
        absl::StrCat("segment head: encrypted with the key ", ToHex(block->key_id),
                     key == nullptr ? ", and none is given"
                                    : absl::StrCat(", the one given is ", ToHex(key->id()))));
  }
  front.rows_at = kSegmentSealBytes;
  front.rows_tag = block->rows_tag;
  front.sealer = std::make_shared<const Sealer>(*key, block->salt, kSegmentPurpose);
  return front;
}

absl::StatusOr<std::vector<CatalogueRow>> DecodeRows(std::string_view frame, std::uint32_t count) {
  ByteReader reader(frame);
  std::vector<CatalogueRow> rows;
  rows.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint8_t family = reader.U8();
    const std::uint32_t key_bytes = reader.U32();
    const std::uint32_t value_bytes = reader.U32();
    const std::string_view key = reader.Raw(key_bytes);
    const std::string_view value = reader.Raw(value_bytes);
    if (!reader.ok()) return SegmentDamaged("a row ends after the rows frame");
    // Else padding could be read as rows.
    if (key.empty()) return SegmentDamaged("empty key");
    if (family > static_cast<std::uint8_t>(CatalogueRow::Family::kMeta)) {
      return SegmentDamaged("unknown family");
    }
    rows.push_back(
        {static_cast<CatalogueRow::Family>(family), std::string(key), std::string(value)});
  }
  const std::string_view padding = reader.Raw(reader.remaining());
  if (padding.size() >= kExtentAlignment ||
      padding.find_first_not_of('\0') != std::string_view::npos) {
    return SegmentDamaged("bytes after the last row");
  }
  return rows;
}

// `check`: the checksum of the raw bytes or, sealed, the tag of the stored ones.
std::string ExtentHeader(const ParkKey& key, const StoredExtent& extent, const Digest128& check) {
  ByteWriter writer;
  writer.Reserve(kExtentHeaderBytes);
  writer.Raw(kExtentMagic);
  writer.Digest(key.conversation);
  writer.U32(key.park);
  writer.U32(extent.ordinal);
  writer.U32(extent.stored_bytes);
  writer.U32(extent.info.raw_bytes);
  writer.U8(static_cast<std::uint8_t>(extent.codec));
  writer.U8(static_cast<std::uint8_t>(extent.info.group));
  writer.U16(extent.info.stage);
  writer.Digest(check);
  writer.U64(Checksum64(writer.bytes()));
  return writer.Take();
}

}  // namespace

SharedSealer NewSegmentSealer(const SharedSealKey& key) {
  if (key == nullptr) return nullptr;
  return std::make_shared<const Sealer>(*key, RandomDigest(), kSegmentPurpose);
}

std::uint64_t SegmentHeadBytes(absl::Span<const CatalogueRow> rows, bool sealed) {
  std::uint64_t bytes = sealed ? kSegmentSealBytes : kHeaderBytes;
  for (const CatalogueRow& row : rows) bytes += kRowFrameBytes + row.key.size() + row.value.size();
  return (bytes + kExtentAlignment - 1) / kExtentAlignment * kExtentAlignment;
}

std::string EncodeSegmentHead(std::uint64_t segment, absl::Span<const CatalogueRow> rows,
                              std::uint64_t payload_bytes, const Sealer* sealer) {
  ByteWriter writer;
  for (const CatalogueRow& row : rows) {
    writer.U8(static_cast<std::uint8_t>(row.family));
    writer.Count(row.key.size());
    writer.Count(row.value.size());
    writer.Raw(row.key);
    writer.Raw(row.value);
  }
  writer.PadTo(kExtentAlignment);
  std::string frame = writer.Take();

  ByteWriter head;
  head.Reserve(kSegmentSealBytes + frame.size());
  head.Raw(kSegmentMagic);
  head.U32(sealer == nullptr ? kFormatVersion : kSealedVersion);
  head.Count(rows.size());
  head.U64(segment);
  head.U64(payload_bytes);
  head.U64(frame.size());
  std::string block;
  if (sealer != nullptr) {
    const SealTag tag =
        sealer->Seal(kRowsNonce, head.bytes(), {frame.data(), frame.size()}, frame.data());
    block = EncodeSealBlock({sealer->key_id(), sealer->salt(), tag});
  }
  head.U64(Checksum64(frame));
  head.U64(0);
  head.U64(Checksum64(head.bytes()));
  head.Raw(block);
  head.Raw(frame);
  return head.Take();
}

absl::StatusOr<SegmentHead> DecodeSegmentHead(std::string_view bytes, std::uint64_t* needed,
                                              const SealKey* key) {
  const absl::StatusOr<Front> front = DecodeFront(bytes, key, needed);
  if (!front.ok()) return front.status();
  const Header& header = front->header;
  *needed = front->rows_at + header.rows_bytes;
  if (bytes.size() < *needed) {
    return absl::OutOfRangeError(absl::StrCat("segment head: ", *needed, " bytes needed"));
  }
  std::string_view frame = bytes.substr(front->rows_at, header.rows_bytes);
  if (Checksum64(frame) != header.rows_checksum) {
    return SegmentDamaged("checksum of the rows differs");
  }
  std::string opened;
  if (front->sealer != nullptr) {
    opened.resize(frame.size());
    const absl::Status status =
        front->sealer->Open(kRowsNonce, bytes.substr(0, kHeaderBoundBytes),
                            {frame.data(), frame.size()}, front->rows_tag, opened.data());
    if (!status.ok()) return SegmentDamaged("its encrypted rows are damaged");
    frame = opened;
  }
  absl::StatusOr<std::vector<CatalogueRow>> rows = DecodeRows(frame, header.rows);
  if (!rows.ok()) return rows.status();
  SegmentHead head;
  head.segment = header.segment;
  head.payload_bytes = header.payload_bytes;
  head.head_bytes = *needed;
  head.rows = *std::move(rows);
  head.sealer = front->sealer;
  return head;
}

absl::StatusOr<SharedSealer> DecodeSegmentSealer(std::string_view bytes, const SealKey* key) {
  std::uint64_t needed = 0;
  const absl::StatusOr<Front> front = DecodeFront(bytes, key, &needed);
  if (absl::IsOutOfRange(front.status())) return SegmentDamaged("shorter than its head");
  if (!front.ok()) return front.status();
  return front->sealer;
}

absl::StatusOr<Digest128> DecodeSegmentKeyId(std::string_view bytes) {
  const absl::StatusOr<Header> header = DecodeFirst(bytes);
  if (absl::IsOutOfRange(header.status())) return SegmentDamaged("shorter than its head");
  if (!header.ok()) return header.status();
  if (header->version != kSealedVersion) return Digest128();
  if (bytes.size() < kSegmentSealBytes) return SegmentDamaged("shorter than its head");
  const absl::StatusOr<SealBlock> block =
      DecodeSealBlock(bytes.substr(kHeaderBytes, kSealBlockBytes));
  if (!block.ok()) return block.status();
  return block->key_id;
}

std::string EncodeExtentHeader(const ParkKey& key, const StoredExtent& extent) {
  return ExtentHeader(key, extent, extent.info.checksum);
}

std::string SealExtent(const Sealer& sealer, const ParkKey& key, const StoredExtent& extent,
                       absl::Span<const char> from, char* to) {
  const std::string bound = ExtentHeader(key, extent, {}).substr(0, kExtentBoundBytes);
  return ExtentHeader(key, extent, sealer.Seal(ExtentNonce(extent), bound, from, to));
}

absl::Status OpenExtent(const Sealer& sealer, std::string_view header, const ParkKey& key,
                        const StoredExtent& extent, absl::Span<const char> from, char* to) {
  if (header.size() != kExtentHeaderBytes) return ExtentDamaged("not 64 bytes");
  const SealTag tag = ByteReader(header.substr(kExtentBoundBytes)).Digest();
  if (header != ExtentHeader(key, extent, tag)) return ExtentDamaged("damaged, or of another one");
  return sealer.Open(ExtentNonce(extent), header.substr(0, kExtentBoundBytes), from, tag, to);
}

absl::Status CheckExtentHeader(std::string_view header, const ParkKey& key,
                               const StoredExtent& extent) {
  if (header.size() != kExtentHeaderBytes) return ExtentDamaged("not 64 bytes");
  if (header.substr(0, kExtentMagic.size()) != kExtentMagic) return ExtentDamaged("no magic");
  if (!HasItsChecksum(header)) return ExtentDamaged("checksum differs");
  // Everything in it is known, so the header that should stand there is the whole check.
  if (header != EncodeExtentHeader(key, extent)) return ExtentDamaged("of another extent");
  return absl::OkStatus();
}

}  // namespace parkade
