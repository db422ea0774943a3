#include "tests/unit/format_largest_request.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace parkade {

std::atomic<std::size_t> largest_request_bytes{0};

namespace {

void* Request(std::size_t bytes) noexcept {
  std::size_t seen = largest_request_bytes.load();
  while (bytes > seen && !largest_request_bytes.compare_exchange_weak(seen, bytes)) {
  }
  return std::malloc(std::max<std::size_t>(bytes, 1));
}

}  // namespace

}  // namespace parkade

// Every form that is not over-aligned: the address sanitizer has its own of each, which must not
// meet the delete of this file.
void* operator new(std::size_t bytes) {
  if (void* memory = parkade::Request(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return parkade::Request(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return parkade::Request(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
