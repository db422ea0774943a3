#include "src/metrics/metrics.h"

#include <algorithm>
#include <utility>

#include "src/metrics/families.h"

namespace parkade {
namespace {

constexpr std::size_t kMostUncredited = 1024;

int IndexOf(TierKind tier) { return static_cast<int>(tier); }

// `seen` is the tier's own count at the last scrape; it starts again at 0 when a tier is reopened.
void AddGrowth(prometheus::Counter& counter, std::uint64_t now, std::uint64_t& seen) {
  counter.Increment(static_cast<double>(now < seen ? now : now - seen));
  seen = now;
}

}  // namespace

Metrics::Metrics(const BuildInfo& build, std::vector<EventSink*> forward)
    : forward_(std::move(forward)), families_(std::make_unique<MetricFamilies>(build)) {}

Metrics::~Metrics() = default;

void Metrics::SetSnapshot(std::function<MetricsSnapshot()> snapshot) {
  absl::MutexLock lock(&scrape_mutex_);
  snapshot_ = std::move(snapshot);
}

void Metrics::SetModel(std::string_view model) { families_->SetModel(model); }

void Metrics::DeclareStages(int stages) {
  for (int i = 0; i < stages; ++i) families_->StageOf(static_cast<std::uint16_t>(i));
}

void Metrics::OnPromptRead(std::uint32_t first_token, std::uint32_t tokens, double seconds) {
  absl::MutexLock lock(&commit_mutex_);
  prompt_speed_.Add(first_token, tokens, seconds);
  if (uncredited_.empty() || !prompt_speed_.SecondsFor(uncredited_.front().tokens)) return;
  for (const SavedRange& saved : uncredited_) Credit(saved);
  uncredited_.clear();
}

void Metrics::OnFirstToken(std::optional<Source> lowest, double seconds) {
  const int index = lowest.has_value() ? static_cast<int>(*lowest) : kSources;
  families_->first_token_seconds[index]->Observe(seconds);
}

std::string Metrics::Scrape() {
  absl::MutexLock scrape_lock(&scrape_mutex_);
  if (snapshot_ != nullptr) ApplySnapshot(snapshot_());
  absl::MutexLock commit_lock(&commit_mutex_);
  return families_->Serialize();
}

void Metrics::ApplySnapshot(const MetricsSnapshot& snapshot) {
  for (const TierInfo& tier : snapshot.tiers) {
    const MetricFamilies::TierGauges gauges = families_->GaugesOf(tier.kind);
    gauges.pinned_bytes->Set(static_cast<double>(tier.pinned_bytes));
    gauges.conversations->Set(tier.conversations);
    gauges.up->Set(tier.usage.state == "up" ? 1 : 0);
    if (tier.usage.budget_bytes != kNoBudgetBytes) {
      const MetricFamilies::SpaceGauges space = families_->SpaceOf(tier.kind);
      space.used_bytes->Set(static_cast<double>(tier.usage.used_bytes));
      space.budget_bytes->Set(static_cast<double>(tier.usage.budget_bytes));
      space.free_bytes->Set(static_cast<double>(tier.usage.free_bytes));
      space.physical_bytes->Set(static_cast<double>(tier.usage.physical_bytes));
    }
    const int index = IndexOf(tier.kind);
    AddGrowth(*families_->read_bytes[index], tier.usage.read_bytes, seen_read_bytes_[index]);
    AddGrowth(*families_->written_bytes[index], tier.usage.written_bytes,
              seen_written_bytes_[index]);
  }
  families_->spill_queue_bytes->Set(static_cast<double>(snapshot.queue.spill_queue_bytes));
}

void Metrics::OnLookup(const LookupRecord& record) {
  {
    absl::MutexLock lock(&commit_mutex_);
    families_->lookup_tokens->Increment(record.prompt_tokens);
    families_->lookups[static_cast<int>(record.outcome)]->Increment();
    for (int i = 0; i < kSources; ++i) {
      families_->hit_tokens[i]->Increment(record.hit_tokens[i]);
    }
    for (int i = 0; i < kMissReasons; ++i) {
      families_->miss_tokens[i]->Increment(record.miss_tokens[i]);
    }
    families_->lookup_seconds->Observe(record.lookup_seconds);
    CountSaved(record);
  }
  for (EventSink* sink : forward_) sink->OnLookup(record);
}

void Metrics::CountSaved(const LookupRecord& record) {
  std::uint32_t from_tiers = 0;
  for (int i = 0; i < kSources; ++i) {
    if (static_cast<Source>(i) != Source::kSlot) from_tiers += record.hit_tokens[i];
  }
  if (from_tiers == 0) return;
  const std::uint32_t in_slot = record.hit_tokens[static_cast<int>(Source::kSlot)];
  const SavedRange saved{{in_slot, in_slot + from_tiers}, record.restore_seconds};
  if (prompt_speed_.SecondsFor(saved.tokens).has_value()) {
    Credit(saved);
  } else if (uncredited_.size() < kMostUncredited) {
    uncredited_.push_back(saved);
  }
}

void Metrics::Credit(const SavedRange& saved) {
  const double read_seconds = prompt_speed_.SecondsFor(saved.tokens).value_or(0);
  families_->saved_seconds->Increment(std::max(0.0, read_seconds - saved.restore_seconds));
}

void Metrics::OnPark(const ParkEvent& event) {
  families_->park_seconds->Observe(event.capture_seconds);
  for (EventSink* sink : forward_) sink->OnPark(event);
}

void Metrics::OnSpill(TierKind tier, std::uint64_t bytes, double seconds) {
  families_->spill_seconds[IndexOf(tier)]->Observe(seconds);
  for (EventSink* sink : forward_) sink->OnSpill(tier, bytes, seconds);
}

void Metrics::OnRestore(TierKind tier, std::uint64_t bytes, double seconds) {
  families_->restore_seconds[IndexOf(tier)]->Observe(seconds);
  for (EventSink* sink : forward_) sink->OnRestore(tier, bytes, seconds);
}

void Metrics::OnStageRestored(std::uint16_t stage, std::uint64_t bytes) {
  families_->StageOf(stage).restored_bytes->Increment(static_cast<double>(bytes));
  for (EventSink* sink : forward_) sink->OnStageRestored(stage, bytes);
}

void Metrics::OnStageLimited(std::uint16_t stage) {
  families_->StageOf(stage).limited->Increment();
  for (EventSink* sink : forward_) sink->OnStageLimited(stage);
}

void Metrics::OnSkippedPark(SkipReason reason, std::uint32_t tokens) {
  families_->skipped_parks[static_cast<int>(reason)]->Increment();
  for (EventSink* sink : forward_) sink->OnSkippedPark(reason, tokens);
}

void Metrics::OnEvict(TierKind tier, EvictReason reason, std::uint64_t bytes) {
  const int index = IndexOf(tier);
  families_->evictions[index][static_cast<int>(reason)]->Increment();
  families_->evicted_bytes[index][static_cast<int>(reason)]->Increment(static_cast<double>(bytes));
  for (EventSink* sink : forward_) sink->OnEvict(tier, reason, bytes);
}

void Metrics::OnCorrupt(TierKind tier) {
  families_->corrupt[IndexOf(tier)]->Increment();
  for (EventSink* sink : forward_) sink->OnCorrupt(tier);
}

void Metrics::OnTierError(TierKind tier, std::string_view what) {
  families_->tier_errors[IndexOf(tier)][TierErrorKind(what)]->Increment();
  for (EventSink* sink : forward_) sink->OnTierError(tier, what);
}

void Metrics::Log(LogLevel level, std::string_view line) {
  for (EventSink* sink : forward_) sink->Log(level, line);
}

}  // namespace parkade
