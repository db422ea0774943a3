#include "tests/bench/measure.h"

#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace {

std::atomic<std::uint64_t> heap_bytes{0};
std::atomic<std::uint64_t> heap_peak_bytes{0};

void* CountedNew(std::size_t size, std::size_t alignment) {
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size == 0 ? 1 : size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  const std::uint64_t held =
      heap_bytes.fetch_add(malloc_usable_size(memory), std::memory_order_relaxed) +
      malloc_usable_size(memory);
  std::uint64_t peak = heap_peak_bytes.load(std::memory_order_relaxed);
  while (held > peak && !heap_peak_bytes.compare_exchange_weak(peak, held)) {
  }
  return memory;
}

void CountedDelete(void* memory) {
  if (memory == nullptr) return;
  heap_bytes.fetch_sub(malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

// Arrays and the forms without exceptions come through these.
void* operator new(std::size_t size) { return CountedNew(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return CountedNew(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { CountedDelete(memory); }
void operator delete(void* memory, std::size_t) noexcept { CountedDelete(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { CountedDelete(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  CountedDelete(memory);
}

namespace parkade::bench {
namespace {

// "Name:   123 kB" or "name: 123"; nothing when the file has no such line.
absl::StatusOr<std::uint64_t> ProcNumber(const char* file, const std::string& name) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind(name + ":", 0) == 0) {
      return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
    }
  }
  return absl::UnavailableError(absl::StrCat(file, " has no ", name));
}

}  // namespace

double NowSeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const std::size_t index = rank < 1 ? 0 : static_cast<std::size_t>(rank) - 1;
  return values[std::min(index, values.size() - 1)];
}

absl::StatusOr<std::map<std::string, double>> MedianSeconds(
    const std::vector<Contestant>& contestants, int rounds, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::map<std::string, std::vector<double>> seconds;
  std::vector<std::size_t> order(contestants.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      absl::StatusOr<double> measured = contestants[i].measure();
      if (!measured.ok()) {
        return absl::Status(measured.status().code(),
                            absl::StrCat(contestants[i].name, ": ", measured.status().message()));
      }
      seconds[contestants[i].name].push_back(*measured);
    }
  }
  std::map<std::string, double> medians;
  for (const auto& [name, values] : seconds) medians[name] = Median(values);
  return medians;
}

WriteMeter::WriteMeter()
    : passed_(ProcNumber("/proc/self/io", "wchar")),
      counted_(ProcNumber("/proc/self/io", "write_bytes")) {}

absl::StatusOr<std::uint64_t> WriteMeter::bytes() const {
  const WriteMeter now;
  if (!passed_.ok()) return passed_.status();
  if (!counted_.ok()) return counted_.status();
  if (!now.passed_.ok() || !now.counted_.ok()) return absl::UnavailableError("/proc/self/io");
  return std::max(*now.passed_ - *passed_, *now.counted_ - *counted_);
}

std::uint64_t ResidentBytes() { return ProcNumber("/proc/self/status", "VmRSS").value_or(0) << 10; }

std::uint64_t PeakResidentBytes() {
  return ProcNumber("/proc/self/status", "VmHWM").value_or(0) << 10;
}

bool ResetPeak() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5\n";
  out.close();
  return out.good();
}

std::uint64_t HeapBytes() { return heap_bytes.load(); }
std::uint64_t HeapPeakBytes() { return heap_peak_bytes.load(); }
void ResetHeapPeak() { heap_peak_bytes.store(heap_bytes.load()); }

}  // namespace parkade::bench
