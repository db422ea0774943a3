// Named sessions: a name for a conversation up to a position.
//
// A session is a fork of the conversation that begins at the position and adds nothing to it: a
// park without tokens, pinned. So what it stands on stays, wherever the conversation goes on, and
// nothing is written twice.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "src/format/checksum.h"
#include "src/manager/cache_impl.h"

namespace parkade {
namespace {

// Pinned bytes hold at most this share of a tier.
constexpr double kPinnedShare = 0.8;

}  // namespace

// The tier in which pinned conversations stay: the lowest one; what is there can go from others.
std::size_t CacheImpl::PinningTier() const {
  return static_cast<std::size_t>(durable_tier_ >= 0 ? durable_tier_ : std::max(ram_tier_, 0));
}

bool CacheImpl::PinFits(Handle handle, std::uint32_t tokens, std::uint64_t name_bytes,
                        std::uint64_t budget_bytes) const {
  const std::size_t tier = PinningTier();
  const std::uint64_t more = catalogue_.BytesToPin(tier, handle, tokens) + name_bytes;
  const std::uint64_t then = catalogue_.PinnedBytes(tier) + more;
  return more == 0 || static_cast<double>(then) <= kPinnedShare * static_cast<double>(budget_bytes);
}

// The newest conversation of this name.
Handle CacheImpl::FindName(const std::string& name) const {
  Handle found = kNoHandle;
  std::pair<std::int64_t, ConversationId> newest;
  for (const auto& [id, handle] : catalogue_.by_id()) {
    const Conversation* conversation = catalogue_.Get(handle);
    if (conversation->forgotten || conversation->attributes.name != name) continue;
    const std::pair<std::int64_t, ConversationId> place{conversation->created_unix_ms, id};
    if (found != kNoHandle && place < newest) continue;
    found = handle;
    newest = place;
  }
  return found;
}

absl::StatusOr<CacheImpl::SessionFork> CacheImpl::ForkForSession(const ConversationId& id,
                                                                 std::uint32_t tokens,
                                                                 const std::string& name,
                                                                 std::uint64_t budget_bytes) {
  absl::MutexLock lock(&mu_);
  const Handle handle = catalogue_.FindId(id);
  const Conversation* conversation = handle == kNoHandle ? nullptr : catalogue_.Get(handle);
  if (conversation == nullptr || conversation->tip() < tokens || tokens == 0) {
    return absl::NotFoundError("the conversation is not there any more");
  }
  const auto identity = identities_.find(conversation->identity);
  if (identity == identities_.end()) return absl::NotFoundError("the identity is not known");
  const StateLayout& layout = identity->second.layout;
  if (UsableBoundary(layout, catalogue_.CoverageOf(handle, tokens), tokens) != tokens) {
    return absl::ResourceExhaustedError("the conversation's end could not be kept");
  }
  const Handle before = FindName(name);
  // One that it takes the place of counts already.
  const std::uint64_t name_bytes = before == kNoHandle ? kNameBytes : 0;
  if (!PinFits(handle, tokens, name_bytes, budget_bytes)) {
    return absl::ResourceExhaustedError("pins hold at most 80 % of a tier");
  }
  SessionFork fork;
  fork.request.identity = conversation->identity;
  fork.stages = *conversation->parks.front().stages;
  for (const PathPark& step : catalogue_.Path(handle, tokens)) {
    const ParkState* park = catalogue_.Get(step.conversation)->FindPark(step.key.park);
    fork.stages = *park->stages;
    fork.bytes += park->bytes;
  }
  for (const ParkState* park : catalogue_.ParksAt(handle, tokens)) fork.bytes += park->bytes;
  fork.spot.id = RandomDigest();
  fork.spot.matched = tokens;
  // The newest of a name is the one that has it.
  const std::int64_t after_it =
      before == kNoHandle ? 0 : catalogue_.Get(before)->created_unix_ms + 1;
  fork.spot.conversation = catalogue_.Create(fork.spot.id, conversation->identity, handle, tokens,
                                             std::max(NowUnixMs(), after_it));
  catalogue_.SetPinned(fork.spot.conversation, true);
  ConversationAttributes& attributes = catalogue_.Get(fork.spot.conversation)->attributes;
  attributes.name = name;
  attributes.name_tokens = tokens;
  return fork;
}

absl::StatusOr<SavedSession> CacheImpl::SaveSession(const ConversationId& conversation,
                                                    std::uint32_t tokens, const std::string& name,
                                                    std::int64_t deadline_ms) {
  if (tiers_.empty()) return absl::UnavailableError("there is no tier");
  const absl::Time deadline = absl::Now() + absl::Milliseconds(deadline_ms);
  const TierUsage usage = tiers_[PinningTier()]->usage();
  if (usage.state != "up") {
    return absl::ResourceExhaustedError("nothing can be stored now: the tier is " + usage.state);
  }
  absl::StatusOr<SessionFork> fork = ForkForSession(conversation, tokens, name, usage.budget_bytes);
  if (!fork.ok()) return fork.status();
  const ConversationId id = fork->spot.id;
  CapturePiece nothing;
  nothing.tokens = TokenRange{tokens, tokens};
  absl::Status status;
  if (!Enqueue(fork->request, {}, fork->stages, nothing, {}, &fork->spot, absl::Now())) {
    status = absl::NotFoundError("the conversation is not there any more");
  }
  if (status.ok()) status = WaitStored(id, tokens, deadline);
  if (status.ok()) status = StoreAttributes(id);
  if (!status.ok()) {
    // swallow: it may be gone already, and nobody was told of it.
    (void)Forget(id);
    return status;
  }
  DropOlderSessions(id, name);
  SavedSession session;
  session.conversation = id;
  session.identity = fork->request.identity;
  session.token_count = tokens;
  session.bytes = fork->bytes;
  session.durable = durable_tier_ >= 0;
  return session;
}

// Waits until no park of the conversation is queued any more, and says whether all that it stands
// on up to `tokens` is in the lowest tier.
absl::Status CacheImpl::WaitStored(const ConversationId& id, std::uint32_t tokens,
                                   absl::Time deadline) {
  const std::uint8_t tier = Bit(PinningTier());
  absl::Status status;
  auto settled = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const Handle handle = catalogue_.FindId(id);
    if (handle == kNoHandle) {
      status = absl::ResourceExhaustedError("there was no room for the session");
      return true;
    }
    bool queued = false;
    bool stored = true;
    auto look = [&](const ParkState& park) {
      queued = queued || park.pending != nullptr;
      stored = stored && (park.tiers & tier) != 0;
    };
    for (const PathPark& step : catalogue_.Path(handle, tokens)) {
      look(*catalogue_.Get(step.conversation)->FindPark(step.key.park));
    }
    for (const ParkState& park : catalogue_.Get(handle)->parks) look(park);
    for (const ParkState* park : catalogue_.ParksAt(handle, tokens)) look(*park);
    if (queued) return false;
    status = stored ? absl::OkStatus()
                    : absl::ResourceExhaustedError("there was no room for the session");
    return true;
  };
  absl::MutexLock lock(&mu_);
  if (!mu_.AwaitWithDeadline(absl::Condition(&settled), deadline)) {
    return absl::UnavailableError("the session was not durable in time");
  }
  return status;
}

