#include "tiers/remote/remote_tier.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/time/clock.h"
#include "src/format/checksum.h"
#include "src/format/page_hash.h"
#include "tiers/remote/tier_impl.h"

namespace parkade {

absl::StatusOr<std::unique_ptr<SharedTier>> OpenRemoteTier(const RemoteTierOptions& options) {
  absl::StatusOr<std::unique_ptr<remote::Redis>> redis =
      remote::Redis::Create(options.url, options.redis);
  if (!redis.ok()) return redis.status();
  std::unique_ptr<SharedTier> tier =
      std::make_unique<remote::RemoteTier>(options, *std::move(redis));
  return tier;
}

namespace remote {
namespace {

constexpr std::uint64_t kRowCacheBytes = 24ull << 20;
constexpr std::size_t kMostPlaces = 200000;

}  // namespace

SharedRow RowCache::Find(const Digest128& row) {
  absl::MutexLock lock(&mu_);
  const auto found = entries_.find(row);
  if (found == entries_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found->second.place);
  return found->second.value;
}

void RowCache::Insert(const Digest128& row, SharedRow value) {
  std::uint64_t bytes = sizeof(Entry) + sizeof(RowValue) +
                        value->record.tokens.size() * sizeof(Token) +
                        value->extents.size() * (sizeof(StoredExtent) + sizeof(ExtentInfo));
  for (const std::string& header : value->headers) bytes += header.size();
  absl::MutexLock lock(&mu_);
  const auto [entry, added] = entries_.try_emplace(row);
  if (!added) return;
  recent_.push_front(row);
  entry->second = Entry{std::move(value), bytes, recent_.begin()};
  bytes_ += bytes;
  while (bytes_ > limit_bytes_ && recent_.size() > 1) {
    const auto oldest = entries_.find(recent_.back());
    bytes_ -= oldest->second.bytes;
    entries_.erase(oldest);
    recent_.pop_back();
  }
}

void RowCache::Erase(const Digest128& row) {
  absl::MutexLock lock(&mu_);
  const auto found = entries_.find(row);
  if (found == entries_.end()) return;
  bytes_ -= found->second.bytes;
  recent_.erase(found->second.place);
  entries_.erase(found);
}

RemoteTier::RemoteTier(const RemoteTierOptions& options, std::unique_ptr<Redis> redis)
    : options_(options),
      redis_(std::move(redis)),
      keys_(options.url.prefix),
      page_hash_key_(PageHashKey(options.key)),
      local_secret_(RandomDigest()),
      rows_(kRowCacheBytes) {}

TierUsage RemoteTier::usage() const {
  TierUsage usage;
  usage.budget_bytes = std::numeric_limits<std::uint64_t>::max();
  usage.written_bytes = written_bytes_;
  usage.read_bytes = read_bytes_;
  usage.buffer_bytes = kRowCacheBytes;
  const std::string reason = breaker_.reason();
  if (!reason.empty()) {
    usage.state = "down: " + reason;
    return usage;
  }
  absl::MutexLock lock(&mu_);
  if (absl::Now() < full_until_) usage.state = "read_only: " + full_reason_;
  return usage;
}

absl::Status RemoteTier::Noted(absl::Status status) {
  breaker_.Note(status, absl::Now());
  return status;
}

absl::StatusOr<std::vector<Reply>> RemoteTier::Ask(absl::Span<const Command> commands,
                                                   absl::Time deadline) {
  if (!breaker_.closed()) return absl::UnavailableError(breaker_.reason());
  absl::StatusOr<std::vector<Reply>> replies = redis_->Run(commands, deadline);
  if (!replies.ok()) return Noted(replies.status());
  breaker_.Note(absl::OkStatus(), absl::Now());
  return replies;
}

bool RemoteTier::AdoptSecret(const Reply& reply) {
  if (options_.key != nullptr) return false;
  Digest128 stored;
  if (reply.kind == Reply::Kind::kBytes) {
    // Not ours to repair: whoever wrote something else there has made the prefix useless.
    stored = DigestFromHex(reply.bytes).value_or(Digest128());
  }
  absl::MutexLock lock(&mu_);
  if (stored == secret_) return false;
  secret_ = stored;
  places_.clear();
  return true;
}

absl::StatusOr<Digest128> RemoteTier::Secret(bool make, absl::Time deadline) {
  if (options_.key != nullptr) return options_.key->id();
  {
    absl::MutexLock lock(&mu_);
    if (!secret_.IsZero()) return secret_;
  }
  const std::string name = keys_.Secret();
  const std::string proposed = ToHex(RandomDigest());
  std::vector<Command> commands;
  if (make) commands.push_back({{"SET", name, proposed, "NX"}, name});
  commands.push_back({{"GET", name}, name});
  absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
  if (!replies.ok()) return replies.status();
  AdoptSecret(replies->back());
  absl::MutexLock lock(&mu_);
  return secret_;
}

std::vector<std::uint64_t> RemoteTier::PageHashes(const Digest128& secret,
                                                  const Digest128& identity,
                                                  absl::Span<const Token> tokens) const {
  std::vector<std::uint64_t> hashes(tokens.size() / kPageTokens);
  PageHasher hasher(secret, identity, page_hash_key_);
  for (std::size_t page = 0; page < hashes.size(); ++page) {
    hashes[page] = hasher.Next(tokens.data() + page * kPageTokens);
  }
  return hashes;
}

std::optional<RemoteTier::Place> RemoteTier::PlaceOf(const ParkKey& key) {
  absl::MutexLock lock(&mu_);
  const auto found = places_.find(key);
  if (found == places_.end()) return std::nullopt;
  found->second.used = ++last_use_;
  return found->second;
}

void RemoteTier::SetPlace(const ParkKey& key, Place place) {
  absl::MutexLock lock(&mu_);
  place.used = ++last_use_;
  places_[key] = place;
  if (places_.size() <= kMostPlaces) return;
  // A quarter at once, so that this costs little on the way: what is forgotten is found again.
  const std::uint64_t oldest = last_use_ - kMostPlaces * 3 / 4;
  std::erase_if(places_, [oldest](const auto& item) { return item.second.used < oldest; });
}

void RemoteTier::ErasePlace(const ParkKey& key) {
  absl::MutexLock lock(&mu_);
  places_.erase(key);
}

// A probe in the background closes the breaker.
void RemoteTier::Tick() {
  const absl::Time now = absl::Now();
  if (!breaker_.ProbeDue(now)) return;
  const Command ping{{"PING"}, ""};
  const absl::Status answered =
      redis_->Run(absl::MakeConstSpan(&ping, 1), now + options_.deadline).status();
  breaker_.Note(answered, absl::Now());
}

}  // namespace remote
}  // namespace parkade
