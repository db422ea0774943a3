#include "src/capi/event_counts.h"

#include <string>

namespace parkade::capi {
namespace {

thread_local EventCounts::OnThisThread* listener = nullptr;

}  // namespace

EventCounts::OnThisThread::OnThisThread() { listener = this; }
EventCounts::OnThisThread::~OnThisThread() { listener = nullptr; }

EventCounts::Counts EventCounts::counts() const {
  absl::MutexLock lock(&mu_);
  return counts_;
}

void EventCounts::OnLookup(const LookupRecord& record) {
  if (listener != nullptr) listener->lookup = record;
  absl::MutexLock lock(&mu_);
  ++counts_.lookups;
  counts_.prompt_tokens += record.prompt_tokens;
  for (int source = 0; source < kSources; ++source) {
    counts_.hit_tokens[source] += record.hit_tokens[source];
  }
  for (const std::uint32_t tokens : record.miss_tokens) counts_.miss_tokens += tokens;
  counts_.restored_bytes += record.restored_bytes;
}

void EventCounts::OnPark(const ParkEvent& event) {
  absl::MutexLock lock(&mu_);
  counts_.parked_bytes += event.payload_bytes;
}

void EventCounts::OnSkippedPark(SkipReason reason, std::uint32_t tokens) {
  if (listener != nullptr && reason == SkipReason::kQueueFull) listener->dropped_from_queue = true;
  absl::MutexLock lock(&mu_);
  counts_.skipped_tokens += tokens;
}

void EventCounts::OnCorrupt(TierKind tier) {
  Log(LogLevel::kWarning,
      "damaged bytes in " + std::string(TierName(tier)) + "; what stood on them is given up");
}

void EventCounts::OnTierError(TierKind tier, std::string_view what) {
  Log(LogLevel::kWarning, std::string(TierName(tier)) + ": " + std::string(what));
}

void EventCounts::Log(LogLevel level, std::string_view line) {
  if (log_ == nullptr) return;
  static_assert(static_cast<int>(LogLevel::kDebug) == PARKADE_LOG_DEBUG &&
                static_cast<int>(LogLevel::kError) == PARKADE_LOG_ERROR);
  log_(log_user_, static_cast<parkade_log_level>(level), std::string(line).c_str());
}

}  // namespace parkade::capi
