// Management: what is parked, for people and their tools.

#include <algorithm>
#include <map>
#include <utility>

#include "src/manager/cache_impl.h"

namespace parkade {
namespace {

// Conversations described while the lock is held once.
constexpr std::size_t kListPiece = 64;
// Deleted ones of which a slot may still hold rows that have not been captured.
constexpr std::size_t kDeletedRemembered = 256;

// Of a park's bytes, those of window rows and of recurrent state.
void AddRowsAndStates(const StateLayout& layout, const ParkState& park, ConversationInfo* info) {
  std::uint64_t rows = 0;
  for (const TokenRange& range : park.window_rows) rows += range.size();
  info->window_rows += rows;
  for (const Stage& stage : park.stages->stages) {
    if (IsDraft(stage)) continue;
    info->window_bytes += rows * GroupRowBytes(layout, stage, RowGroup::kWindow);
    info->checkpoint_bytes +=
        park.checkpoints.size() * GroupRowBytes(layout, stage, RowGroup::kState);
  }
}

}  // namespace

// All but the rank, which only all conversations together give.
ConversationInfo CacheImpl::Describe(const ConversationId& id, Handle handle) const {
  const Conversation* conversation = catalogue_.Get(handle);
  ConversationInfo info;
  info.id = id;
  info.name = conversation->attributes.name;
  info.pinned = conversation->attributes.pinned;
  info.tokens = conversation->tip();
  if (durable_tier_ >= 0) {
    info.durable_tokens = catalogue_.TokensIn(handle, Bit(static_cast<std::size_t>(durable_tier_)));
  }
  std::uint8_t tiers = 0;
  bool queued = false;
  for (const ParkState& park : conversation->parks) {
    info.bytes += park.bytes;
    tiers |= park.tiers;
    queued = queued || park.pending != nullptr;
  }
  if (!conversation->parks.empty()) info.stages = *conversation->parks.back().stages;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    if ((tiers & Bit(tier)) != 0) info.tiers.push_back(tiers_[tier]->kind());
  }
  if (tiers == 0 && queued) info.tiers.push_back(TierKind::kRam);
  info.created_unix_ms = conversation->created_unix_ms;
  info.last_used_unix_ms = conversation->attributes.last_used_unix_ms;
  info.hits = conversation->attributes.hits;
  if (conversation->parent != kNoHandle) {
    info.forked_from = catalogue_.Get(conversation->parent)->id;
    info.forked_at = conversation->parent_tokens;
  }
  return info;
}

std::vector<ConversationInfo> CacheImpl::List(std::uint32_t limit,
                                              const ConversationId& after) const {
  std::vector<ConversationInfo> list;
  ConversationId last = after;
  for (bool more = true; more && list.size() < limit;) {
    if (!list.empty()) LetOthersIn();
    absl::MutexLock lock(&mu_);
    const auto& by_id = catalogue_.by_id();
    auto it = last.IsZero() ? by_id.begin() : by_id.upper_bound(last);
    for (std::size_t i = 0; i < kListPiece && it != by_id.end() && list.size() < limit; ++i, ++it) {
      last = it->first;
      if (catalogue_.Get(it->second)->forgotten) continue;
      list.push_back(Describe(it->first, it->second));
    }
    more = it != by_id.end();
  }
  if (list.empty()) return list;
  const std::shared_ptr<const Ranks> order = EvictionOrder();
  for (ConversationInfo& info : list) {
    const auto place = std::lower_bound(order->ids.begin(), order->ids.end(), info.id);
    // Gone by now: it was the first to go.
    if (place == order->ids.end() || !(*place == info.id)) continue;
    info.evict_rank = order->ranks[static_cast<std::size_t>(place - order->ids.begin())];
  }
  return list;
}

std::shared_ptr<const CacheImpl::Ranks> CacheImpl::EvictionOrder() const {
  auto order = std::make_shared<Ranks>();
  {
    absl::MutexLock lock(&mu_);
    order->version = catalogue_.version();
    if (ranks_ != nullptr && ranks_->version == order->version) return ranks_;
  }
  Snapshot all = TakeSnapshot(0, true);
  order->ranks = EvictionRanks(all.candidates);
  order->ids = std::move(all.ids);
  absl::MutexLock lock(&mu_);
  // Of a later version than it says at worst: then it is found anew the next time.
  ranks_ = order;
  return order;
}

std::optional<ConversationInfo> CacheImpl::Get(const ConversationId& id) const {
  ConversationId before = id;
  if (before.low-- == 0) --before.high;
  std::vector<ConversationInfo> list = List(1, before);
  if (list.empty() || !(list[0].id == id)) {
    // The id zero is nobody's, so `before` never means "from the start".
    return std::nullopt;
  }
  absl::MutexLock lock(&mu_);
  const Handle handle = catalogue_.FindId(id);
  if (handle == kNoHandle) return std::nullopt;
  const auto identity = identities_.find(catalogue_.Get(handle)->identity);
  for (const ParkState& park : catalogue_.Get(handle)->parks) {
    if (identity != identities_.end()) AddRowsAndStates(identity->second.layout, park, &list[0]);
    ConversationInfo::ParkDetail detail;
    detail.park = park.park;
    detail.tokens = TokenRange{park.first, park.end()};
    detail.bytes = park.bytes;
    for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
      if ((park.tiers & Bit(tier)) != 0) detail.tiers.push_back(tiers_[tier]->kind());
    }
    detail.window_rows = park.window_rows;
    detail.checkpoints = park.checkpoints;
    detail.stages = static_cast<std::uint32_t>(park.stages->stages.size());
    list[0].parks.push_back(std::move(detail));
  }
  return list[0];
}

