#include "tests/unit/format_largest_request.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace parkade {

std::atomic<std::size_t> largest_request_bytes{0};

}  // namespace parkade

void* operator new(std::size_t bytes) {
  std::size_t seen = parkade::largest_request_bytes.load();
  while (bytes > seen && !parkade::largest_request_bytes.compare_exchange_weak(seen, bytes)) {
  }
  if (void* memory = std::malloc(std::max<std::size_t>(bytes, 1))) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
