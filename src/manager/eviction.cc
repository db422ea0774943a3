// Making room: which parks go is decided by src/policy, what that means is done here.

#include "src/policy/eviction.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "src/manager/cache_impl.h"

namespace parkade {
namespace {

// The shortfall is asked again after every removal; it should be zero at the second look.
constexpr int kRounds = 4;
constexpr absl::Duration kLongestTurn = absl::Seconds(1);

// Parks given up while the lock is held once.
constexpr std::size_t kPiece = 512;
// Parks looked at while the lock is held once, a conversation counting as two: about a fifth of a
// millisecond, however the parks are distributed.
constexpr std::size_t kParksSeen = 8192;

// How many shortfalls are planned at once, and how long the plan may be used. What a plan does not
// know (a conversation that is younger than it, one that was let go) is at most so much too late.
constexpr std::uint64_t kPlannedAhead = 32;
constexpr absl::Duration kPlanAge = absl::Seconds(10);

bool IsHeld(const ParkState& park) { return park.pins > 0 || park.pending != nullptr; }

EvictionCandidate CandidateOf(Handle handle, const Conversation& conversation, std::uint8_t tier,
                              bool pinning) {
  EvictionCandidate candidate;
  candidate.conversation = handle;
  candidate.last_used_unix_ms = conversation.attributes.last_used_unix_ms;
  candidate.hits = conversation.attributes.hits;
  candidate.pinned = pinning && conversation.attributes.pinned;
  candidate.parent_tokens = conversation.parent_tokens;
  for (const ParkState& park : conversation.parks) {
    // A queued park is not in the tier yet, but what it stands on must stay all the same.
    const bool held = IsHeld(park);
    if (tier != 0 && (park.tiers & tier) == 0 && !held) continue;
    const bool here = tier == 0 || (park.tiers & tier) != 0;
    candidate.parks.push_back({park.park, park.first, park.end(), here ? park.bytes : 0, held});
  }
  return candidate;
}

// Whether a fork of the conversation that is in the tier stands on the park.
bool StandsOn(const Catalogue& catalogue, const Conversation& conversation, std::uint8_t tier,
              bool pinning, std::uint32_t limit, const ParkState& park) {
  for (const Handle handle : conversation.children) {
    const Conversation& child = *catalogue.Get(handle);
    const std::uint32_t tokens = std::min(limit, child.parent_tokens);
    const bool needed =
        tokens > 0 && (park.first < tokens || (park.first == tokens && park.count == 0));
    if (!needed) continue;
    const bool alive = (pinning && child.attributes.pinned) ||
                       std::any_of(child.parks.begin(), child.parks.end(), [&](const ParkState& p) {
                         return (p.tiers & tier) != 0 || IsHeld(p);
                       });
    if (alive || StandsOn(catalogue, child, tier, pinning, tokens, park)) return true;
  }
  return false;
}

}  // namespace

CacheImpl::Snapshot CacheImpl::TakeSnapshot(std::uint8_t tier, bool pinning) const {
  Snapshot snapshot;
  std::vector<ConversationId> parents;
  for (bool more = true; more;) {
    if (!snapshot.ids.empty()) LetOthersIn();
    absl::MutexLock lock(&mu_);
    const auto& by_id = catalogue_.by_id();
    auto it = snapshot.ids.empty() ? by_id.begin() : by_id.upper_bound(snapshot.ids.back());
    for (std::size_t seen = 0; seen < kParksSeen && it != by_id.end(); ++it) {
      const Conversation& conversation = *catalogue_.Get(it->second);
      seen += 2 + conversation.parks.size();
      snapshot.candidates.push_back(CandidateOf(it->second, conversation, tier, pinning));
      snapshot.ids.push_back(it->first);
      const Handle parent = conversation.parent;
      parents.push_back(parent == kNoHandle ? ConversationId() : catalogue_.Get(parent)->id);
    }
    more = it != by_id.end();
  }
  for (std::size_t i = 0; i < parents.size(); ++i) {
    if (parents[i].IsZero()) continue;
    auto parent = std::lower_bound(snapshot.ids.begin(), snapshot.ids.end(), parents[i]);
    // Not there: it came into being after its place was passed.
    if (parent == snapshot.ids.end() || !(*parent == parents[i])) continue;
    snapshot.candidates[i].parent = static_cast<std::int32_t>(parent - snapshot.ids.begin());
  }
  return snapshot;
}

// The chosen park, if it may still go; null: it was used, pinned or built upon since, or has gone.
ParkState* CacheImpl::StillVictim(std::size_t tier, const PlannedVictim& victim) {
  const Handle handle = catalogue_.FindId(victim.key.conversation);
  if (handle == kNoHandle) return nullptr;
  Conversation* conversation = catalogue_.Get(handle);
  const bool pinning = tier == PinningTier();
  if (conversation->attributes.last_used_unix_ms != victim.last_used_unix_ms ||
      conversation->attributes.hits != victim.hits ||
      (pinning && conversation->attributes.pinned)) {
    return nullptr;
  }
  ParkState* park = conversation->FindPark(victim.key.park);
  if (park == nullptr || (park->tiers & Bit(tier)) == 0 || IsHeld(*park)) return nullptr;
  for (const ParkState* later = &conversation->parks.back(); later != park; --later) {
    if ((later->tiers & Bit(tier)) != 0 || IsHeld(*later)) return nullptr;
  }
  const bool needed = StandsOn(catalogue_, *conversation, Bit(tier), pinning, UINT32_MAX, *park);
  return needed ? nullptr : park;
}

// Takes planned parks out of the tier's books until they are worth `shortfall`. False: the plan
// does not reach so far, or is too old.
bool CacheImpl::TakePlanned(std::size_t tier, std::uint64_t shortfall, Victims* taken) {
  for (bool first = true;; first = false) {
    if (!first) LetOthersIn();
    absl::MutexLock lock(&mu_);
    EvictionPlan& plan = eviction_plans_[tier];
    if (absl::Now() - plan.made > kPlanAge) plan = EvictionPlan();
    for (std::size_t i = 0; i < kPiece && plan.next < plan.victims.size(); ++i) {
      if (taken->bytes >= shortfall) return true;
      const PlannedVictim& victim = plan.victims[plan.next++];
      const ParkState* park = StillVictim(tier, victim);
      if (park == nullptr) continue;
      taken->bytes += park->bytes;
      TakeOut(tier, catalogue_.FindId(victim.key.conversation), victim.key.park, &taken->removals);
    }
    if (plan.next < plan.victims.size()) continue;
    plan = EvictionPlan();
    return taken->bytes >= shortfall;
  }
}

// Chooses parks worth `shortfall` and takes them out of the tier's books. Choosing looks at every
// conversation, so it is done for several shortfalls at once; what is used until its turn comes is
// left out then. False: there is nothing to choose from.
bool CacheImpl::TakeVictims(std::size_t tier, std::uint64_t shortfall, Victims* taken) {
  if (TakePlanned(tier, shortfall, taken)) return true;
  EvictionPlan plan;
  plan.made = absl::Now();
  const std::uint64_t left = shortfall - std::min(shortfall, taken->bytes);
  const std::uint64_t ahead = left > UINT64_MAX / kPlannedAhead ? left : left * kPlannedAhead;
  {
    const Snapshot snapshot = TakeSnapshot(Bit(tier), tier == PinningTier());
    for (const Victim& victim : ChooseVictims(snapshot.candidates, ahead)) {
      const EvictionCandidate& seen = snapshot.candidates[victim.candidate];
      plan.victims.push_back({ParkKey{snapshot.ids[victim.candidate], victim.park},
                              seen.last_used_unix_ms, seen.hits});
    }
  }
  if (plan.victims.empty()) return !taken->removals.empty();
  {
    absl::MutexLock lock(&mu_);
    eviction_plans_[tier] = std::move(plan);
  }
  TakePlanned(tier, shortfall, taken);
  return true;
}

std::uint64_t CacheImpl::BytesToEvict(std::size_t tier, std::uint64_t bytes) const {
  const std::uint64_t shortfall = tiers_[tier]->Shortfall(bytes);
  if (bytes > 0 || shortfall != UINT64_MAX) return shortfall;
  // Not even an empty park fits: a budget near zero, which has to be honoured all the same, or a
  // tier that takes nothing now.
  const TierUsage usage = tiers_[tier]->usage();
  return usage.used_bytes > usage.budget_bytes ? usage.used_bytes - usage.budget_bytes : 0;
}

// One at a time in a tier: two that see the same shortage would each evict for all of it. Whoever
// has waited long goes ahead.
bool CacheImpl::MakeRoom(std::size_t tier, std::uint64_t bytes, EvictReason reason) {
  if (const std::uint64_t now = BytesToEvict(tier, bytes); now == 0 || now == UINT64_MAX) {
    return now == 0;
  }
  {
    absl::MutexLock lock(&mu_);
    const bool* busy = &making_room_[tier];
    auto free = [busy]() { return !*busy; };
    mu_.AwaitWithTimeout(absl::Condition(&free), kLongestTurn);
    making_room_[tier] = true;
  }
  const bool made = EvictFor(tier, bytes, reason);
  absl::MutexLock lock(&mu_);
  making_room_[tier] = false;
  return made;
}

bool CacheImpl::EvictFor(std::size_t tier, std::uint64_t bytes, EvictReason reason) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t shortfall = BytesToEvict(tier, bytes);
    if (shortfall == 0) return true;
    if (shortfall == UINT64_MAX) return false;
    Victims taken;
    if (!TakeVictims(tier, shortfall, &taken)) return false;
    // All of them were used meanwhile: others are chosen.
    if (taken.removals.empty()) continue;
    if (reason == EvictReason::kBudget && tiers_[tier]->usage().floor_limits_budget) {
      reason = EvictReason::kMinFree;
    }
    if (!RemoveFromTiers(std::move(taken.removals), reason).ok()) return false;
  }
  return BytesToEvict(tier, bytes) == 0;
}

