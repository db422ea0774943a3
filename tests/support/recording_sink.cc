#include "tests/support/recording_sink.h"

namespace parkade::test {

RecordedEvents RecordingSink::events() const {
  absl::MutexLock lock(&mu_);
  return events_;
}

void RecordingSink::Reset() {
  absl::MutexLock lock(&mu_);
  events_ = {};
}

bool RecordingSink::WaitUntil(const std::function<bool(const RecordedEvents&)>& done,
                              absl::Duration timeout) const {
  const auto holds = [this, &done]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return done(events_); };
  absl::MutexLock lock(&mu_);
  return mu_.AwaitWithTimeout(absl::Condition(&holds), timeout);
}

void RecordingSink::OnLookup(const LookupRecord& record) {
  absl::MutexLock lock(&mu_);
  events_.lookups.push_back(record);
}

void RecordingSink::OnPark(const ParkEvent& event) {
  absl::MutexLock lock(&mu_);
  events_.parks.push_back(event);
}

void RecordingSink::OnSpill(TierKind tier, std::uint64_t bytes, double seconds) {
  absl::MutexLock lock(&mu_);
  events_.spills.push_back({tier, bytes, seconds});
}

void RecordingSink::OnRestore(TierKind tier, std::uint64_t bytes, double seconds) {
  absl::MutexLock lock(&mu_);
  events_.restores.push_back({tier, bytes, seconds});
}

void RecordingSink::OnStageRestored(std::uint16_t stage, std::uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  events_.stage_restored_bytes[stage] += bytes;
}

void RecordingSink::OnStageLimited(std::uint16_t stage) {
  absl::MutexLock lock(&mu_);
  events_.stages_limited.push_back(stage);
}

void RecordingSink::OnSkippedPark(SkipReason reason, std::uint32_t tokens) {
  absl::MutexLock lock(&mu_);
  events_.skips.push_back({reason, tokens});
}

void RecordingSink::OnEvict(TierKind tier, EvictReason reason, std::uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  events_.evictions.push_back({tier, reason, bytes});
}

void RecordingSink::OnCorrupt(TierKind tier) {
  absl::MutexLock lock(&mu_);
  events_.corrupt.push_back(tier);
}

void RecordingSink::OnTierError(TierKind tier, std::string_view what) {
  absl::MutexLock lock(&mu_);
  events_.errors.emplace_back(tier, what);
}

void RecordingSink::Log(LogLevel level, std::string_view line) {
  absl::MutexLock lock(&mu_);
  events_.log.push_back({level, std::string(line)});
}

}  // namespace parkade::test
