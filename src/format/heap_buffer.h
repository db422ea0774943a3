// An extent buffer with memory of its own, for those who have no pool. Zeroed at first.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "parkade/image.h"

namespace parkade {

class HeapBuffer : public ExtentBuffer {
 public:
  explicit HeapBuffer(std::size_t bytes) : HeapBuffer(std::make_unique<char[]>(bytes), bytes) {}

 private:
  HeapBuffer(std::unique_ptr<char[]> memory, std::size_t bytes)
      : ExtentBuffer(memory.get(), bytes), memory_(std::move(memory)) {}

  std::unique_ptr<char[]> memory_;
};

// Fits Tier::ReadExtent's `allocate`.
inline std::shared_ptr<ExtentBuffer> MakeHeapBuffer(std::size_t bytes) {
  return std::make_shared<HeapBuffer>(bytes);
}

}  // namespace parkade
