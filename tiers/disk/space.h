// Physical bytes against the budget and the floor of free space. Arithmetic only: who calls does
// the measuring.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace parkade::disk {

// Left between physical bytes and the budget, and between free bytes and the floor, when a park is
// admitted: RocksDB's log, flushes and compactions live in it.
inline constexpr std::uint64_t kHeadroomBytes = 32ull << 20;
// The automatic budget is at most this, and at most this share of the free bytes plus what
// is held already.
inline constexpr std::uint64_t kAutoBudgetBytes = 64ull << 30;
inline constexpr std::uint64_t kAutoFreeShare = 5;  // one part in five

// What a park of so many raw bytes is counted as before it is written: rows and headers included.
constexpr std::uint64_t EstimatedBytes(std::uint64_t payload_bytes) {
  return payload_bytes + payload_bytes / 128 + (128u << 10);
}

// Thread safe.
class SpaceLedger {
 public:
  explicit SpaceLedger(std::uint64_t floor_bytes) : floor_bytes_(floor_bytes) {}

  void SetBudget(std::uint64_t budget_bytes);
  // From `free_bytes` and what is held, now.
  void SetAutoBudget(std::uint64_t free_bytes);

  struct View {
    std::uint64_t physical_bytes = 0;
    std::uint64_t effective_budget_bytes = 0;
    bool floor_limits_budget = false;
    bool below_floor = false;
  };
  View Look(std::uint64_t free_bytes) const;
  std::uint64_t floor_bytes() const { return floor_bytes_; }

  // As Tier::Shortfall, while nothing but space is wrong.
  std::uint64_t Shortfall(std::uint64_t payload_bytes, std::uint64_t free_bytes) const;
  // Sets the estimate aside until Settle. ResourceExhausted exactly when Shortfall is not 0.
  absl::Status Reserve(std::uint64_t payload_bytes, std::uint64_t free_bytes);
  // Ends a reservation; `block_bytes` were really taken, 0 after a failure.
  void Settle(std::uint64_t payload_bytes, std::uint64_t block_bytes);

  void AddSegment(std::uint64_t block_bytes);
  void DropSegment(std::uint64_t block_bytes);
  void SetDatabase(std::uint64_t block_bytes);
  // The result of a walk over the segments. It replaces the sum only if `epoch`, read before the
  // walk, is still the current one; false otherwise.
  bool SetSegments(std::uint64_t block_bytes, std::uint64_t epoch);
  std::uint64_t epoch() const;

 private:
  std::uint64_t PhysicalLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::uint64_t EffectiveLocked(std::uint64_t free_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::uint64_t ShortfallLocked(std::uint64_t payload_bytes, std::uint64_t free_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::uint64_t floor_bytes_;
  mutable absl::Mutex mutex_;
  std::uint64_t budget_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t segment_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t database_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t reserved_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace parkade::disk