// A name is one session's: those before `id` go.
void CacheImpl::DropOlderSessions(const ConversationId& id, const std::string& name) {
  std::vector<ConversationId> older;
  {
    absl::MutexLock lock(&mu_);
    const Handle kept = catalogue_.FindId(id);
    if (kept == kNoHandle) return;
    const std::pair<std::int64_t, ConversationId> place{catalogue_.Get(kept)->created_unix_ms, id};
    for (const auto& [other, handle] : catalogue_.by_id()) {
      Conversation* conversation = catalogue_.Get(handle);
      if (conversation->attributes.name != name || conversation->forgotten) continue;
      if (std::pair(conversation->created_unix_ms, other) < place) older.push_back(other);
    }
  }
  for (const ConversationId& other : older) {
    const absl::Status gone = ReleaseName(other);
    if (!gone.ok()) sink_->Log(LogLevel::kWarning, "a session's name: " + std::string(Text(gone)));
  }
}

// A crash between a save and the end of what had the name leaves both.
void CacheImpl::SettleNames() {
  std::map<std::string, ConversationId> doubled;
  {
    absl::MutexLock lock(&mu_);
    std::set<std::string> seen;
    for (const auto& [id, handle] : catalogue_.by_id()) {
      const Conversation* conversation = catalogue_.Get(handle);
      const std::string& name = conversation->attributes.name;
      if (conversation->forgotten || name.empty() || seen.insert(name).second) continue;
      doubled[name] = catalogue_.Get(FindName(name))->id;
    }
  }
  for (const auto& [name, newest] : doubled) DropOlderSessions(newest, name);
}

