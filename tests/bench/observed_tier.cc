#include "tests/bench/observed_tier.h"

#include "tests/bench/measure.h"

namespace parkade::bench {

void TierTimes::AddStore(double seconds) {
  absl::MutexLock lock(&mu_);
  stores_.push_back(seconds);
}

void TierTimes::AddRemove(double seconds) {
  absl::MutexLock lock(&mu_);
  removes_.push_back(seconds);
}

std::vector<double> TierTimes::stores() const {
  absl::MutexLock lock(&mu_);
  return stores_;
}

std::vector<double> TierTimes::removes() const {
  absl::MutexLock lock(&mu_);
  return removes_;
}

absl::Status ObservedTier::Store(const ParkRecord& record, absl::Span<const ExtentBytes> payload) {
  const double begin = NowSeconds();
  absl::Status stored = inner_->Store(record, payload);
  if (stored.ok()) times_->AddStore(NowSeconds() - begin);
  return stored;
}

absl::Status ObservedTier::Remove(absl::Span<const ParkKey> keys) {
  const double begin = NowSeconds();
  absl::Status removed = inner_->Remove(keys);
  if (removed.ok()) times_->AddRemove(NowSeconds() - begin);
  return removed;
}

}  // namespace parkade::bench
