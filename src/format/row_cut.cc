#include "src/format/row_cut.h"

#include <cstring>

namespace parkade {

ExtentInfo FirstRows(const ExtentInfo& extent, std::uint32_t rows) {
  if (rows >= extent.rows) return extent;
  // Only a single row is ever in parts, so this extent has all planes of its rows.
  ExtentInfo cut = extent;
  cut.rows = rows;
  cut.raw_bytes = extent.raw_bytes / extent.rows * rows;
  cut.checksum = Digest128();
  return cut;
}

void CopyFirstRows(const StateLayout& layout, const Stage& stage, const ExtentInfo& extent,
                   std::uint32_t rows, const char* raw, char* destination) {
  for (const PlaneSlice& slice : SlicesOf(layout, stage, extent)) {
    const std::uint64_t bytes = slice.bytes / extent.rows * rows;
    std::memcpy(destination, raw + slice.extent_offset, bytes);
    destination += bytes;
  }
}

}  // namespace parkade