// Takes a name away: from a session the session itself, which is nothing else; from a conversation
// that was given a name only that, and what pinned it.
absl::Status CacheImpl::ReleaseName(const ConversationId& id) {
  bool session = false;
  {
    absl::MutexLock lock(&mu_);
    const Handle handle = catalogue_.FindId(id);
    if (handle == kNoHandle) return absl::OkStatus();
    Conversation* conversation = catalogue_.Get(handle);
    session = conversation->parent != kNoHandle &&
              conversation->tip() == conversation->parent_tokens && conversation->children.empty();
    if (!session) {
      conversation->attributes.name.clear();
      conversation->attributes.name_tokens = 0;
      catalogue_.SetPinned(handle, false);
    }
  }
  if (!session) return StoreAttributes(id);
  const absl::Status forgotten = Forget(id).status();
  return absl::IsNotFound(forgotten) ? absl::OkStatus() : forgotten;
}

absl::StatusOr<SavedSession> CacheImpl::FindSession(const std::string& name) {
  SavedSession session;
  std::vector<TokenSource> sources;
  {
    absl::MutexLock lock(&mu_);
    const Handle handle = FindName(name);
    if (handle == kNoHandle) return absl::NotFoundError("no session '" + name + "'");
    const Conversation* conversation = catalogue_.Get(handle);
    session.conversation = conversation->id;
    session.identity = conversation->identity;
    session.token_count = std::min(conversation->attributes.name_tokens, conversation->tip());
    if (session.token_count < conversation->attributes.name_tokens) {
      return absl::NotFoundError(
          "of session '" + name + "' only " + std::to_string(session.token_count) + " of " +
          std::to_string(conversation->attributes.name_tokens) + " tokens are left");
    }
    for (const PathPark& step : catalogue_.Path(handle, session.token_count)) {
      sources.push_back(TokenSourceOf(step));
    }
  }
  for (const TokenSource& source : sources) {
    const SharedTokens tokens = source.queued != nullptr
                                    ? source.queued
                                    : TokensOf(source.step.key, source.count, source.tiers);
    if (tokens == nullptr || tokens->size() < source.step.tokens.size()) {
      return absl::NotFoundError("the tokens of session '" + name + "' can't be read");
    }
    session.tokens.insert(session.tokens.end(), tokens->begin(),
                          tokens->begin() + source.step.tokens.size());
  }
  return session;
}

std::string CacheImpl::DifferentField(const Digest128& wanted, const Digest128& stored) const {
  absl::MutexLock lock(&mu_);
  const auto one = identities_.find(wanted);
  const auto other = identities_.find(stored);
  if (one == identities_.end() || other == identities_.end()) return "";
  return FirstDifference(one->second.identity, other->second.identity);
}

}  // namespace parkade
