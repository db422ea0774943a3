#include "src/format/segment.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
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

bool IsSealed(std::string_view bytes) {
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
  if (!IsSealed(bytes)) return SegmentDamaged("checksum of the header differs");
  ByteReader reader(bytes.substr(kSegmentMagic.size()));
  Header header;
  header.version = reader.U32();
  if (header.version == 0) return SegmentDamaged("version 0");
  if (header.version > kFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat("segment head: version ", header.version,
                                                      ", this program knows ", kFormatVersion));
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

}  // namespace

std::uint64_t SegmentHeadBytes(absl::Span<const CatalogueRow> rows) {
  std::uint64_t bytes = kHeaderBytes;
  for (const CatalogueRow& row : rows) bytes += kRowFrameBytes + row.key.size() + row.value.size();
  return (bytes + kExtentAlignment - 1) / kExtentAlignment * kExtentAlignment;
}

std::string EncodeSegmentHead(std::uint64_t segment, absl::Span<const CatalogueRow> rows,
                              std::uint64_t payload_bytes) {
  ByteWriter frame;
  for (const CatalogueRow& row : rows) {
    frame.U8(static_cast<std::uint8_t>(row.family));
    frame.Count(row.key.size());
    frame.Count(row.value.size());
    frame.Raw(row.key);
    frame.Raw(row.value);
  }
  frame.PadTo(kExtentAlignment);

  ByteWriter head;
  head.Reserve(kHeaderBytes + frame.size());
  head.Raw(kSegmentMagic);
  head.U32(kFormatVersion);
  head.Count(rows.size());
  head.U64(segment);
  head.U64(payload_bytes);
  head.U64(frame.size());
  head.U64(Checksum64(frame.bytes()));
  head.U64(0);
  head.U64(Checksum64(head.bytes()));
  head.Raw(frame.bytes());
  return head.Take();
}

absl::StatusOr<SegmentHead> DecodeSegmentHead(std::string_view bytes, std::uint64_t* needed) {
  *needed = kHeaderBytes;
  const std::size_t seen = std::min(bytes.size(), kSegmentMagic.size());
  if (bytes.substr(0, seen) != kSegmentMagic.substr(0, seen)) return SegmentDamaged("no magic");
  if (bytes.size() < kHeaderBytes) return absl::OutOfRangeError("segment head: 64 bytes needed");
  const absl::StatusOr<Header> header = DecodeHeader(bytes.substr(0, kHeaderBytes));
  if (!header.ok()) return header.status();
  *needed = kHeaderBytes + header->rows_bytes;
  if (bytes.size() < *needed) {
    return absl::OutOfRangeError(absl::StrCat("segment head: ", *needed, " bytes needed"));
  }
  const std::string_view frame = bytes.substr(kHeaderBytes, header->rows_bytes);
  if (Checksum64(frame) != header->rows_checksum) {
    return SegmentDamaged("checksum of the rows differs");
  }
  absl::StatusOr<std::vector<CatalogueRow>> rows = DecodeRows(frame, header->rows);
  if (!rows.ok()) return rows.status();
  SegmentHead head;
  head.segment = header->segment;
  head.payload_bytes = header->payload_bytes;
  head.head_bytes = *needed;
  head.rows = *std::move(rows);
  return head;
}

std::string EncodeExtentHeader(const ParkKey& key, const StoredExtent& extent) {
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
  writer.Digest(extent.info.checksum);
  writer.U64(Checksum64(writer.bytes()));
  return writer.Take();
}

absl::Status CheckExtentHeader(std::string_view header, const ParkKey& key,
                               const StoredExtent& extent) {
  if (header.size() != kExtentHeaderBytes) return ExtentDamaged("not 64 bytes");
  if (header.substr(0, kExtentMagic.size()) != kExtentMagic) return ExtentDamaged("no magic");
  if (!IsSealed(header)) return ExtentDamaged("checksum differs");
  // Everything in it is known, so the header that should stand there is the whole check.
  if (header != EncodeExtentHeader(key, extent)) return ExtentDamaged("of another extent");
  return absl::OkStatus();
}

}  // namespace parkade
