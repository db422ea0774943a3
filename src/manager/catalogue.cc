#include "src/manager/catalogue.h"

#include <algorithm>
#include <utility>

namespace parkade {
namespace {

// With its places in the map of ids, in the list of handles and among its parent's children.
constexpr std::uint64_t kConversationBytes = sizeof(Conversation) + 112;

// What a park holds besides its place among the conversation's parks.
std::uint64_t HeldBytes(const ParkState& park) {
  return park.page_hashes.size() * sizeof(std::uint64_t) +
         park.window_rows.size() * sizeof(TokenRange) +
         park.checkpoints.size() * sizeof(std::uint32_t);
}

}  // namespace

std::uint32_t Conversation::tip() const {
  std::uint32_t end = parent_tokens;
  for (auto it = parks.rbegin(); it != parks.rend(); ++it) {
    if (it->count == 0) continue;
    end = std::max(end, it->end());
    break;
  }
  return forgotten ? std::min(end, kept_tokens) : end;
}

ParkState* Conversation::FindPark(std::uint32_t park) {
  auto it = std::lower_bound(parks.begin(), parks.end(), park,
                             [](const ParkState& a, std::uint32_t b) { return a.park < b; });
  return it != parks.end() && it->park == park ? &*it : nullptr;
}

const ParkState* Conversation::FindPark(std::uint32_t park) const {
  return const_cast<Conversation*>(this)->FindPark(park);
}

void Catalogue::Hold(const ParkState& park) {
  held_bytes_ += HeldBytes(park);
  hashed_pages_ += park.page_hashes.size();
}

void Catalogue::Release(const ParkState& park) {
  held_bytes_ -= HeldBytes(park);
  hashed_pages_ -= park.page_hashes.size();
}

void Catalogue::Touch(Handle handle, std::int64_t now_unix_ms, bool hit) {
  ++version_;
  while (handle != kNoHandle) {
    Conversation* conversation = Get(handle);
    conversation->attributes.last_used_unix_ms = now_unix_ms;
    if (hit) ++conversation->attributes.hits;
    conversation->attributes_dirty = true;
    hit = false;
    handle = conversation->parent;
  }
}

Handle Catalogue::Create(const ConversationId& id, const Digest128& identity, Handle parent,
                         std::uint32_t parent_tokens, std::int64_t now_unix_ms) {
  Handle handle;
  if (!free_.empty()) {
    handle = free_.back();
    free_.pop_back();
  } else {
    handle = static_cast<Handle>(slots_.size());
    slots_.emplace_back();
  }
  auto conversation = std::make_unique<Conversation>();
  conversation->id = id;
  conversation->identity = identity;
  conversation->parent = parent;
  conversation->parent_tokens = parent == kNoHandle ? 0 : parent_tokens;
  conversation->created_unix_ms = now_unix_ms;
  conversation->attributes.conversation = id;
  conversation->attributes.last_used_unix_ms = now_unix_ms;
  slots_[handle] = std::move(conversation);
  by_id_[id] = handle;
  ++by_identity_[identity];
  ++version_;
  held_bytes_ += kConversationBytes;
  if (parent != kNoHandle) Get(parent)->children.push_back(handle);
  return handle;
}

Conversation* Catalogue::Get(Handle handle) {
  return handle < slots_.size() ? slots_[handle].get() : nullptr;
}
const Conversation* Catalogue::Get(Handle handle) const {
  return handle < slots_.size() ? slots_[handle].get() : nullptr;
}

Handle Catalogue::FindId(const ConversationId& id) const {
  auto it = by_id_.find(id);
  return it == by_id_.end() ? kNoHandle : it->second;
}

void Catalogue::IndexPages(Handle handle, std::uint32_t first_token,
                           const std::vector<std::uint64_t>& hashes) {
  std::uint32_t page = first_token / kPageTokens;
  for (std::uint64_t hash : hashes) index_.Insert(hash, PageOwner{handle, page++});
}

void Catalogue::IndexNewestFirst() {
  std::vector<Handle> handles;
  for (const auto& [id, handle] : by_id_) handles.push_back(handle);
  std::sort(handles.begin(), handles.end(), [this](Handle a, Handle b) {
    return Get(a)->attributes.last_used_unix_ms > Get(b)->attributes.last_used_unix_ms;
  });
  for (Handle handle : handles) {
    std::vector<ParkState>& parks = Get(handle)->parks;
    held_bytes_ -= parks.capacity() * sizeof(ParkState);
    parks.shrink_to_fit();
    held_bytes_ += parks.capacity() * sizeof(ParkState);
    for (const ParkState& park : parks) {
      IndexPages(handle, park.first, park.page_hashes);
    }
  }
}

ParkState* Catalogue::AddPark(Handle handle, const ParkSummary& summary, std::uint8_t tiers) {
  IndexPages(handle, summary.first_token, summary.page_hashes);
  return AddParkUnindexed(handle, summary, tiers);
}

ParkState* Catalogue::AddParkUnindexed(Handle handle, const ParkSummary& summary,
                                       std::uint8_t tiers) {
  Conversation* conversation = Get(handle);
  ParkState park;
  park.park = summary.key.park;
  park.first = summary.first_token;
  park.count = summary.token_count;
  park.tiers = tiers;
  park.bytes = summary.payload_bytes;
  park.page_hashes = summary.page_hashes;
  park.window_rows = summary.window_rows;
  park.checkpoints = summary.checkpoints;
  if (last_stages_ == nullptr || !(*last_stages_ == summary.stages)) {
    last_stages_ = std::make_shared<const StageMap>(summary.stages);
  }
  park.stages = last_stages_;
  Hold(park);
  conversation->next_park = std::max(conversation->next_park, summary.key.park + 1);
  auto place = std::upper_bound(
      conversation->parks.begin(), conversation->parks.end(), park.park,
      [](std::uint32_t number, const ParkState& other) { return number < other.park; });
  const std::size_t room = conversation->parks.capacity();
  ParkState* added = &*conversation->parks.insert(place, std::move(park));
  held_bytes_ += (conversation->parks.capacity() - room) * sizeof(ParkState);
  Count(conversation, *added, 1);
  return added;
}

ParkSummary Catalogue::GrowPark(Handle handle, ParkState* grown, ParkSummary summary,
                                const ParkSummary& piece) {
  ParkState& park = *grown;
  IndexPages(handle, piece.first_token, piece.page_hashes);
  summary.page_hashes.insert(summary.page_hashes.end(), piece.page_hashes.begin(),
                             piece.page_hashes.end());
  for (const TokenRange& range : piece.window_rows) AddRange(&summary.window_rows, range);
  summary.checkpoints.insert(summary.checkpoints.end(), piece.checkpoints.begin(),
                             piece.checkpoints.end());
  summary.token_count += piece.token_count;
  summary.payload_bytes += piece.payload_bytes;
  Release(park);
  Count(Get(handle), park, -1);
  park.count = summary.token_count;
  park.bytes = summary.payload_bytes;
  park.page_hashes = summary.page_hashes;
  park.window_rows = summary.window_rows;
  park.checkpoints = summary.checkpoints;
  Count(Get(handle), park, 1);
  Hold(park);
  return summary;
}

void Catalogue::ErasePages(Handle handle, const ParkState& park, std::uint32_t from_token,
                           bool evicted) {
  std::uint32_t page = park.first / kPageTokens;
  for (std::uint64_t hash : park.page_hashes) {
    const bool goes = (page + 1) * kPageTokens > from_token;
    if (goes && index_.Erase(hash, PageOwner{handle, page}) && evicted) {
      evicted_[hash % evicted_.size()] = hash;
    }
    ++page;
  }
}

std::uint32_t Catalogue::DepthOf(Handle handle) const {
  std::uint32_t depth = 0;
  for (handle = Get(handle)->parent; handle != kNoHandle; handle = Get(handle)->parent) ++depth;
  return depth;
}

void Catalogue::RemovePark(Conversation* conversation, std::size_t position,
                           std::vector<Removal>* out) {
  ParkState& park = conversation->parks[position];
  ErasePages(FindId(conversation->id), park, 0, !conversation->forgotten);
  out->push_back(Removal{park.tiers, ParkKey{conversation->id, park.park}, park.bytes,
                         conversation->forgotten, DepthOf(FindId(conversation->id))});
  Release(park);
  Count(conversation, park, -1);
  conversation->parks.erase(conversation->parks.begin() + static_cast<std::ptrdiff_t>(position));
}

void Catalogue::CutChildren(Handle handle, std::uint32_t limit, std::vector<Removal>* out) {
  const std::vector<Handle> children = Get(handle)->children;
  for (Handle child : children) {
    Conversation* conversation = Get(child);
    if (conversation->parent_tokens <= limit) continue;
    while (!conversation->parks.empty()) {
      RemovePark(conversation, conversation->parks.size() - 1, out);
    }
    CutChildren(child, 0, out);
    RemoveIfEmpty(child, out);
  }
}

void Catalogue::ShrinkForgotten(Handle handle, std::vector<Removal>* out) {
  Conversation* conversation = Get(handle);
  std::uint32_t kept = 0;
  for (Handle child : conversation->children) {
    kept = std::max(kept, Get(child)->parent_tokens);
  }
  conversation->kept_tokens = kept;
  conversation->attributes.name_tokens = kept;
  for (std::size_t i = conversation->parks.size(); i-- > 0;) {
    const ParkState& park = conversation->parks[i];
    // Window rows and checkpoints right where a fork leaves are of use to it.
    const bool needed = park.first < kept || (park.count == 0 && park.first == kept && kept > 0);
    if (needed) {
      ErasePages(handle, park, kept, false);
    } else {
      RemovePark(conversation, i, out);
    }
  }
}

void Catalogue::RemoveIfEmpty(Handle handle, std::vector<Removal>* out) {
  while (handle != kNoHandle) {
    Conversation* conversation = Get(handle);
    // A forgotten one goes with its last fork, which may be while that fork's own cut goes on.
    if (conversation == nullptr) return;
    if (conversation->forgotten) ShrinkForgotten(handle, out);
    if (!conversation->parks.empty() || !conversation->children.empty()) return;
    const Handle parent = conversation->parent;
    if (parent != kNoHandle) {
      std::erase(Get(parent)->children, handle);
      if (conversation->pinned_tokens > 0) LowerPins(parent);
    }
    by_id_.erase(conversation->id);
    ++version_;
    auto identity = by_identity_.find(conversation->identity);
    if (--identity->second == 0) by_identity_.erase(identity);
    held_bytes_ -= kConversationBytes + conversation->parks.capacity() * sizeof(ParkState);
    if (!conversation->indexed) --unindexed_;
    slots_[handle].reset();
    free_.push_back(handle);
    // A hidden parent stays only for its forks.
    if (parent == kNoHandle || !Get(parent)->forgotten) return;
    handle = parent;
  }
}

std::vector<Removal> Catalogue::CutAt(Handle handle, std::uint32_t park) {
  std::vector<Removal> out;
  Conversation* conversation = Get(handle);
  while (!conversation->parks.empty() && conversation->parks.back().park >= park) {
    RemovePark(conversation, conversation->parks.size() - 1, &out);
  }
  CutChildren(handle, conversation->tip(), &out);
  RemoveIfEmpty(handle, &out);
  return out;
}

std::vector<Removal> Catalogue::ClearTiers(Handle handle, std::uint32_t park, std::uint8_t tiers) {
  Conversation* conversation = Get(handle);
  ParkState* state = conversation == nullptr ? nullptr : conversation->FindPark(park);
  if (state == nullptr) return {};
  Count(conversation, *state, -1);
  state->tiers &= static_cast<std::uint8_t>(~tiers);
  Count(conversation, *state, 1);
  if (state->tiers != 0 || state->pending != nullptr) return {};
  if (state->count > 0) return CutAt(handle, park);
  // Window rows and checkpoints alone: nothing stands on them.
  std::vector<Removal> out;
  RemovePark(conversation, static_cast<std::size_t>(state - conversation->parks.data()), &out);
  RemoveIfEmpty(handle, &out);
  return out;
}

std::vector<Removal> Catalogue::Forget(Handle handle, std::uint32_t* kept_tokens) {
  Conversation* conversation = Get(handle);
  if (!conversation->forgotten) CountListed(*conversation, -1);
  conversation->forgotten = true;
  ++version_;
  conversation->attributes = ConversationAttributes{
      conversation->id, conversation->attributes.last_used_unix_ms, 0, false, "", 0};
  LowerPins(handle);
  std::vector<Removal> out;
  ShrinkForgotten(handle, &out);
  *kept_tokens = conversation->kept_tokens;
  RemoveIfEmpty(handle, &out);
  return out;
}

std::vector<PathPark> Catalogue::Path(Handle handle, std::uint32_t limit) const {
  std::vector<PathPark> path;
  while (handle != kNoHandle) {
    const Conversation* conversation = Get(handle);
    for (auto it = conversation->parks.rbegin(); it != conversation->parks.rend(); ++it) {
      if (it->count == 0 || it->first >= limit) continue;
      path.push_back(PathPark{handle, ParkKey{conversation->id, it->park},
                              TokenRange{it->first, std::min(it->end(), limit)}});
    }
    limit = std::min(limit, conversation->parent_tokens);
    handle = conversation->parent;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<const ParkState*> Catalogue::ParksAt(Handle handle, std::uint32_t position) const {
  std::vector<const ParkState*> found;
  std::uint32_t reach = position;
  while (handle != kNoHandle && reach == position) {
    const Conversation* conversation = Get(handle);
    for (const ParkState& park : conversation->parks) {
      if (park.count == 0 && park.first == position) found.push_back(&park);
    }
    reach = std::min(reach, conversation->parent_tokens);
    handle = conversation->parent;
  }
  return found;
}

Coverage Catalogue::CoverageOf(Handle handle, std::uint32_t limit) const {
  Coverage coverage;
  while (handle != kNoHandle) {
    const Conversation* conversation = Get(handle);
    for (const ParkState& park : conversation->parks) {
      for (TokenRange range : park.window_rows) {
        range.end = std::min(range.end, limit);
        AddRange(&coverage.window_rows, range);
      }
      for (std::uint32_t position : park.checkpoints) {
        if (position <= limit) coverage.checkpoints.push_back(position);
      }
    }
    limit = std::min(limit, conversation->parent_tokens);
    handle = conversation->parent;
  }
  std::sort(coverage.checkpoints.begin(), coverage.checkpoints.end());
  coverage.checkpoints.erase(std::unique(coverage.checkpoints.begin(), coverage.checkpoints.end()),
                             coverage.checkpoints.end());
  return coverage;
}

std::uint32_t Catalogue::TokensIn(Handle handle, std::uint8_t tier) const {
  const Conversation* conversation = Get(handle);
  std::uint32_t end = 0;
  for (const PathPark& step : Path(handle, conversation->tip())) {
    const ParkState* park = Get(step.conversation)->FindPark(step.key.park);
    if ((park->tiers & tier) == 0) break;
    end = step.tokens.end;
  }
  for (const ParkState& park : conversation->parks) {
    const bool waits = park.count == 0 && park.bytes > 0 && park.pending != nullptr;
    if (waits && (park.tiers & tier) == 0 && park.first > 0) end = std::min(end, park.first - 1);
  }
  return end;
}

Catalogue::PageMatch Catalogue::MatchPages(absl::Span<const std::uint64_t> hashes) const {
  PageMatch match;
  std::uint32_t pages = index_.LongestPrefix(hashes);
  while (pages > 0) {
    const std::optional<PageOwner> owner = index_.Find(hashes[pages - 1]);
    // The page number must agree, else two sequences share a hash: no match there.
    if (owner.has_value() && owner->page == pages - 1) {
      match.conversation = owner->conversation;
      match.pages = pages;
      return match;
    }
    --pages;
  }
  return match;
}

std::vector<Handle> Catalogue::Continuations(Handle handle, std::uint32_t position,
                                             std::size_t limit) const {
  std::vector<Handle> found;
  std::vector<Handle> todo = {handle};
  const std::uint32_t end = position + kPageTokens;
  while (!todo.empty()) {
    const Handle current = todo.back();
    todo.pop_back();
    for (Handle child : Get(current)->children) {
      const std::uint32_t at = Get(child)->parent_tokens;
      if (at < position || at >= end) continue;
      found.push_back(child);
      todo.push_back(child);
    }
  }
  std::sort(found.begin(), found.end(), [this](Handle a, Handle b) {
    return Get(a)->attributes.last_used_unix_ms > Get(b)->attributes.last_used_unix_ms;
  });
  found.insert(found.begin(), handle);
  if (found.size() > limit) found.resize(limit);
  return found;
}

void Catalogue::Unindex(Handle handle) {
  Conversation* conversation = Get(handle);
  if (!conversation->indexed) return;
  conversation->indexed = false;
  ++unindexed_;
  for (ParkState& park : conversation->parks) {
    ErasePages(handle, park, 0, !conversation->forgotten);
    Release(park);
    park.page_hashes = {};
    Hold(park);
  }
}

bool Catalogue::RecentlyEvicted(std::uint64_t page_hash) const {
  return page_hash != 0 && evicted_[page_hash % evicted_.size()] == page_hash;
}

Handle Catalogue::Visible(Handle handle, std::uint32_t tokens) const {
  while (Get(handle)->forgotten) {
    const std::vector<Handle>& children = Get(handle)->children;
    auto reaches = [&](Handle child) { return Get(child)->parent_tokens >= tokens; };
    auto child = std::find_if(children.begin(), children.end(), reaches);
    if (child == children.end()) return kNoHandle;
    handle = *child;
  }
  return handle;
}

std::optional<ParkSummary> Catalogue::SummaryOf(const ParkKey& key) const {
  const Handle handle = FindId(key.conversation);
  if (handle == kNoHandle) return std::nullopt;
  Conversation* conversation = slots_[handle].get();
  const ParkState* park = conversation->FindPark(key.park);
  if (park == nullptr) return std::nullopt;
  ParkSummary summary;
  summary.key = key;
  summary.identity = conversation->identity;
  if (conversation->parent != kNoHandle) {
    summary.parent = Get(conversation->parent)->id;
    summary.parent_tokens = conversation->parent_tokens;
  }
  summary.first_token = park->first;
  summary.token_count = park->count;
  summary.created_unix_ms = conversation->created_unix_ms;
  summary.payload_bytes = park->bytes;
  summary.page_hashes = park->page_hashes;
  summary.window_rows = park->window_rows;
  summary.checkpoints = park->checkpoints;
  summary.stages = *park->stages;
  return summary;
}

void Catalogue::Pin(Handle handle, const ParkKey& key, int delta) {
  Conversation* conversation = Get(handle);
  if (conversation == nullptr || !(conversation->id == key.conversation)) return;
  ParkState* state = conversation->FindPark(key.park);
  if (state == nullptr) return;
  if (delta < 0 && state->pins == 0) return;
  ++version_;
  state->pins = static_cast<std::uint32_t>(static_cast<int>(state->pins) + delta);
}

}  // namespace parkade
