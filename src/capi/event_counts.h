// What the cache tells, as numbers for parkade_get_stats and lines for the engine's log.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "parkade/events.h"
#include "parkade/parkade.h"

namespace parkade::capi {

// Thread safe.
class EventCounts : public EventSink {
 public:
  struct Counts {
    std::uint64_t lookups = 0;
    std::uint64_t prompt_tokens = 0;
    std::uint64_t hit_tokens[kSources] = {};
    std::uint64_t miss_tokens = 0;
    std::uint64_t restored_bytes = 0;
    std::uint64_t parked_bytes = 0;
    std::uint64_t skipped_tokens = 0;
  };

  // What was told on this thread while it lives; one at a time on a thread.
  class OnThisThread {
   public:
    OnThisThread();
    ~OnThisThread();
    OnThisThread(const OnThisThread&) = delete;
    OnThisThread& operator=(const OnThisThread&) = delete;

    std::optional<LookupRecord> lookup;
    bool dropped_from_queue = false;
  };

  // `log` may be null.
  EventCounts(parkade_log_fn log, void* log_user) : log_(log), log_user_(log_user) {}

  Counts counts() const;

  void OnLookup(const LookupRecord& record) override;
  void OnPark(const ParkEvent& event) override;
  void OnSkippedPark(SkipReason reason, std::uint32_t tokens) override;
  void OnCorrupt(TierKind tier) override;
  void OnTierError(TierKind tier, std::string_view what) override;
  void Log(LogLevel level, std::string_view line) override;

 private:
  const parkade_log_fn log_;
  void* const log_user_;
  mutable absl::Mutex mu_;
  Counts counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parkade::capi
