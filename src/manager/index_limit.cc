// Index and catalogue have a bound. Beyond it the oldest leaves are not found any more; they stay
// listed, stored and evictable, since what is on a disk may be far more than fits here. What only a
// shared tier holds goes altogether: it is asked for there whenever a prompt comes.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/manager/cache_impl.h"

namespace parkade {
namespace {

// Conversations looked at while the lock is held once.
constexpr std::size_t kPiece = 512;
// Trimmed to so much less than the limit that it is not done again for every park.
constexpr std::uint64_t kSlackShare = 16;
// Where the list of conversations alone is nearly the limit or more, the newest keep at least this
// share of it: a cache that finds nothing would be of no use at all.
constexpr std::uint64_t kLeastShare = 10;
constexpr absl::Duration kLogEvery = absl::Minutes(10);

// Of one that may be unindexed: all of it is in these tiers and nowhere else, and no person said
// anything of it.
bool IsHeldBy(std::uint8_t tiers, const Conversation& conversation) {
  const ConversationAttributes& said = conversation.attributes;
  return conversation.children.empty() && !said.pinned && said.name.empty() &&
         !conversation.forgotten &&
         std::all_of(conversation.parks.begin(), conversation.parks.end(),
                     [tiers](const ParkState& park) { return park.tiers == tiers; });
}

}  // namespace

std::uint64_t CacheImpl::IndexLimit() const {
  if (options_.index_bytes > 0) return options_.index_bytes;
  const std::uint64_t all = std::max(ram_tier_ >= 0 ? ram_budget_bytes_ : 0, kFixedBytes);
  return std::max(kLeastIndexBytes, all - std::min(all, buffer_bytes_));
}

bool CacheImpl::MayUnindex(const Conversation& conversation, std::int64_t last_used_unix_ms) const {
  if (!conversation.indexed || conversation.attributes.last_used_unix_ms != last_used_unix_ms) {
    return false;
  }
  for (const ParkState& park : conversation.parks) {
    if (park.pins > 0 || park.pending != nullptr) return false;
  }
  // A fork whose parent is not found is not found either.
  return std::none_of(conversation.children.begin(), conversation.children.end(),
                      [this](Handle child) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                        return catalogue_.Get(child)->indexed;
                      });
}

void CacheImpl::TrimIndex() {
  std::uint64_t limit = 0;
  std::uint64_t least = 0;
  {
    absl::MutexLock lock(&mu_);
    limit = IndexLimit();
    if (catalogue_.memory_bytes() <= std::max(limit, index_stuck_bytes_)) return;
    least = limit / kLeastShare;
    limit -= limit / kSlackShare;
  }
  const Snapshot snapshot = TakeSnapshot(0, true);
  const std::vector<std::uint32_t> ranks = EvictionRanks(snapshot.candidates);
  std::vector<std::uint32_t> order(ranks.size());
  for (std::uint32_t i = 0; i < ranks.size(); ++i) order[ranks[i]] = i;
  const std::uint8_t only_shared =
      shared_tier_ < 0 ? 0 : Bit(static_cast<std::size_t>(shared_tier_));
  std::vector<ParkKey> left_to_others;
  bool done = false;
  for (std::size_t at = 0; at < order.size() && !done;) {
    if (at > 0) LetOthersIn();
    absl::MutexLock lock(&mu_);
    for (const std::size_t end = std::min(order.size(), at + kPiece); at < end; ++at) {
      const Handle handle = catalogue_.FindId(snapshot.ids[order[at]]);
      if (handle == kNoHandle) continue;
      const std::int64_t last_used = snapshot.candidates[order[at]].last_used_unix_ms;
      if (!MayUnindex(*catalogue_.Get(handle), last_used)) continue;
      if (only_shared != 0 && IsHeldBy(only_shared, *catalogue_.Get(handle))) {
        for (const Removal& removal : catalogue_.CutAt(handle, 0)) {
          left_to_others.push_back(removal.key);
          tokens_.Erase(removal.key);
        }
      } else {
        catalogue_.Unindex(handle);
      }
      done = catalogue_.memory_bytes() <= limit || catalogue_.page_bytes() <= least;
      if (done) break;
    }
  }
  // swallow: it only forgets where they stand.
  if (!left_to_others.empty()) (void)Shared()->Remove(left_to_others);
  std::string line;
  {
    absl::MutexLock lock(&mu_);
    // All that may go has gone, and the rest lists the conversations: not tried for every park.
    const std::uint64_t left = catalogue_.memory_bytes();
    index_stuck_bytes_ = left <= limit ? 0 : left + limit / kSlackShare;
    const std::uint32_t unindexed = catalogue_.unindexed();
    if (unindexed <= unindexed_logged_ || absl::Now() - index_log_time_ < kLogEvery) return;
    unindexed_logged_ = unindexed;
    index_log_time_ = absl::Now();
    line = "the index is full (" + std::to_string(IndexLimit() >> 10) +
           " KiB): " + std::to_string(unindexed) + " of " + std::to_string(catalogue_.size()) +
           " conversations, the oldest, are stored but not found";
  }
  sink_->Log(LogLevel::kWarning, line);
}

}  // namespace parkade
