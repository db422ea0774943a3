// Conversations on their way to a shared tier: behind everything else, from the bytes that the
// local tiers hold. Only names of conversations wait, so however far it falls behind, no memory is
// held; what is gone from the local tiers by then is not published.

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "src/manager/cache_impl.h"

namespace parkade {
namespace {

constexpr std::size_t kMostToPublish = 4096;
constexpr std::size_t kMostToErase = 1024;
// A tier that can't be reached is asked again when it says that it can, and looked at so often.
constexpr absl::Duration kLookAgain = absl::Seconds(1);

}  // namespace

void CacheImpl::SubmitPublish(const ConversationId& id) {
  if (shared_tier_ < 0) return;
  bool dropped = false;
  {
    absl::MutexLock lock(&mu_);
    if (std::find(to_publish_.begin(), to_publish_.end(), id) != to_publish_.end()) return;
    to_publish_.push_back(id);
    dropped = to_publish_.size() > kMostToPublish;
    if (dropped) to_publish_.pop_front();
  }
  if (dropped) sink_->OnSkippedPark(SkipReason::kQueueFull, 0);
}

std::optional<PublishRequest> CacheImpl::WayOf(const ConversationId& id) {
  if (shared_tier_ < 0) return std::nullopt;
  PublishRequest way;
  std::vector<TokenSource> sources;
  {
    absl::MutexLock lock(&mu_);
    Handle handle = catalogue_.FindId(id);
    if (handle == kNoHandle) return std::nullopt;
    const Conversation* conversation = catalogue_.Get(handle);
    way.identity = conversation->identity;
    std::uint32_t reach = conversation->tip();
    for (const PathPark& step : catalogue_.Path(handle, reach)) {
      sources.push_back(TokenSourceOf(step));
    }
    while (handle != kNoHandle) {
      conversation = catalogue_.Get(handle);
      for (auto it = conversation->parks.rbegin(); it != conversation->parks.rend(); ++it) {
        if (it->count == 0 ? it->first > reach : it->first >= reach) continue;
        way.steps.push_back({ParkKey{conversation->id, it->park}, TokenRange{it->first, it->end()},
                             it->count == 0 ? it->first : std::min(it->end(), reach)});
      }
      reach = std::min(reach, conversation->parent_tokens);
      handle = conversation->parent;
    }
  }
  std::reverse(way.steps.begin(), way.steps.end());
  for (const TokenSource& source : sources) {
    const SharedTokens tokens = source.queued != nullptr
                                    ? source.queued
                                    : TokensOf(source.step.key, source.count, source.tiers);
    const TokenRange range = source.step.tokens;
    if (tokens == nullptr || tokens->size() < range.size() || range.begin != way.tokens.size()) {
      break;
    }
    way.tokens.insert(way.tokens.end(), tokens->begin(), tokens->begin() + range.size());
  }
  // Without their tokens nobody could find them.
  std::erase_if(way.steps,
                [&way](const PublishStep& step) { return step.end > way.tokens.size(); });
  if (way.tokens.empty()) return std::nullopt;
  return way;
}

absl::StatusOr<PublishPayload> CacheImpl::ReadForPublishing(const PublishStep& step) {
  const std::uint8_t shared = Bit(static_cast<std::size_t>(shared_tier_));
  std::uint8_t tiers = 0;
  Handle handle = kNoHandle;
  {
    absl::MutexLock lock(&mu_);
    if (publishing_stops_) return absl::CancelledError("the server ends");
    handle = catalogue_.FindId(step.key.conversation);
    const ParkState* park =
        handle == kNoHandle ? nullptr : catalogue_.Get(handle)->FindPark(step.key.park);
    if (park == nullptr) return absl::NotFoundError("the park is gone");
    tiers = park->tiers;
    if (tiers != shared) catalogue_.Pin(handle, step.key, 1);
  }
  if (tiers == shared) {
    // Asked for it, the shared tier no longer has what it alone had. What stands on it is of no use
    // to anybody either: it goes, and a chat that goes on is captured again from before it.
    const absl::Status lost = absl::NotFoundError("a park that only the shared tier had is lost");
    GiveUpCopy(static_cast<std::size_t>(shared_tier_), step.key, lost);
    return lost;
  }
  absl::StatusOr<PublishPayload> payload = absl::NotFoundError("no local tier holds the park");
  for (std::size_t tier = 0; tier < tiers_.size() && !payload.ok(); ++tier) {
    if ((tiers & Bit(tier)) == 0 || static_cast<int>(tier) == shared_tier_) continue;
    payload = ReadWhole(tier, step.key);
  }
  absl::MutexLock lock(&mu_);
  catalogue_.Pin(handle, step.key, -1);
  return payload;
}

absl::StatusOr<PublishPayload> CacheImpl::ReadWhole(std::size_t tier, const ParkKey& key) {
  absl::StatusOr<std::vector<ExtentInfo>> extents = tiers_[tier]->ReadExtents(key);
  if (!extents.ok()) return extents.status();
  PublishPayload payload;
  for (std::uint32_t i = 0; i < extents->size(); ++i) {
    absl::StatusOr<ExtentBytes> read = tiers_[tier]->ReadExtent(
        key, i, [this](std::size_t size) { return capture_pool_->AllocateUncharged(size); });
    if (!read.ok()) return read.status();
    if (absl::Status s = CheckExtent((*extents)[i], **read); !s.ok()) {
      GiveUpCopy(tier, key, s);
      return s;
    }
    payload.extents.push_back(*std::move(read));
  }
  absl::StatusOr<ParkRecord> record = RecordOf(key, *std::move(extents));
  if (!record.ok()) return record.status();
  payload.record = *std::move(record);
  return payload;
}

absl::Status CacheImpl::PublishOne(const ConversationId& id) {
  std::optional<PublishRequest> way = WayOf(id);
  if (!way.has_value()) return absl::OkStatus();
  way->read = [this](const PublishStep& step) { return ReadForPublishing(step); };
  const auto tier = static_cast<std::size_t>(shared_tier_);
  PublishOutcome outcome;
  const absl::Time begin = absl::Now();
  const absl::Status published = Shared()->Publish(*way, &outcome);
  NotePublished(outcome.bound);
  if (outcome.written_bytes > 0) {
    sink_->OnSpill(tiers_[tier]->kind(), outcome.written_bytes,
                   absl::ToDoubleSeconds(absl::Now() - begin));
  }
  // What went from the local tiers meanwhile is no fault of the shared one.
  if (absl::IsNotFound(published)) return absl::OkStatus();
  // Nor is it that this server ends.
  if (!published.ok() && !absl::IsCancelled(published)) {
    ReportTierError(tier, "write", published);
  }
  return published;
}

// Of what was deleted meanwhile the tier keeps in mind where it stands: it is erased once more.
void CacheImpl::NotePublished(const std::vector<ParkKey>& keys) {
  absl::MutexLock lock(&mu_);
  for (const ParkKey& key : keys) {
    const Handle handle = catalogue_.FindId(key.conversation);
    ParkState* park = handle == kNoHandle ? nullptr : catalogue_.Get(handle)->FindPark(key.park);
    if (park == nullptr) continue;
    catalogue_.AddTiers(handle, park, Bit(static_cast<std::size_t>(shared_tier_)));
  }
}

bool CacheImpl::EraseOne() {
  std::pair<ConversationId, PublishRequest> next;
  {
    absl::MutexLock lock(&mu_);
    if (to_erase_.empty()) return true;
    next = to_erase_.front();
  }
  const absl::Status erased =
      Shared()->Erase(next.first, next.second.identity, next.second.tokens, next.second.steps);
  if (!erased.ok()) {
    ReportTierError(static_cast<std::size_t>(shared_tier_), "remove", erased);
    return false;
  }
  absl::MutexLock lock(&mu_);
  std::erase_if(to_erase_, [&next](const auto& item) { return item.first == next.first; });
  return true;
}

// At once where that is possible: who deletes a conversation wants to see it gone.
void CacheImpl::EraseShared(const ConversationId& id, PublishRequest way) {
  bool again = false;
  {
    absl::MutexLock lock(&mu_);
    std::erase(to_publish_, id);
    // A park of it may just be on its way there, and come after its tombstone.
    again = publishing_;
    to_erase_.emplace_back(id, way);
    if (to_erase_.size() > kMostToErase) to_erase_.pop_front();
  }
  if (Shared()->reachable() && EraseOne()) {
    absl::MutexLock lock(&mu_);
    if (again) to_erase_.emplace_back(id, std::move(way));
    return;
  }
  sink_->Log(LogLevel::kWarning,
             "a deleted conversation is not gone from the remote tier yet; tried again while this "
             "server runs");
}

void CacheImpl::RenewShared(const ConversationId& id) {
  if (shared_tier_ < 0 || id.IsZero()) return;
  std::optional<ParkKey> last;
  {
    absl::MutexLock lock(&mu_);
    const Handle handle = catalogue_.FindId(id);
    if (handle == kNoHandle) return;
    const std::vector<ParkState>& parks = catalogue_.Get(handle)->parks;
    const std::uint8_t shared = Bit(static_cast<std::size_t>(shared_tier_));
    const auto held =
        std::find_if(parks.rbegin(), parks.rend(),
                     [shared](const ParkState& park) { return (park.tiers & shared) != 0; });
    if (held != parks.rend()) last = ParkKey{id, held->park};
  }
  if (last.has_value() && Shared()->RenewalDue(*last)) SubmitPublish(id);
}

void CacheImpl::PublishLoop() {
  while (true) {
    ConversationId id;
    bool erase = false;
    Shared()->Tick();
    {
      absl::MutexLock lock(&mu_);
      auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return publishing_stops_ || CanPublish() || CanErase();
      };
      // Whether it can be reached again nobody tells: it is looked at.
      mu_.AwaitWithTimeout(absl::Condition(&work), kLookAgain);
      if (publishing_stops_) return;
      // Asked once: the tier may change its mind at any time.
      erase = CanErase();
      if (!erase && !CanPublish()) continue;
      if (!erase) {
        id = to_publish_.front();
        to_publish_.pop_front();
      }
      publishing_ = true;
    }
    absl::Status done;
    if (erase) {
      if (!EraseOne()) done = absl::UnavailableError("not erased");
    } else {
      done = PublishOne(id);
    }
    absl::MutexLock lock(&mu_);
    publishing_ = false;
    if (done.ok()) continue;
    publish_again_ = absl::Now() + kLookAgain;
    const bool queued = std::find(to_publish_.begin(), to_publish_.end(), id) != to_publish_.end();
    const bool later = absl::IsUnavailable(done) || absl::IsDeadlineExceeded(done) ||
                       absl::IsResourceExhausted(done) || absl::IsAborted(done) ||
                       absl::IsPermissionDenied(done);
    if (!erase && later && !queued) to_publish_.push_front(id);
  }
}

bool CacheImpl::CanPublish() const {
  return !to_publish_.empty() && absl::Now() >= publish_again_ && Shared()->writable();
}

// Also where nothing can be written: deleting makes room.
bool CacheImpl::CanErase() const {
  return !to_erase_.empty() && absl::Now() >= publish_again_ && Shared()->reachable();
}

void CacheImpl::DrainPublishing(absl::Time deadline) {
  if (shared_tier_ < 0) return;
  std::size_t left = 0;
  {
    absl::MutexLock lock(&mu_);
    auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return (to_publish_.empty() && !publishing_) || !Shared()->writable();
    };
    mu_.AwaitWithDeadline(absl::Condition(&done), deadline);
    left = to_publish_.size() + (publishing_ ? 1 : 0);
    to_publish_.clear();
  }
  if (left == 0) return;
  sink_->Log(LogLevel::kWarning, "drain: " + std::to_string(left) +
                                     " conversations were not copied to the remote tier in time");
}

}  // namespace parkade