void CacheImpl::TakeOut(std::size_t tier, Handle handle, std::uint32_t park,
                        std::vector<Removal>* out) {
  const Conversation* conversation = catalogue_.Get(handle);
  Removal own{Bit(tier), ParkKey{conversation->id, park}, conversation->FindPark(park)->bytes,
              false, catalogue_.DepthOf(handle)};
  for (Removal& removal : catalogue_.ClearTiers(handle, park, Bit(tier))) {
    if (removal.key == own.key) {
      own.forgotten = removal.forgotten;
    } else if (removal.tiers != 0) {
      out->push_back(std::move(removal));
    }
  }
  out->push_back(std::move(own));
}

absl::Status CacheImpl::RemoveInOrder(std::size_t tier, std::vector<Removal> removals) {
  const std::uint8_t bit = Bit(tier);
  std::erase_if(removals, [bit](const Removal& each) { return (each.tiers & bit) == 0; });
  std::stable_sort(removals.begin(), removals.end(),
                   [](const Removal& a, const Removal& b) { return a.depth > b.depth; });
  {
    // What was refused may stand on what goes now, never the other way round.
    absl::MutexLock lock(&mu_);
    std::vector<Removal>& refused = refused_[tier];
    removals.insert(removals.begin(), refused.begin(), refused.end());
    refused.clear();
  }
  // What goes in one call goes at once; of forgotten ones that is a conversation.
  const auto together = [](const Removal& a, const Removal& b) {
    return a.forgotten == b.forgotten && (!a.forgotten || a.key.conversation == b.key.conversation);
  };
  for (std::size_t at = 0; at < removals.size();) {
    const Removal& first = removals[at];
    std::size_t end = at;
    std::vector<ParkKey> keys;
    while (end < removals.size() && together(first, removals[end])) {
      keys.push_back(removals[end++].key);
    }
    const absl::Status removed = first.forgotten
                                     ? tiers_[tier]->Forget(first.key.conversation, keys)
                                     : tiers_[tier]->Remove(keys);
    if (!removed.ok()) {
      absl::MutexLock lock(&mu_);
      std::vector<Removal>& refused = refused_[tier];
      refused.insert(refused.begin(), removals.begin() + static_cast<std::ptrdiff_t>(at),
                     removals.end());
      return removed;
    }
    at = end;
  }
  return absl::OkStatus();
}