std::vector<LookupRecord> CacheImpl::Lookups(std::uint32_t limit) const {
  absl::MutexLock lock(&mu_);
  const std::size_t count = std::min<std::size_t>(limit, lookups_.size());
  return {lookups_.begin(), lookups_.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::vector<TierInfo> CacheImpl::Tiers() const {
  std::vector<TierInfo> infos;
  for (const auto& tier : tiers_) infos.push_back(TierInfo{tier->kind(), tier->usage()});
  absl::MutexLock lock(&mu_);
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    infos[tier].conversations = catalogue_.ConversationsIn(tier);
    infos[tier].pinned_bytes = catalogue_.PinnedBytes(tier);
    if (tiers_[tier]->kind() == TierKind::kRam) {
      infos[tier].reserved_bytes = buffer_bytes_ + catalogue_.memory_bytes();
    }
  }
  return infos;
}

QueueInfo CacheImpl::Queue() const {
  QueueInfo info;
  info.capture_bytes = capture_pool_->charged_bytes();
  info.host_memory_bytes = arena_->counts().slab_bytes;
  absl::MutexLock lock(&mu_);
  info.spill_queue_bytes = pending_bytes_;
  info.index_bytes = catalogue_.memory_bytes();
  info.unindexed_conversations = catalogue_.unindexed();
  return info;
}

absl::StatusOr<std::uint32_t> CacheImpl::Forget(const ConversationId& id) {
  std::vector<Removal> removals;
  std::uint32_t kept = 0;
  // Before the tokens are gone that name it there.
  std::optional<PublishRequest> shared = WayOf(id);
  {
    absl::MutexLock lock(&mu_);
    const Handle handle = catalogue_.FindId(id);
    if (handle == kNoHandle || catalogue_.Get(handle)->forgotten) {
      return absl::NotFoundError("no such conversation");
    }
    removals = catalogue_.Forget(handle, &kept);
    deleted_.push_back(id);
    if (deleted_.size() > kDeletedRemembered) deleted_.pop_front();
  }
  if (shared.has_value()) EraseShared(id, *std::move(shared));
  absl::Status forgotten;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    std::uint64_t bytes = 0;
    bool any = false;
    for (const Removal& removal : removals) {
      if ((removal.tiers & Bit(tier)) == 0) continue;
      any = any || removal.key.conversation == id;
      bytes += removal.bytes;
    }
    // The last fork of one that was forgotten before takes it along.
    absl::Status removed = RemoveInOrder(tier, removals);
    if (removed.ok() && !any) removed = tiers_[tier]->Forget(id, {});  // its name and uses
    forgotten.Update(removed);
    // Without the mark a restart would bring it back.
    if (kept > 0 && tiers_[tier]->durable()) {
      forgotten.Update(StoreAttributesInto(tier, id, nullptr));
    }
    if (bytes > 0) sink_->OnEvict(tiers_[tier]->kind(), EvictReason::kManual, bytes);
  }
  for (const Removal& removal : removals) tokens_.Erase(removal.key);
  if (!forgotten.ok()) return forgotten;
  return kept;
}

absl::Status CacheImpl::Pin(const ConversationId& id, bool pinned,
                            const std::optional<std::string>& name) {
  const std::uint64_t budget = tiers_.empty() ? 0 : tiers_[PinningTier()]->usage().budget_bytes;
  {
    absl::MutexLock lock(&mu_);
    const Handle handle = catalogue_.FindId(id);
    if (handle == kNoHandle || catalogue_.Get(handle)->forgotten) {
      return absl::NotFoundError("no such conversation");
    }
    Conversation* conversation = catalogue_.Get(handle);
    const Handle named = !name.has_value() || name->empty() ? kNoHandle : FindName(*name);
    if (named != kNoHandle && named != handle) {
      return absl::AlreadyExistsError("another conversation has this name: " +
                                      ToHex(catalogue_.Get(named)->id));
    }
    if (pinned && !conversation->attributes.pinned &&
        !PinFits(handle, conversation->tip(), 0, budget)) {
      return absl::ResourceExhaustedError("pins hold at most 80 % of a tier");
    }
    catalogue_.SetPinned(handle, pinned);
    eviction_plans_.clear();
    // A session keeps the position that it was saved at.
    if (name.has_value() && *name != conversation->attributes.name) {
      conversation->attributes.name = *name;
      // Without a name a position would say that the conversation was forgotten.
      conversation->attributes.name_tokens = name->empty() ? 0 : conversation->tip();
    }
  }
  return StoreAttributes(id);
}

absl::Status CacheImpl::SetBudget(TierKind kind, std::uint64_t budget_bytes) {
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    if (tiers_[tier]->kind() != kind) continue;
    if (kind == TierKind::kRam) {
      {
        absl::MutexLock lock(&mu_);
        ram_budget_bytes_ = budget_bytes;
        index_stuck_bytes_ = 0;
      }
      TrimIndex();
      AdjustRamBudget();
    } else {
      tiers_[tier]->SetBudget(budget_bytes);
    }
    MakeRoom(tier, 0, EvictReason::kBudget);
    ThinCheckpoints(tier);
    return absl::OkStatus();
  }
  return absl::NotFoundError("no such tier");
}

}  // namespace parkade
