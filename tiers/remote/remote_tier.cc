#include "tiers/remote/remote_tier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
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
constexpr std::size_t kMostRejected = 4096;
constexpr std::size_t kMostDiscarded = 4096;
// A lookup takes up to three answers, one after the other, within the deadline.
constexpr int kAnswersInTime = 3;
constexpr absl::Duration kLongestProbe = absl::Seconds(2);
constexpr absl::Duration kWriteProbeEvery = absl::Seconds(2);
constexpr std::string_view kKeyMark = "key:";

// What a store says that has no room, or takes no writes for another reason, until that is over.
bool IsRefusal(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return true;
  for (const absl::string_view code : {"OOM ", "MISCONF ", "READONLY ", "NOREPLICAS "}) {
    if (absl::StrContains(status.message(), code)) return true;
  }
  return false;
}

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
      rows_(kRowCacheBytes),
      packing_(options.codec) {}

TierUsage RemoteTier::usage() const {
  TierUsage usage;
  usage.budget_bytes = kNoBudgetBytes;
  usage.written_bytes = written_bytes_;
  usage.read_bytes = read_bytes_;
  usage.buffer_bytes = kRowCacheBytes;
  if (!breaker_.closed()) {
    usage.state = "down: " + breaker_.reason();
    return usage;
  }
  absl::MutexLock lock(&mu_);
  if (!refusal_.empty()) usage.state = "read_only: " + refusal_;
  return usage;
}

bool RemoteTier::writable() const {
  absl::MutexLock lock(&mu_);
  return refusal_.empty() && breaker_.closed();
}

absl::Status RemoteTier::Noted(absl::Status status) {
  breaker_.Note(status, absl::Now());
  return status;
}

absl::Status RemoteTier::NotedWrite(absl::Status status) {
  if (status.ok() || !IsRefusal(status)) return Noted(std::move(status));
  absl::MutexLock lock(&mu_);
  refusal_ = std::string(status.message());
  next_write_probe_ = absl::Now() + kWriteProbeEvery;
  return absl::ResourceExhaustedError(status.message());
}

absl::Status RemoteTier::Write(absl::Span<const Command> commands, absl::Time deadline) {
  if (commands.empty()) return absl::OkStatus();
  if (!breaker_.closed()) return absl::UnavailableError(breaker_.reason());
  const absl::StatusOr<std::vector<Reply>> replies = redis_->Run(commands, deadline);
  absl::Status status = replies.status();
  if (replies.ok()) {
    for (const Reply& reply : *replies) {
      if (reply.kind == Reply::Kind::kError) status.Update(absl::InternalError(reply.bytes));
    }
  }
  return NotedWrite(std::move(status));
}

absl::StatusOr<std::vector<Reply>> RemoteTier::Ask(absl::Span<const Command> commands,
                                                   absl::Time deadline) {
  if (!breaker_.closed()) return absl::UnavailableError(breaker_.reason());
  absl::StatusOr<std::vector<Reply>> replies = redis_->Run(commands, deadline);
  if (!replies.ok()) return Noted(replies.status());
  return replies;
}

std::string RemoteTier::OwnSecret() const {
  if (options_.key != nullptr) return std::string(kKeyMark) + ToHex(options_.key->id());
  absl::MutexLock lock(&mu_);
  return ToHex(secret_.IsZero() ? RandomDigest() : secret_);
}

absl::StatusOr<bool> RemoteTier::AdoptSecret(const Reply& reply) {
  if (IsForeign(reply)) Discard(keys_.Secret());
  // Dropped or wiped: what this machine knows is still right, and written there again.
  if (reply.kind != Reply::Kind::kBytes) return false;
  std::string_view text = reply.bytes;
  const bool sealed = text.substr(0, kKeyMark.size()) == kKeyMark;
  if (sealed) text.remove_prefix(kKeyMark.size());
  const std::optional<Digest128> stored = DigestFromHex(text);
  if (!stored.has_value()) {
    Discard(keys_.Secret());
    return false;
  }
  if (sealed != (options_.key != nullptr) || (sealed && !(*stored == options_.key->id()))) {
    return Noted(absl::PermissionDeniedError(
        sealed ? "what is stored under this prefix is encrypted with another key; give all servers "
                 "the same --conversation-cache-key-file, or this one another prefix"
               : "what is stored under this prefix is not encrypted; give all servers the same "
                 "--conversation-cache-key-file, or this one another prefix"));
  }
  if (sealed) return false;
  absl::MutexLock lock(&mu_);
  if (*stored == secret_) return false;
  const bool known = !secret_.IsZero();
  secret_ = *stored;
  places_.clear();
  return known;
}

