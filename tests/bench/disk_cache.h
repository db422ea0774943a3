// A cache over one disk tier, as the program composes it, with what benchmarks ask it to count.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "parkade/conversation_cache.h"
#include "src/engine/fake/fake_engine.h"
#include "src/format/sealing.h"
#include "tests/bench/observed_tier.h"

namespace parkade::bench {

// Counts parks and keeps the first thing that went wrong: a figure from a run that lost something
// would be worth nothing. Thread safe.
class CountingSink : public EventSink {
 public:
  void OnPark(const ParkEvent& event) override;
  void OnLookup(const LookupRecord& record) override;
  void OnSkippedPark(SkipReason reason, std::uint32_t tokens) override;
  void OnEvict(TierKind tier, EvictReason reason, std::uint64_t bytes) override;
  void OnCorrupt(TierKind tier) override;
  void OnTierError(TierKind tier, std::string_view what) override;

  std::uint64_t parked_bytes() const;
  std::uint64_t parks() const;
  std::uint64_t evicted_bytes() const;
  LookupRecord last_lookup() const;
  absl::Status status() const;

 private:
  void Fail(std::string what);

  mutable absl::Mutex mu_;
  std::uint64_t parked_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t parks_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t evicted_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  LookupRecord last_lookup_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

struct DiskCacheOptions {
  std::string directory;
  std::uint64_t budget_bytes = 0;  // of the disk tier
  // As CacheOptions::min_gain_tokens.
  std::uint32_t min_gain_tokens = 64;
  // As CacheOptions::index_bytes; 0: what a cache without a RAM tier may hold.
  std::uint64_t index_bytes = 0;
  SharedSealKey key = nullptr;  // not null: the directory is encrypted
};

class DiskCache {
 public:
  static absl::StatusOr<std::unique_ptr<DiskCache>> Open(const DiskCacheOptions& options);

  ConversationCache& cache() { return *cache_; }
  const CountingSink& sink() const { return sink_; }
  const TierTimes& times() const { return *times_; }
  // Raw bytes of all parks that a catalogue row names.
  absl::StatusOr<std::uint64_t> LiveBytes();

  // Parks all tokens of the engine, going on as buffers become free, and returns when everything
  // is durable.
  absl::Status ParkDurably(FakeEngine& engine);

  // Restores all of `tokens` into the engine; returns the seconds from the lookup to the last row
  // in the engine's memory. An error unless every token came back.
  absl::StatusOr<double> TimeRestore(FakeEngine& engine, const Digest128& identity,
                                     const std::vector<Token>& tokens);

 private:
  DiskCache() = default;

  CountingSink sink_;
  std::shared_ptr<TierTimes> times_ = std::make_shared<TierTimes>();
  Tier* disk_ = nullptr;  // the cache owns it
  std::unique_ptr<ConversationCache> cache_;
};

std::vector<Token> RandomTokens(std::size_t count, std::uint64_t seed);
// The same for a real model: none of the tokens that have a meaning of their own.
std::vector<Token> RandomText(std::size_t count, std::uint64_t seed);

// The identity's digest, known to the cache afterwards.
absl::StatusOr<Digest128> Register(ConversationCache& cache, const FakeEngine& engine);

// Bytes of one token in all planes of a row group.
std::uint64_t TokenBytes(const StateLayout& layout, RowGroup group);

}  // namespace parkade::bench
