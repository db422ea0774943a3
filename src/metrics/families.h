// The Prometheus objects behind Metrics. Only src/metrics includes this.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "parkade/events.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "src/metrics/metrics.h"

namespace parkade {

inline constexpr int kTierKinds = 3;

// Kinds of tier errors: the first word of what OnTierError is told; any other word is `other`.
// A fixed list, because a label must not grow with the texts of errors.
inline constexpr std::array<std::string_view, 5> kTierErrorKinds = {"read", "write", "remove",
                                                                    "catalogue", "other"};
std::size_t TierErrorKind(std::string_view what);

// Registers every family and every label value that is known in advance. The pointers live as long
// as this object and are thread safe as Prometheus' objects are; GaugesOf, SetBuild and StageOf
// too.
class MetricFamilies {
 public:
  explicit MetricFamilies(const BuildInfo& build);

  using Counter = prometheus::Counter;
  using Gauge = prometheus::Gauge;
  using Histogram = prometheus::Histogram;

  struct TierGauges {
    Gauge* pinned_bytes;
    Gauge* conversations;
    Gauge* up;
  };
  // Of a tier that has a budget.
  struct SpaceGauges {
    Gauge* used_bytes;
    Gauge* budget_bytes;
    Gauge* free_bytes;
    Gauge* physical_bytes;
  };
  struct StageCounters {
    Counter* restored_bytes;
    Counter* limited;
  };

  TierGauges GaugesOf(TierKind tier);
  SpaceGauges SpaceOf(TierKind tier);
  StageCounters StageOf(std::uint16_t stage);
  // Replaces the one series of parkade_build_info.
  void SetModel(std::string_view model);
  std::string Serialize() const;

  Counter* lookup_tokens;
  std::array<Counter*, 3> lookups;  // by LookupOutcome
  Counter* saved_seconds;
  std::array<Counter*, kSources> hit_tokens;
  std::array<Counter*, kMissReasons> miss_tokens;
  Histogram* lookup_seconds;
  Histogram* park_seconds;
  std::array<Histogram*, kTierKinds> restore_seconds;
  std::array<Histogram*, kTierKinds> spill_seconds;
  std::array<Histogram*, kSources + 1> first_token_seconds;  // the last one is `none`
  std::array<Counter*, kTierKinds> read_bytes;
  std::array<Counter*, kTierKinds> written_bytes;
  std::array<std::array<Counter*, kEvictReasons>, kTierKinds> evictions;
  std::array<std::array<Counter*, kEvictReasons>, kTierKinds> evicted_bytes;
  std::array<Counter*, kSkipReasons> skipped_parks;
  std::array<Counter*, kTierKinds> corrupt;
  std::array<std::array<Counter*, kTierErrorKinds.size()>, kTierKinds> tier_errors;
  Gauge* spill_queue_bytes;

 private:
  void AddLookupMetrics();
  void AddTierMetrics();
  void AddStageAndStateMetrics();

  prometheus::Family<Counter>& CounterFamily(const char* name, const char* help);
  prometheus::Family<Gauge>& GaugeFamily(const char* name, const char* help);
  prometheus::Family<Histogram>& HistogramFamily(const char* name, const char* help);

  prometheus::Registry registry_;
  prometheus::Family<Counter>* stage_restored_bytes_;
  prometheus::Family<Counter>* stage_limited_;
  prometheus::Family<Gauge>* used_bytes_;
  prometheus::Family<Gauge>* budget_bytes_;
  prometheus::Family<Gauge>* free_bytes_;
  prometheus::Family<Gauge>* physical_bytes_;
  prometheus::Family<Gauge>* pinned_bytes_;
  prometheus::Family<Gauge>* conversations_;
  prometheus::Family<Gauge>* up_;
  prometheus::Family<Gauge>* build_info_;

  absl::Mutex build_mutex_;
  BuildInfo build_ ABSL_GUARDED_BY(build_mutex_);
  Gauge* build_gauge_ ABSL_GUARDED_BY(build_mutex_);
};

}  // namespace parkade
