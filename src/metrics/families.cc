#include "src/metrics/families.h"

#include <algorithm>

#include "prometheus/text_serializer.h"

namespace parkade {
namespace {

using prometheus::Histogram;
using prometheus::Labels;

constexpr std::array<TierKind, kTierKinds> kTiers = {TierKind::kRam, TierKind::kDisk,
                                                     TierKind::kRemote};

// 0.1 ms, a lookup, to 300 s, a restore of hundreds of thousands of tokens.
const Histogram::BucketBoundaries& SecondsBuckets() {
  static const auto& buckets = *new Histogram::BucketBoundaries{
      0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
      0.25,   0.5,     1,      2.5,   5,      10,    30,   60,    120,  300};
  return buckets;
}

Labels TierLabel(TierKind tier) { return {{"tier", std::string(TierName(tier))}}; }

Labels TierReasonLabels(TierKind tier, std::string_view reason) {
  return {{"tier", std::string(TierName(tier))}, {"reason", std::string(reason)}};
}

Labels BuildLabels(const BuildInfo& build) {
  return {{"version", build.version},
          {"llama_cpp", build.llama_cpp},
          {"rocksdb", build.rocksdb},
          {"model", build.model}};
}

}  // namespace

std::size_t TierErrorKind(std::string_view what) {
  const std::string_view word = what.substr(0, what.find_first_of(" :"));
  const auto kind = std::find(kTierErrorKinds.begin(), kTierErrorKinds.end(), word);
  if (kind == kTierErrorKinds.end()) return kTierErrorKinds.size() - 1;
  return static_cast<std::size_t>(kind - kTierErrorKinds.begin());
}

prometheus::Family<prometheus::Counter>& MetricFamilies::CounterFamily(const char* name,
                                                                       const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
}

prometheus::Family<prometheus::Gauge>& MetricFamilies::GaugeFamily(const char* name,
                                                                   const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry_);
}

prometheus::Family<prometheus::Histogram>& MetricFamilies::HistogramFamily(const char* name,
                                                                           const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_);
}

MetricFamilies::MetricFamilies(const BuildInfo& build) : build_(build) {
  AddLookupMetrics();
  AddTierMetrics();
  AddStageAndStateMetrics();
  build_info_ = &GaugeFamily("parkade_build_info", "Always 1; what runs here.");
  build_gauge_ = &build_info_->Add(BuildLabels(build));
  build_gauge_->Set(1);
}

void MetricFamilies::AddLookupMetrics() {
  lookup_tokens =
      &CounterFamily("parkade_lookup_tokens_total", "Prompt tokens that were looked up.").Add({});
  auto& lookup_family =
      CounterFamily("parkade_lookups_total", "Lookups by what the engine could reuse.");
  for (int i = 0; i < 3; ++i) {
    lookups[i] = &lookup_family.Add(
        {{"outcome", std::string(LookupOutcomeName(static_cast<LookupOutcome>(i)))}});
  }
  saved_seconds = &CounterFamily("parkade_saved_seconds_total",
                                 "Prompt reading time that tokens reused from a tier saved, at the "
                                 "measured speed, less the restore.")
                       .Add({});
  auto& hit_family =
      CounterFamily("parkade_hit_tokens_total", "Prompt tokens reused, by where they came from.");
  for (int i = 0; i < kSources; ++i) {
    hit_tokens[i] = &hit_family.Add({{"tier", std::string(SourceName(static_cast<Source>(i)))}});
  }
  auto& miss_family =
      CounterFamily("parkade_miss_tokens_total", "Prompt tokens that were computed, by reason.");
  for (int i = 0; i < kMissReasons; ++i) {
    miss_tokens[i] =
        &miss_family.Add({{"reason", std::string(MissReasonName(static_cast<MissReason>(i)))}});
  }
  lookup_seconds =
      &HistogramFamily("parkade_lookup_seconds", "Index search and comparison of tokens.")
           .Add({}, SecondsBuckets());
  auto& first_token_family =
      HistogramFamily("parkade_time_to_first_token_seconds",
                      "From a request's arrival to its first token, by lowest tier used.");
  for (int i = 0; i <= kSources; ++i) {
    const std::string tier =
        i == kSources ? "none" : std::string(SourceName(static_cast<Source>(i)));
    first_token_seconds[i] = &first_token_family.Add({{"tier", tier}}, SecondsBuckets());
  }
}