absl::Status CacheImpl::RemoveRefused(std::size_t tier) {
  {
    absl::MutexLock lock(&mu_);
    if (refused_[tier].empty()) return absl::OkStatus();
  }
  return RemoveInOrder(tier, {});
}

absl::Status CacheImpl::RemoveFromTiers(std::vector<Removal> removals, EvictReason reason) {
  absl::Status first;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    std::uint64_t bytes = 0;
    bool any = false;
    for (const Removal& removal : removals) {
      if ((removal.tiers & Bit(tier)) == 0) continue;
      any = true;
      bytes += removal.bytes;
    }
    if (!any) continue;
    const absl::Status removed = RemoveInOrder(tier, removals);
    if (!removed.ok()) ReportTierError(tier, "remove", removed);
    sink_->OnEvict(tiers_[tier]->kind(), reason, bytes);
    first.Update(removed);
  }
  // What another tier has stays known: whoever goes on with it is recognised to its last token.
  absl::MutexLock lock(&mu_);
  for (const Removal& removal : removals) {
    const Handle handle = catalogue_.FindId(removal.key.conversation);
    if (handle != kNoHandle && catalogue_.Get(handle)->FindPark(removal.key.park) != nullptr) {
      continue;
    }
    tokens_.Erase(removal.key);
  }
  return first;
}

