// An event sink that keeps what it is told.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "parkade/events.h"

namespace parkade::test {

struct RecordedEvents {
  struct Transfer {
    TierKind tier;
    std::uint64_t bytes = 0;
    double seconds = 0;
  };
  struct Skip {
    SkipReason reason;
    std::uint32_t tokens = 0;
  };
  struct Eviction {
    TierKind tier;
    EvictReason reason;
    std::uint64_t bytes = 0;
  };
  struct Line {
    LogLevel level;
    std::string text;
  };

  std::vector<LookupRecord> lookups;
  std::vector<ParkEvent> parks;
  std::vector<Transfer> spills;
  std::vector<Transfer> restores;
  std::map<std::uint16_t, std::uint64_t> stage_restored_bytes;
  std::vector<std::uint16_t> stages_limited;
  std::vector<Skip> skips;
  std::vector<Eviction> evictions;
  std::vector<TierKind> corrupt;
  std::vector<std::pair<TierKind, std::string>> errors;
  std::vector<Line> log;
};

// Thread safe.
class RecordingSink : public EventSink {
 public:
  RecordedEvents events() const;  // a copy
  void Reset();
  // Waits until `done` holds for the events so far; false when the time is over first. `done` runs
  // under the sink's lock, after every event.
  bool WaitUntil(const std::function<bool(const RecordedEvents&)>& done,
                 absl::Duration timeout = absl::Seconds(30)) const;

  void OnLookup(const LookupRecord& record) override;
  void OnPark(const ParkEvent& event) override;
  void OnSpill(TierKind tier, std::uint64_t bytes, double seconds) override;
  void OnRestore(TierKind tier, std::uint64_t bytes, double seconds) override;
  void OnStageRestored(std::uint16_t stage, std::uint64_t bytes) override;
  void OnStageLimited(std::uint16_t stage) override;
  void OnSkippedPark(SkipReason reason, std::uint32_t tokens) override;
  void OnEvict(TierKind tier, EvictReason reason, std::uint64_t bytes) override;
  void OnCorrupt(TierKind tier) override;
  void OnTierError(TierKind tier, std::string_view what) override;
  void Log(LogLevel level, std::string_view line) override;

 private:
  mutable absl::Mutex mu_;
  RecordedEvents events_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parkade::test