void MetricFamilies::AddTierMetrics() {
  auto& restore_family = HistogramFamily("parkade_restore_seconds",
                                         "One restore, first read to last import, by tier.");
  auto& spill_family = HistogramFamily("parkade_spill_seconds", "One park stored in a tier.");
  auto& read_family = CounterFamily("parkade_read_bytes_total", "Bytes a tier has read.");
  auto& written_family = CounterFamily("parkade_written_bytes_total", "Bytes a tier has written.");
  auto& eviction_family = CounterFamily("parkade_evictions_total", "Parks removed from a tier.");
  auto& evicted_family =
      CounterFamily("parkade_evicted_bytes_total", "Payload bytes removed from a tier.");
  auto& corrupt_family = CounterFamily("parkade_corrupt_total", "Extents found damaged.");
  auto& error_family = CounterFamily("parkade_tier_errors_total", "Failed operations of a tier.");
  for (int i = 0; i < kTierKinds; ++i) {
    const Labels tier = TierLabel(kTiers[i]);
    restore_seconds[i] = &restore_family.Add(tier, SecondsBuckets());
    spill_seconds[i] = &spill_family.Add(tier, SecondsBuckets());
    read_bytes[i] = &read_family.Add(tier);
    written_bytes[i] = &written_family.Add(tier);
    corrupt[i] = &corrupt_family.Add(tier);
    for (int reason = 0; reason < kEvictReasons; ++reason) {
      const Labels labels =
          TierReasonLabels(kTiers[i], EvictReasonName(static_cast<EvictReason>(reason)));
      evictions[i][reason] = &eviction_family.Add(labels);
      evicted_bytes[i][reason] = &evicted_family.Add(labels);
    }
    for (std::size_t kind = 0; kind < kTierErrorKinds.size(); ++kind) {
      Labels labels = tier;
      labels["kind"] = std::string(kTierErrorKinds[kind]);
      tier_errors[i][kind] = &error_family.Add(labels);
    }
  }
}

void MetricFamilies::AddStageAndStateMetrics() {
  park_seconds = &HistogramFamily("parkade_park_seconds",
                                  "Time that capturing a park took on the serving thread.")
                      .Add({}, SecondsBuckets());
  auto& skip_family = CounterFamily("parkade_skipped_parks_total", "Parks that were not taken.");
  for (int i = 0; i < kSkipReasons; ++i) {
    skipped_parks[i] =
        &skip_family.Add({{"reason", std::string(SkipReasonName(static_cast<SkipReason>(i)))}});
  }
  stage_restored_bytes_ =
      &CounterFamily("parkade_stage_restored_bytes_total", "Bytes imported into a stage.");
  stage_limited_ = &CounterFamily("parkade_stage_limited_total",
                                  "Restores whose reuse ended early because of this stage.");
  StageOf(0);
  spill_queue_bytes =
      &GaugeFamily("parkade_spill_queue_bytes", "Captured bytes that no durable tier has yet.")
           .Add({});
  used_bytes_ = &GaugeFamily("parkade_used_bytes", "Bytes that count against the budget.");
  budget_bytes_ = &GaugeFamily("parkade_budget_bytes", "The budget in force now.");
  free_bytes_ = &GaugeFamily("parkade_free_bytes", "Free bytes on the tier's medium.");
  physical_bytes_ = &GaugeFamily("parkade_physical_bytes",
                                 "Blocks on the medium; 0 where the word means nothing.");
  pinned_bytes_ = &GaugeFamily("parkade_pinned_bytes", "Bytes of pinned conversations.");
  conversations_ = &GaugeFamily("parkade_conversations", "Conversations that a tier holds.");
  up_ = &GaugeFamily("parkade_tier_up", "1: reads and writes; 0: read-only or down.");
}

MetricFamilies::TierGauges MetricFamilies::GaugesOf(TierKind tier) {
  const Labels labels = TierLabel(tier);
  return {&pinned_bytes_->Add(labels), &conversations_->Add(labels), &up_->Add(labels)};
}

MetricFamilies::SpaceGauges MetricFamilies::SpaceOf(TierKind tier) {
  const Labels labels = TierLabel(tier);
  return {&used_bytes_->Add(labels), &budget_bytes_->Add(labels), &free_bytes_->Add(labels),
          &physical_bytes_->Add(labels)};
}

MetricFamilies::StageCounters MetricFamilies::StageOf(std::uint16_t stage) {
  const Labels labels = {{"stage", std::to_string(stage)}};
  return {&stage_restored_bytes_->Add(labels), &stage_limited_->Add(labels)};
}

void MetricFamilies::SetModel(std::string_view model) {
  absl::MutexLock lock(&build_mutex_);
  if (build_.model == model) return;
  build_.model = std::string(model);
  build_info_->Remove(build_gauge_);
  build_gauge_ = &build_info_->Add(BuildLabels(build_));
  build_gauge_->Set(1);
}

std::string MetricFamilies::Serialize() const {
  return prometheus::TextSerializer().prometheus::Serializer::Serialize(registry_.Collect());
}

}  // namespace parkade
