#include "tests/fuzz/right_checksums.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "src/format/catalogue.h"
#include "src/format/checksum.h"
#include "src/format/container.h"
#include "src/format/segment.h"
#include "src/format/wire.h"

namespace parkade::fuzz {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kRowFrameBytes = 9;
constexpr std::size_t kExtentRecordBytes = 52;
constexpr std::size_t kImageHeadBytes = 14;  // kind, version, segment, count

std::string_view View(const std::string& bytes, std::size_t at, std::size_t size) {
  return std::string_view(bytes).substr(at, size);
}

std::uint64_t Number(const std::string& bytes, std::size_t at, int size) {
  ByteReader reader(View(bytes, at, static_cast<std::size_t>(size)));
  return size == 8 ? reader.U64() : reader.U32();
}

template <typename Write>
void Put(std::string* bytes, std::size_t at, Write write) {
  ByteWriter writer;
  write(writer);
  bytes->replace(at, writer.size(), writer.bytes());
}

// A row of a segment by where its value is.
struct Row {
  std::uint8_t family = 0;
  std::size_t at = 0;
  std::size_t size = 0;
};

std::vector<Row> RowsOf(const std::string& bytes, std::size_t at, std::size_t end) {
  std::vector<Row> rows;
  while (at + kRowFrameBytes < end) {
    const std::uint64_t key = Number(bytes, at + 1, 4);
    const std::uint64_t value = Number(bytes, at + 5, 4);
    const auto family = static_cast<std::uint8_t>(bytes[at]);
    at += kRowFrameBytes;
    if (key == 0 || key + value > end - at) break;
    rows.push_back({family, at + key, value});
    at += key + value;
  }
  return rows;
}

bool IsImage(const std::string& bytes, const Row& row) {
  return row.family == static_cast<std::uint8_t>(CatalogueRow::Family::kImage) &&
         row.size >= kImageHeadBytes + 8 && bytes[row.at] == 'I';
}

// The checksum of an extent in its record of an image row and in its header.
void RightExtent(std::string* bytes, std::size_t segment, std::size_t record) {
  const auto codec = static_cast<Codec>((*bytes)[record + 1]);
  const std::uint64_t raw_bytes = Number(*bytes, record + 16, 4);
  const std::uint64_t stored_bytes = Number(*bytes, record + 20, 4);
  const std::uint64_t offset = segment + Number(*bytes, record + 28, 8);
  if (raw_bytes > kExtentBytes || stored_bytes > bytes->size() || offset < kExtentHeaderBytes ||
      offset > bytes->size() - stored_bytes) {
    return;
  }
  const std::string_view stored = View(*bytes, offset, stored_bytes);
  std::string raw(stored);
  if (codec != Codec::kRaw) {
    raw.assign(raw_bytes, '\0');
    if (!Decompress(codec, stored, absl::MakeSpan(raw.data(), raw.size())).ok()) return;
  }
  const Digest128 checksum = Checksum(raw);
  Put(bytes, record + 36, [&](ByteWriter& writer) { writer.Digest(checksum); });
  const std::size_t header = offset - kExtentHeaderBytes;
  Put(bytes, header + 40, [&](ByteWriter& writer) { writer.Digest(checksum); });
  RightFrame(bytes, header, kExtentHeaderBytes);
}

void RightExtents(std::string* bytes, std::size_t segment, std::size_t head_bytes) {
  for (const Row& row : RowsOf(*bytes, segment + kHeaderBytes, segment + head_bytes)) {
    if (!IsImage(*bytes, row)) continue;
    for (std::size_t at = row.at + kImageHeadBytes;
         at + kExtentRecordBytes + 8 <= row.at + row.size; at += kExtentRecordBytes) {
      RightExtent(bytes, segment, at);
    }
  }
}

std::size_t AlignUp(std::size_t value) {
  return (value + kExtentAlignment - 1) / kExtentAlignment * kExtentAlignment;
}

}  // namespace

void RightFrame(std::string* bytes, std::size_t at, std::size_t size) {
  if (size < 8 || at > bytes->size() || size > bytes->size() - at) return;
  const std::uint64_t checksum = Checksum64(View(*bytes, at, size - 8));
  Put(bytes, at + size - 8, [&](ByteWriter& writer) { writer.U64(checksum); });
}

std::size_t RightSegmentHead(std::string* bytes, std::size_t at) {
  if (at > bytes->size() || bytes->size() - at < kHeaderBytes) return 0;
  const std::uint64_t rows_bytes = Number(*bytes, at + 32, 8);
  const std::size_t rows_at = at + kHeaderBytes;
  const bool whole = rows_bytes <= bytes->size() - rows_at;
  if (whole) {
    for (const Row& row : RowsOf(*bytes, rows_at, rows_at + rows_bytes)) {
      RightFrame(bytes, row.at, row.size);
    }
    const std::uint64_t checksum = Checksum64(View(*bytes, rows_at, rows_bytes));
    Put(bytes, at + 40, [&](ByteWriter& writer) { writer.U64(checksum); });
  }
  RightFrame(bytes, at, kHeaderBytes);
  return whole ? kHeaderBytes + rows_bytes : 0;
}

void RightContainer(std::string* bytes) {
  if (bytes->size() < kLeastContainerBytes) return;
  const std::size_t trailer = bytes->size() - kContainerTrailerBytes;
  RightFrame(bytes, 0, kContainerHeaderBytes);
  std::size_t at = kContainerHeaderBytes;
  while (at < trailer) {
    // First what image rows say of extents, then the rows' own checksums.
    const std::uint64_t rows_bytes = Number(*bytes, at + 32, 8);
    if (rows_bytes <= trailer && at + kHeaderBytes + rows_bytes <= trailer) {
      RightExtents(bytes, at, kHeaderBytes + rows_bytes);
    }
    const std::size_t head_bytes = RightSegmentHead(bytes, at);
    if (head_bytes == 0 || at + head_bytes > trailer) break;
    const std::uint64_t payload_bytes = Number(*bytes, at + 24, 8);
    if (payload_bytes > trailer) break;
    at = AlignUp(at + head_bytes + payload_bytes);
  }
  const Digest128 checksum = Checksum(View(*bytes, 0, trailer));
  Put(bytes, trailer + 16, [&](ByteWriter& writer) { writer.U64(bytes->size()); });
  Put(bytes, trailer + 24, [&](ByteWriter& writer) { writer.Digest(checksum); });
  RightFrame(bytes, trailer, kContainerTrailerBytes);
}

}  // namespace parkade::fuzz
