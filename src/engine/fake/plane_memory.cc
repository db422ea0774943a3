#include "src/engine/fake/plane_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "src/device/host_copy.h"

namespace parkade::fake {

PlaneMemory::PlaneMemory(const Plane& plane, std::uint32_t rows)
    : row_bytes_(plane.row_bytes),
      rows_(std::max<std::uint32_t>(rows, 1)),
      mapped_bytes_(std::max<std::uint64_t>(row_bytes_ * rows_, 1)) {
  void* mapped = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    std::perror("fake engine: no address space for a plane");
    std::abort();
  }
  base_ = static_cast<char*>(mapped);
}

PlaneMemory::~PlaneMemory() { munmap(base_, mapped_bytes_); }

void PlaneMemory::CopyOut(std::uint32_t position, std::uint64_t offset, std::uint64_t bytes,
                          char* to) const {
  const std::uint64_t size = row_bytes_ * rows_;
  const std::uint64_t from = (position % rows_ * row_bytes_ + offset) % size;
  const std::uint64_t head = std::min(bytes, size - from);
  CopyToRest(to, base_ + from, head);
  CopyToRest(to + head, base_, bytes - head);
}

void PlaneMemory::CopyIn(std::uint32_t position, std::uint64_t offset, std::uint64_t bytes,
                         const char* from) {
  const std::uint64_t size = row_bytes_ * rows_;
  const std::uint64_t to = (position % rows_ * row_bytes_ + offset) % size;
  const std::uint64_t head = std::min(bytes, size - to);
  CopyToRest(base_ + to, from, head);
  CopyToRest(base_, from + head, bytes - head);
}

void PlaneMemory::Discard() { madvise(base_, mapped_bytes_, MADV_DONTNEED); }

}  // namespace parkade::fake
