// Events in, Prometheus text out. The catalogue of names is dashboards/README.md.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "parkade/conversation_cache.h"
#include "parkade/events.h"
#include "src/policy/prompt_speed.h"

namespace parkade {

// The labels of parkade_build_info.
struct BuildInfo {
  std::string version;
  std::string llama_cpp;
  std::string rocksdb;
  std::string model;  // a name for people, no path; empty until it is known, see SetModel
};

// What is asked for at every scrape, because it is a state and not an event.
struct MetricsSnapshot {
  std::vector<TierInfo> tiers;
  QueueInfo queue;
};

class MetricFamilies;

// Thread safe. Every counter is there with 0 for each of its label values from construction on, so
// that rate() sees the first event; gauges of a tier are there once a snapshot has named the tier.
class Metrics : public EventSink {
 public:
  // Every event goes on to each of `forward`, in that order, after it was counted. They must
  // outlive this object; none may be null.
  explicit Metrics(const BuildInfo& build, std::vector<EventSink*> forward = {});
  ~Metrics() override;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Called at every scrape, on the scraping thread; reads memory only. Null: no snapshot. Returns
  // when no scrape uses the former one any more, so the cache may be destroyed after
  // SetSnapshot(nullptr).
  void SetSnapshot(std::function<MetricsSnapshot()> snapshot);
  void SetModel(std::string_view model);
  // Makes the stage counters [0, stages) exist; stage 0 does from the start.
  void DeclareStages(int stages);

  // The engine has computed `tokens` prompt tokens after `first_token` others in `seconds`. The
  // fewer batches a call covers the better the depth is known. Feeds parkade_saved_seconds_total:
  // see SavedRange for what is counted.
  void OnPromptRead(std::uint32_t first_token, std::uint32_t tokens, double seconds);
  // A request got its first token `seconds` after it came. `lowest`: the slowest source used,
  // nullopt for a miss.
  void OnFirstToken(std::optional<Source> lowest, double seconds);

  // Everything in text exposition format 0.0.4. Cost: about 400 lines; the counters of one lookup
  // are seen all or none.
  std::string Scrape();

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
  // A reuse that came from a tier. Tokens that were still in the slot are not in it: a server
  // without tiers reuses those too, so nothing was saved.
  struct SavedRange {
    TokenRange tokens;
    double restore_seconds = 0;
  };

  void CountSaved(const LookupRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex_);
  void Credit(const SavedRange& saved) ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex_);
  void ApplySnapshot(const MetricsSnapshot& snapshot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(scrape_mutex_);

  const std::vector<EventSink*> forward_;
  const std::unique_ptr<MetricFamilies> families_;

  // Held over a whole scrape. Order: scrape_mutex_, then commit_mutex_.
  absl::Mutex scrape_mutex_;
  std::function<MetricsSnapshot()> snapshot_ ABSL_GUARDED_BY(scrape_mutex_);
  std::array<std::uint64_t, 3> seen_read_bytes_ ABSL_GUARDED_BY(scrape_mutex_){};
  std::array<std::uint64_t, 3> seen_written_bytes_ ABSL_GUARDED_BY(scrape_mutex_){};

  // Makes the counters of one lookup move together.
  absl::Mutex commit_mutex_;
  PromptSpeed prompt_speed_ ABSL_GUARDED_BY(commit_mutex_);
  // Reuses from before the first speed was measured: after a restart everything may be restored
  // before anything is read. Bounded; what does not fit is not counted as saved.
  std::vector<SavedRange> uncredited_ ABSL_GUARDED_BY(commit_mutex_);
};

}  // namespace parkade
