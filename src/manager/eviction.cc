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

// Candidates of one tier (tier bit) or of all (0). `pinning`: pinned conversations stay there.
std::vector<EvictionCandidate> Candidates(const Catalogue& catalogue, std::uint8_t tier,
                                          bool pinning) {
  std::vector<EvictionCandidate> candidates;
  std::unordered_map<Handle, std::int32_t> position;
  candidates.reserve(catalogue.size());
  for (const auto& [id, handle] : catalogue.by_id()) {
    position[handle] = static_cast<std::int32_t>(candidates.size());
    const Conversation* conversation = catalogue.Get(handle);
    EvictionCandidate candidate;
    candidate.conversation = handle;
    candidate.last_used_unix_ms = conversation->attributes.last_used_unix_ms;
    candidate.hits = conversation->attributes.hits;
    candidate.pinned = pinning && conversation->attributes.pinned;
    candidate.parent_tokens = conversation->parent_tokens;
    for (const ParkState& park : conversation->parks) {
      // A queued park is not in the tier yet, but what it stands on must stay all the same.
      const bool held = park.pins > 0 || park.pending != nullptr;
      if (tier != 0 && (park.tiers & tier) == 0 && !held) continue;
      const bool here = tier == 0 || (park.tiers & tier) != 0;
      candidate.parks.push_back({park.park, park.first, park.end(), here ? park.bytes : 0, held});
    }
    candidates.push_back(std::move(candidate));
  }
  for (EvictionCandidate& candidate : candidates) {
    const Handle parent = catalogue.Get(candidate.conversation)->parent;
    if (parent != kNoHandle) candidate.parent = position[parent];
  }
  return candidates;
}

}  // namespace

std::vector<std::uint32_t> CacheImpl::Ranks() const {
  return EvictionRanks(Candidates(catalogue_, 0, true));
}

std::uint64_t CacheImpl::BytesToEvict(std::size_t tier, std::uint64_t bytes) const {
  const std::uint64_t shortfall = tiers_[tier]->Shortfall(bytes);
  if (bytes > 0 || shortfall != UINT64_MAX) return shortfall;
  // Not even an empty park fits: a budget near zero, which has to be honoured all the same, or a
  // tier that takes nothing now.
  const TierUsage usage = tiers_[tier]->usage();
  return usage.used_bytes > usage.budget_bytes ? usage.used_bytes - usage.budget_bytes : 0;
}

bool CacheImpl::MakeRoom(std::size_t tier, std::uint64_t bytes, EvictReason reason) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t shortfall = BytesToEvict(tier, bytes);
    if (shortfall == 0) return true;
    if (shortfall == UINT64_MAX) return false;
    std::vector<ParkKey> keys;
    std::vector<Removal> cascade;
    std::uint64_t evicted = 0;
    {
      absl::MutexLock lock(&mu_);
      const std::vector<EvictionCandidate> candidates =
          Candidates(catalogue_, Bit(tier), tier == PinningTier());
      for (const Victim& victim : ChooseVictims(candidates, shortfall)) {
        const Handle handle = candidates[victim.candidate].conversation;
        Conversation* conversation = catalogue_.Get(handle);
        ParkState* park = conversation == nullptr ? nullptr : conversation->FindPark(victim.park);
        if (park == nullptr) continue;
        keys.push_back(ParkKey{conversation->id, victim.park});
        evicted += park->bytes;
        // The removal of a park that nobody holds takes along what stands on it.
        for (Removal& removal : catalogue_.ClearTiers(handle, victim.park, Bit(tier))) {
          cascade.push_back(std::move(removal));
        }
      }
    }
    if (keys.empty()) return false;
    // First what stands on the victims: a crash in between must not leave it without them.
    RemoveFromTiers(cascade, reason);
    const absl::Status removed = tiers_[tier]->Remove(keys);
    if (!removed.ok()) sink_->OnTierError(tiers_[tier]->kind(), Text(removed));
    sink_->OnEvict(tiers_[tier]->kind(), reason, evicted);
    if (!removed.ok()) return false;
  }
  return BytesToEvict(tier, bytes) == 0;
}

void CacheImpl::RemoveFromTiers(const std::vector<Removal>& removals, EvictReason reason) {
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    std::vector<ParkKey> keys;
    std::map<ConversationId, std::vector<ParkKey>> forgotten;
    std::uint64_t bytes = 0;
    for (const Removal& removal : removals) {
      if ((removal.tiers & Bit(tier)) == 0) continue;
      if (removal.forgotten) {
        forgotten[removal.key.conversation].push_back(removal.key);
      } else {
        keys.push_back(removal.key);
      }
      bytes += removal.bytes;
    }
    if (keys.empty() && forgotten.empty()) continue;
    absl::Status removed = keys.empty() ? absl::OkStatus() : tiers_[tier]->Remove(keys);
    for (const auto& [id, parks] : forgotten) removed.Update(tiers_[tier]->Forget(id, parks));
    if (!removed.ok()) sink_->OnTierError(tiers_[tier]->kind(), Text(removed));
    sink_->OnEvict(tiers_[tier]->kind(), reason, bytes);
  }
  for (const Removal& removal : removals) tokens_.Erase(removal.key);
}

bool CacheImpl::DropPark(std::size_t tier, const ParkKey& key, EvictReason reason) {
  std::vector<Removal> removals;
  {
    absl::MutexLock lock(&mu_);
    const Handle handle = catalogue_.FindId(key.conversation);
    if (handle == kNoHandle) return false;
    const ParkState* park = catalogue_.Get(handle)->FindPark(key.park);
    if (park == nullptr || (park->tiers & Bit(tier)) == 0) return false;
    const std::uint64_t bytes = park->bytes;
    removals = catalogue_.ClearTiers(handle, key.park, Bit(tier));
    removals.push_back(Removal{Bit(tier), key, bytes});
  }
  RemoveFromTiers(removals, reason);
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
        removals.push_back(Removal{Bit(tier), ParkKey{conversation->id, number}, park->bytes});
        for (Removal& removal : catalogue_.ClearTiers(handle, number, Bit(tier))) {
          if (removal.tiers != 0) removals.push_back(std::move(removal));
        }
      }
    }
  }
  RemoveFromTiers(removals, EvictReason::kSlots);
}

}  // namespace parkade