bool CacheImpl::DropPark(std::size_t tier, const ParkKey& key, EvictReason reason) {
  std::vector<Removal> removals;
  {
    absl::MutexLock lock(&mu_);
    const Handle handle = catalogue_.FindId(key.conversation);
    if (handle == kNoHandle) return false;
    const ParkState* park = catalogue_.Get(handle)->FindPark(key.park);
    if (park == nullptr || (park->tiers & Bit(tier)) == 0) return false;
    TakeOut(tier, handle, key.park, &removals);
  }
  // swallow: it was reported, and the tier's books are without it already.
  RemoveFromTiers(std::move(removals), reason).IgnoreError();
  return true;
}

// Keeps at most ram_slots root conversations, with their forks, in RAM.
void CacheImpl::EnforceSlots() {
  if (options_.ram_slots == 0 || ram_tier_ < 0) return;
  const std::size_t tier = static_cast<std::size_t>(ram_tier_);
  std::vector<Removal> removals;
  {
    absl::MutexLock lock(&mu_);
    struct Family {
      std::int64_t last_used = 0;
      bool kept = false;  // pinned, in use or queued
      std::vector<std::pair<Handle, std::uint32_t>> parks;
    };
    std::unordered_map<Handle, Family> families;
    for (const auto& [id, handle] : catalogue_.by_id()) {
      Handle root = handle;
      while (catalogue_.Get(root)->parent != kNoHandle) root = catalogue_.Get(root)->parent;
      Family& family = families[root];
      const Conversation* conversation = catalogue_.Get(handle);
      family.last_used = std::max(family.last_used, conversation->attributes.last_used_unix_ms);
      family.kept = family.kept || (conversation->attributes.pinned && tier == PinningTier());
      for (const ParkState& park : conversation->parks) {
        if ((park.tiers & Bit(tier)) == 0) continue;
        family.kept = family.kept || park.pins > 0 || park.pending != nullptr;
        family.parks.emplace_back(handle, park.park);
      }
    }
    std::vector<Family*> in_ram;
    for (auto& [root, family] : families) {
      if (!family.parks.empty()) in_ram.push_back(&family);
    }
    std::sort(in_ram.begin(), in_ram.end(),
              [](const Family* a, const Family* b) { return a->last_used < b->last_used; });
    std::size_t left = in_ram.size();
    for (Family* family : in_ram) {
      if (left <= options_.ram_slots) break;
      if (family->kept) continue;
      --left;
      std::sort(family->parks.rbegin(), family->parks.rend());
      for (const auto& [handle, number] : family->parks) {
        Conversation* conversation = catalogue_.Get(handle);
        ParkState* park = conversation == nullptr ? nullptr : conversation->FindPark(number);
        if (park == nullptr) continue;
        TakeOut(tier, handle, number, &removals);
      }
    }
  }
  // swallow: as in DropPark.
  RemoveFromTiers(std::move(removals), EvictReason::kSlots).IgnoreError();
}

}  // namespace parkade
