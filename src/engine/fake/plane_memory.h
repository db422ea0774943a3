// Host memory for the rows of one plane.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parkade/image.h"

namespace parkade::fake {

// Thread compatible. Reserves address space only: a page costs memory when it is first written.
class PlaneMemory {
 public:
  // `rows` is the capacity: rows of position p and p + rows share a place, so a window plane
  // overwrites what has slid out. Aborts when the system gives no address space.
  PlaneMemory(const Plane& plane, std::uint32_t rows);
  ~PlaneMemory();
  PlaneMemory(const PlaneMemory&) = delete;
  PlaneMemory& operator=(const PlaneMemory&) = delete;

  std::uint64_t row_bytes() const { return row_bytes_; }
  std::uint32_t capacity_rows() const { return rows_; }
  char* Row(std::uint32_t position) { return base_ + position % rows_ * row_bytes_; }
  const char* Row(std::uint32_t position) const { return base_ + position % rows_ * row_bytes_; }

  // Copies `bytes` bytes that start `offset` bytes after the first byte of row `position`; a run
  // may wrap around the capacity but not be longer than it.
  void CopyOut(std::uint32_t position, std::uint64_t offset, std::uint64_t bytes, char* to) const;
  void CopyIn(std::uint32_t position, std::uint64_t offset, std::uint64_t bytes, const char* from);

  // Gives every page back; all rows read as zeros.
  void Discard();

 private:
  std::uint64_t row_bytes_;
  std::uint32_t rows_;
  std::uint64_t mapped_bytes_;
  char* base_ = nullptr;
};

}  // namespace parkade::fake