absl::StatusOr<Digest128> RemoteTier::Secret(bool make, absl::Time deadline) {
  if (options_.key != nullptr) return options_.key->id();
  {
    absl::MutexLock lock(&mu_);
    if (!secret_.IsZero()) return secret_;
  }
  const std::string name = keys_.Secret();
  if (make) {
    const std::string own = OwnSecret();
    const Command set{{"SET", name, own, "NX"}, name};
    const absl::Status written = Write(absl::MakeConstSpan(&set, 1), deadline);
    if (!written.ok()) return written;
  }
  const Command get{{"GET", name}, name};
  const absl::StatusOr<std::vector<Reply>> replies = Ask(absl::MakeConstSpan(&get, 1), deadline);
  if (!replies.ok()) return replies.status();
  const absl::StatusOr<bool> adopted = AdoptSecret(replies->front());
  if (!adopted.ok()) return adopted.status();
  absl::MutexLock lock(&mu_);
  return secret_;
}

void RemoteTier::Discard(std::string name) {
  absl::MutexLock lock(&mu_);
  if (discarded_.size() < kMostDiscarded) discarded_.insert(std::move(name));
}

void RemoteTier::DiscardRow(const Digest128& row) {
  rows_.Erase(row);
  Discard(keys_.Row(row));
  absl::MutexLock lock(&mu_);
  if (!rejected_.insert(row).second) return;
  rejected_order_.push_back(row);
  if (rejected_order_.size() <= kMostRejected) return;
  rejected_.erase(rejected_order_.front());
  rejected_order_.pop_front();
}

bool RemoteTier::Rejected(const Digest128& row) const {
  absl::MutexLock lock(&mu_);
  return rejected_.contains(row);
}

void RemoteTier::Reject(const ParkKey& key) {
  const std::optional<Place> place = PlaceOf(key);
  if (place.has_value()) DiscardRow(place->row);
}

void RemoteTier::RemoveDiscarded() {
  std::set<std::string> names;
  {
    absl::MutexLock lock(&mu_);
    names.swap(discarded_);
  }
  std::vector<Command> commands;
  for (const std::string& name : names) commands.push_back({{"UNLINK", name}, name});
  // swallow: whoever reads it next finds the same damage and discards it again
  static_cast<void>(Write(commands, absl::Now() + options_.deadline));
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

bool RemoteTier::RenewalDue(const ParkKey& key) const {
  absl::MutexLock lock(&mu_);
  const auto found = places_.find(key);
  return found != places_.end() && absl::Now() - found->second.renewed > options_.ttl / kRenewals;
}

// A probe in the background closes the breaker. It asks what every lookup asks, twice: what the
// first one needs to connect says nothing about how long a lookup would take.
void RemoteTier::Tick() {
  const absl::Time now = absl::Now();
  const absl::Duration longest = std::min(options_.deadline, kLongestProbe);
  // Once before anybody else asks, so that the state is true from the beginning.
  if (breaker_.closed() && !greeted_.exchange(true)) breaker_.Note(AskSecret(longest), now);
  if (breaker_.closed()) {
    RemoveDiscarded();
    return ProbeWriting(now);
  }
  if (!breaker_.ProbeDue(now)) return;
  absl::Status answered;
  for (const absl::Duration limit : {longest, longest / kAnswersInTime}) {
    if (!answered.ok()) break;
    answered = AskSecret(limit);
  }
  breaker_.Probed(answered);
}

absl::Status RemoteTier::AskSecret(absl::Duration limit) {
  const std::string name = keys_.Secret();
  const Command get{{"GET", name}, name};
  const absl::StatusOr<std::vector<Reply>> replies =
      redis_->Run(absl::MakeConstSpan(&get, 1), absl::Now() + limit);
  return replies.ok() ? AdoptSecret(replies->front()).status() : replies.status();
}

// Whether writes are taken again is found out without waiting for something to store.
void RemoteTier::ProbeWriting(absl::Time now) {
  {
    absl::MutexLock lock(&mu_);
    if (refusal_.empty() || now < next_write_probe_) return;
  }
  const std::string name = keys_.WriteProbe();
  const Command set{{"SET", name, "1", "PX", "1000"}, name};
  if (!Write(absl::MakeConstSpan(&set, 1), now + options_.deadline).ok()) return;
  absl::MutexLock lock(&mu_);
  refusal_.clear();
}

}  // namespace remote
}  // namespace parkade
