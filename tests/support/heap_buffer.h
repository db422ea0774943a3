// An extent buffer with memory of its own, for tests that have no pool.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "parkade/image.h"

namespace parkade::test {

class HeapBuffer : public ExtentBuffer {
 public:
  explicit HeapBuffer(std::size_t bytes) : HeapBuffer(std::make_unique<char[]>(bytes), bytes) {}

 private:
  HeapBuffer(std::unique_ptr<char[]> memory, std::size_t bytes)
      : ExtentBuffer(memory.get(), bytes), memory_(std::move(memory)) {}

  std::unique_ptr<char[]> memory_;
};

// Zeroed. Fits Tier::ReadExtent's `allocate`.
inline std::shared_ptr<ExtentBuffer> AllocateHeapBuffer(std::size_t bytes) {
  return std::make_shared<HeapBuffer>(bytes);
}

inline ExtentBytes CopyToHeap(std::string_view bytes) {
  auto buffer = AllocateHeapBuffer(bytes.size());
  std::memcpy(buffer->data(), bytes.data(), bytes.size());
  return buffer;
}

inline std::string_view ViewOf(const ExtentBytes& bytes) { return {bytes->data(), bytes->size()}; }

}  // namespace parkade::test
