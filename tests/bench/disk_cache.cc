#include "tests/bench/disk_cache.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/bench/measure.h"
#include "tiers/disk/disk_tier.h"

namespace parkade::bench {
namespace {

// As the server's loop does: a slice of import, then other work.
constexpr std::int64_t kSliceUs = 5000;
constexpr std::int64_t kWaitMs = 10000;
constexpr std::int64_t kDrainMs = 600000;
constexpr Token kFirstOrdinaryToken = 1000;
constexpr std::uint64_t kMinFreeBytes = 256ull << 20;

}  // namespace

void CountingSink::OnPark(const ParkEvent& event) {
  absl::MutexLock lock(&mu_);
  parked_bytes_ += event.payload_bytes;
  ++parks_;
}

void CountingSink::OnLookup(const LookupRecord& record) {
  absl::MutexLock lock(&mu_);
  last_lookup_ = record;
}

void CountingSink::OnSkippedPark(SkipReason reason, std::uint32_t tokens) {
  const std::string_view name = SkipReasonName(reason);
  Fail(absl::StrCat(tokens, " tokens were not parked: ", std::string(name)));
}

void CountingSink::OnEvict(TierKind tier, EvictReason reason, std::uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  evicted_bytes_ += bytes;
}

void CountingSink::OnCorrupt(TierKind tier) { Fail("a park was corrupt"); }

void CountingSink::OnTierError(TierKind tier, std::string_view what) { Fail(std::string(what)); }

void CountingSink::Fail(std::string what) {
  absl::MutexLock lock(&mu_);
  status_.Update(absl::InternalError(what));
}

std::uint64_t CountingSink::parked_bytes() const {
  absl::MutexLock lock(&mu_);
  return parked_bytes_;
}

std::uint64_t CountingSink::parks() const {
  absl::MutexLock lock(&mu_);
  return parks_;
}

std::uint64_t CountingSink::evicted_bytes() const {
  absl::MutexLock lock(&mu_);
  return evicted_bytes_;
}

LookupRecord CountingSink::last_lookup() const {
  absl::MutexLock lock(&mu_);
  return last_lookup_;
}

absl::Status CountingSink::status() const {
  absl::MutexLock lock(&mu_);
  return status_;
}

absl::StatusOr<std::unique_ptr<DiskCache>> DiskCache::Open(const DiskCacheOptions& options) {
  DiskTierOptions disk;
  disk.directory = options.directory;
  disk.budget_bytes = options.budget_bytes;
  disk.min_free_bytes = kMinFreeBytes;
  disk.key = options.key;
  absl::StatusOr<std::unique_ptr<Tier>> tier = OpenDiskTier(disk);
  if (!tier.ok()) return tier.status();
  std::unique_ptr<DiskCache> result(new DiskCache());
  result->disk_ = tier->get();
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(std::make_unique<ObservedTier>(*std::move(tier), result->times_));
  CacheOptions cache;
  cache.ram_budget_bytes = 0;
  cache.min_gain_tokens = options.min_gain_tokens;
  cache.index_bytes = options.index_bytes;
  absl::StatusOr<std::unique_ptr<ConversationCache>> opened =
      ConversationCache::Open(cache, std::move(tiers), &result->sink_);
  if (!opened.ok()) return opened.status();
  result->cache_ = *std::move(opened);
  return result;
}

absl::StatusOr<std::uint64_t> DiskCache::LiveBytes() {
  std::uint64_t bytes = 0;
  const absl::Status listed =
      disk_->Enumerate([&bytes](const ParkSummary& summary) { bytes += summary.payload_bytes; });
  if (!listed.ok()) return listed;
  return bytes;
}

absl::Status DiskCache::ParkDurably(FakeEngine& engine) {
  ParkRequest request;
  request.identity = engine.identity().digest();
  request.tokens = engine.tokens();
  while (!cache_->Park(engine, request).complete) {
    if (!sink_.status().ok()) return sink_.status();
    absl::SleepFor(absl::Microseconds(200));
  }
  cache_->Drain(kDrainMs);
  return sink_.status();
}

absl::StatusOr<double> DiskCache::TimeRestore(FakeEngine& engine, const Digest128& identity,
                                              const std::vector<Token>& tokens) {
  LookupRequest request;
  request.identity = identity;
  request.tokens = tokens;
  request.tokens.push_back(0);  // what the user says next
  request.cacheable_tokens = static_cast<std::uint32_t>(request.tokens.size());
  const double begin = NowSeconds();
  std::unique_ptr<Restore> restore = cache_->Lookup(std::move(request));
  Restore::State state = Restore::State::kPlanning;
  while (true) {
    if (!restore->WaitReady(kWaitMs)) return absl::DeadlineExceededError("a restore stands still");
    state = restore->Step(engine, kSliceUs);
    if (state != Restore::State::kPlanning && state != Restore::State::kReading) break;
  }
  const double seconds = NowSeconds() - begin;
  const std::uint32_t restored = restore->restored_tokens();
  cache_->FinishLookup(std::move(restore), restored);
  if (!sink_.status().ok()) return sink_.status();
  if (state != Restore::State::kRestored || restored != tokens.size()) {
    const LookupRecord record = sink_.last_lookup();
    return absl::InternalError(absl::StrCat(restored, " of ", tokens.size(), " tokens restored, ",
                                            record.matched_tokens, " matched; ", record.detail));
  }
  return seconds;
}

std::vector<Token> RandomTokens(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % 50000);
  return tokens;
}

std::vector<Token> RandomText(std::size_t count, std::uint64_t seed) {
  std::vector<Token> tokens = RandomTokens(count, seed);
  for (Token& token : tokens) token += kFirstOrdinaryToken;
  return tokens;
}

absl::StatusOr<Digest128> Register(ConversationCache& cache, const FakeEngine& engine) {
  return cache.RegisterIdentity(engine.identity(), engine.layout());
}

std::uint64_t TokenBytes(const StateLayout& layout, RowGroup group) {
  std::uint64_t bytes = 0;
  for (const Plane& plane : layout.planes) {
    if (plane.group == group) bytes += plane.row_bytes;
  }
  return bytes;
}

}  // namespace parkade::bench
