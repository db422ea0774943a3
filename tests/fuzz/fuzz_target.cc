#include "tests/fuzz/fuzz_target.h"

#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <atomic>

namespace parkade::fuzz {
namespace {

std::atomic<bool> watching{false};
std::atomic<std::size_t> largest{0};

void OnMalloc(const volatile void*, std::size_t bytes) {
  if (!watching.load(std::memory_order_relaxed)) return;
  std::size_t seen = largest.load(std::memory_order_relaxed);
  while (bytes > seen && !largest.compare_exchange_weak(seen, bytes)) {
  }
}

void OnFree(const volatile void*) {}

}  // namespace

std::string_view Input::Bytes(std::size_t most) {
  const std::string_view taken = rest_.substr(0, most);
  rest_.remove_prefix(taken.size());
  return taken;
}

std::string_view Input::Line() {
  const std::size_t end = rest_.find('\n');
  const std::string_view line = Bytes(end == std::string_view::npos ? rest_.size() : end);
  Bytes(1);
  return line;
}

std::uint64_t Input::Number(std::size_t bytes) {
  const std::string_view taken = Bytes(bytes);
  std::uint64_t value = 0;
  for (std::size_t i = taken.size(); i > 0; --i) {
    value = value << 8 | static_cast<std::uint8_t>(taken[i - 1]);
  }
  return value;
}

AllocationWatch::AllocationWatch() {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree);
  FUZZ_CHECK(installed > 0);
  largest = 0;
  watching = true;
}

AllocationWatch::~AllocationWatch() { watching = false; }

std::size_t AllocationWatch::largest_bytes() const { return largest.load(); }

}  // namespace parkade::fuzz
