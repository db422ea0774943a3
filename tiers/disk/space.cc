#include "tiers/disk/space.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace parkade::disk {

std::uint64_t SpaceLedger::PhysicalLocked() const { return segment_bytes_ + database_bytes_; }

std::uint64_t SpaceLedger::EffectiveLocked(std::uint64_t free_bytes) const {
  const std::uint64_t all = PhysicalLocked() + free_bytes;
  return std::min(budget_bytes_, all > floor_bytes_ ? all - floor_bytes_ : 0);
}

std::uint64_t SpaceLedger::ShortfallLocked(std::uint64_t payload_bytes,
                                           std::uint64_t free_bytes) const {
  const std::uint64_t needed =
      PhysicalLocked() + reserved_bytes_ + EstimatedBytes(payload_bytes) + kHeadroomBytes;
  const std::uint64_t effective = EffectiveLocked(free_bytes);
  if (needed <= effective) return 0;
  const std::uint64_t shortfall = needed - effective;
  // Evicting frees segments, nothing else.
  if (shortfall > segment_bytes_) return std::numeric_limits<std::uint64_t>::max();
  return shortfall;
}

void SpaceLedger::SetBudget(std::uint64_t budget_bytes) {
  absl::MutexLock lock(&mutex_);
  budget_bytes_ = budget_bytes;
}

void SpaceLedger::SetAutoBudget(std::uint64_t free_bytes) {
  absl::MutexLock lock(&mutex_);
  budget_bytes_ = std::min(kAutoBudgetBytes, free_bytes / kAutoFreeShare + PhysicalLocked());
}

SpaceLedger::View SpaceLedger::Look(std::uint64_t free_bytes) const {
  absl::MutexLock lock(&mutex_);
  const std::uint64_t effective = EffectiveLocked(free_bytes);
  return {PhysicalLocked(), effective, effective < budget_bytes_, free_bytes < floor_bytes_};
}

std::uint64_t SpaceLedger::Shortfall(std::uint64_t payload_bytes, std::uint64_t free_bytes) const {
  absl::MutexLock lock(&mutex_);
  return ShortfallLocked(payload_bytes, free_bytes);
}

absl::Status SpaceLedger::Reserve(std::uint64_t payload_bytes, std::uint64_t free_bytes) {
  absl::MutexLock lock(&mutex_);
  const std::uint64_t shortfall = ShortfallLocked(payload_bytes, free_bytes);
  if (shortfall != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for a park of ", payload_bytes, " bytes: ", PhysicalLocked(), " of ",
                     EffectiveLocked(free_bytes), " bytes are taken"));
  }
  reserved_bytes_ += EstimatedBytes(payload_bytes);
  return absl::OkStatus();
}

void SpaceLedger::Settle(std::uint64_t payload_bytes, std::uint64_t block_bytes) {
  absl::MutexLock lock(&mutex_);
  reserved_bytes_ -= EstimatedBytes(payload_bytes);
  segment_bytes_ += block_bytes;
  ++epoch_;
}

void SpaceLedger::AddSegment(std::uint64_t block_bytes) {
  absl::MutexLock lock(&mutex_);
  segment_bytes_ += block_bytes;
  ++epoch_;
}

void SpaceLedger::DropSegment(std::uint64_t block_bytes) {
  absl::MutexLock lock(&mutex_);
  segment_bytes_ -= std::min(segment_bytes_, block_bytes);
  ++epoch_;
}

void SpaceLedger::SetDatabase(std::uint64_t block_bytes) {
  absl::MutexLock lock(&mutex_);
  database_bytes_ = block_bytes;
}

bool SpaceLedger::SetSegments(std::uint64_t block_bytes, std::uint64_t epoch) {
  absl::MutexLock lock(&mutex_);
  // A park that is being written is in the walk and not yet in the sum.
  if (epoch != epoch_ || reserved_bytes_ != 0) return false;
  segment_bytes_ = block_bytes;
  return true;
}

std::uint64_t SpaceLedger::epoch() const {
  absl::MutexLock lock(&mutex_);
  return epoch_;
}

}  // namespace parkade::disk
