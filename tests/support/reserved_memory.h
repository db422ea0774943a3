// Host memory as tests of arenas see it: address space, counted, and refused beyond a limit.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "parkade/host_memory.h"

namespace parkade::test {

class ReservedMemory : public HostMemory {
 public:
  struct Counts {
    std::uint64_t held_bytes = 0;
    int asked = 0;
    int given = 0;
  };
  // kWritable: bytes can be kept in it, and take memory when they are.
  enum class Access { kNone, kWritable };
  explicit ReservedMemory(Access access = Access::kNone) : access_(access) {}

  std::string name() const override { return "reserved memory"; }
  absl::StatusOr<char*> Take(std::size_t bytes) override {
    absl::MutexLock lock(&mu_);
    ++counts_.asked;
    if (counts_.held_bytes + bytes > most_bytes_) {
      return absl::ResourceExhaustedError("as the test wants it");
    }
    const int access = access_ == Access::kWritable ? PROT_READ | PROT_WRITE : PROT_NONE;
    void* memory = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return absl::ResourceExhaustedError("no address space");
    counts_.held_bytes += bytes;
    return static_cast<char*>(memory);
  }
  void Give(char* memory, std::size_t bytes) override {
    munmap(memory, bytes);
    absl::MutexLock lock(&mu_);
    counts_.held_bytes -= bytes;
    ++counts_.given;
  }

  void SetMost(std::uint64_t bytes) {
    absl::MutexLock lock(&mu_);
    most_bytes_ = bytes;
  }
  Counts counts() const {
    absl::MutexLock lock(&mu_);
    return counts_;
  }
  std::uint64_t held_bytes() const { return counts().held_bytes; }
  // False: not within a time that is long for a test.
  bool WaitUntil(const std::function<bool(const Counts&)>& done) const {
    absl::MutexLock lock(&mu_);
    auto reached = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return done(counts_); };
    return mu_.AwaitWithTimeout(absl::Condition(&reached), absl::Seconds(60));
  }

 private:
  const Access access_;
  mutable absl::Mutex mu_;
  std::uint64_t most_bytes_ ABSL_GUARDED_BY(mu_) = UINT64_MAX;
  Counts counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parkade::test
