// An extent buffer with memory of its own: a command line tool needs no pool.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "parkade/image.h"

namespace parkade {

class OwnedBuffer : public ExtentBuffer {
 public:
  explicit OwnedBuffer(std::size_t bytes) : OwnedBuffer(std::make_unique<char[]>(bytes), bytes) {}

 private:
  OwnedBuffer(std::unique_ptr<char[]> memory, std::size_t bytes)
      : ExtentBuffer(memory.get(), bytes), memory_(std::move(memory)) {}

  std::unique_ptr<char[]> memory_;
};

// Fits Tier::ReadExtent's `allocate`.
inline std::shared_ptr<ExtentBuffer> MakeHeapBuffer(std::size_t bytes) {
  return std::make_shared<OwnedBuffer>(bytes);
}

}  // namespace parkade
