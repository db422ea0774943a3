// Extents' bytes from strings and back, for tests.
#pragma once

#include <cstring>
#include <string_view>

#include "src/format/heap_buffer.h"

namespace parkade::test {

inline ExtentBytes CopyToHeap(std::string_view bytes) {
  auto buffer = MakeHeapBuffer(bytes.size());
  std::memcpy(buffer->data(), bytes.data(), bytes.size());
  return buffer;
}

inline std::string_view ViewOf(const ExtentBytes& bytes) { return {bytes->data(), bytes->size()}; }

}  // namespace parkade::test
