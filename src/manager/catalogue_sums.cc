// What is kept as sums over the catalogue: conversations and pinned bytes by tier.

#include <algorithm>
#include <utility>

#include "src/manager/catalogue.h"

namespace parkade {
namespace {

// A park that is nothing but a name for a position.
bool IsName(const ParkState& park) {
  return park.count == 0 && park.bytes == 0 && park.window_rows.empty();
}

// Whether the first `tokens` tokens of its conversation stand on the park; those of a fork that
// leaves right there stand on window rows and checkpoints of that position, too.
bool Needs(std::uint32_t tokens, const ParkState& park) {
  return tokens > 0 && (park.first < tokens || (park.count == 0 && park.first == tokens));
}

std::uint64_t BytesPinned(const ParkState& park) {
  return park.bytes + (IsName(park) ? kNameBytes : 0);
}

// What is queued is going to be there.
bool IsIn(const ParkState& park, std::size_t tier) {
  return park.pending != nullptr || (park.tiers >> tier & 1) != 0;
}

}  // namespace

void Catalogue::Count(Conversation* conversation, const ParkState& park, int sign) {
  ++version_;
  for (std::size_t tier = 0; tier < kMostTiers; ++tier) {
    if ((park.tiers >> tier & 1) == 0) continue;
    std::uint32_t& parks = conversation->parks_in[tier];
    parks += static_cast<std::uint32_t>(sign);
    const bool first_or_last = parks == (sign > 0 ? 1u : 0u);
    if (first_or_last && !conversation->forgotten) {
      conversations_in_[tier] += static_cast<std::uint32_t>(sign);
    }
  }
  CountPinned(*conversation, park, sign);
}

void Catalogue::CountPinned(const Conversation& conversation, const ParkState& park, int sign) {
  if (!Needs(conversation.pinned_tokens, park)) return;
  const std::uint64_t bytes = BytesPinned(park);
  for (std::size_t tier = 0; tier < kMostTiers; ++tier) {
    if (IsIn(park, tier)) pinned_bytes_[tier] += sign > 0 ? bytes : -bytes;
  }
}

void Catalogue::CountListed(const Conversation& conversation, int sign) {
  for (std::size_t tier = 0; tier < kMostTiers; ++tier) {
    if (conversation.parks_in[tier] > 0) {
      conversations_in_[tier] += static_cast<std::uint32_t>(sign);
    }
  }
}

std::uint32_t Catalogue::PinnedTokensOf(const Conversation& conversation) const {
  if (conversation.attributes.pinned) return UINT32_MAX;
  std::uint32_t tokens = 0;
  for (const Handle handle : conversation.children) {
    const Conversation& child = *Get(handle);
    tokens = std::max(tokens, std::min(child.parent_tokens, child.pinned_tokens));
  }
  return tokens;
}

void Catalogue::SetPinnedTokens(Conversation* conversation, std::uint32_t tokens) {
  for (const ParkState& park : conversation->parks) CountPinned(*conversation, park, -1);
  conversation->pinned_tokens = tokens;
  for (const ParkState& park : conversation->parks) CountPinned(*conversation, park, 1);
}

void Catalogue::LowerPins(Handle handle) {
  while (handle != kNoHandle) {
    Conversation* conversation = Get(handle);
    const std::uint32_t tokens = PinnedTokensOf(*conversation);
    if (tokens == conversation->pinned_tokens) return;
    SetPinnedTokens(conversation, tokens);
    handle = conversation->parent;
  }
}

void Catalogue::RaisePins(Handle handle) {
  for (std::uint32_t tokens = UINT32_MAX; handle != kNoHandle;) {
    Conversation* conversation = Get(handle);
    if (conversation->pinned_tokens >= tokens) return;
    SetPinnedTokens(conversation, tokens);
    tokens = std::min(tokens, conversation->parent_tokens);
    handle = conversation->parent;
  }
}

void Catalogue::SetPinned(Handle handle, bool pinned) {
  ++version_;
  Get(handle)->attributes.pinned = pinned;
  if (pinned) {
    RaisePins(handle);
  } else {
    LowerPins(handle);
  }
}

void Catalogue::RecountPins() {
  for (const auto& [id, handle] : by_id_) SetPinnedTokens(Get(handle), 0);
  for (const auto& [id, handle] : by_id_) {
    if (Get(handle)->attributes.pinned) RaisePins(handle);
  }
}

std::uint64_t Catalogue::BytesToPin(std::size_t tier, Handle handle, std::uint32_t tokens) const {
  std::uint64_t bytes = 0;
  while (handle != kNoHandle) {
    const Conversation* conversation = Get(handle);
    for (const ParkState& park : conversation->parks) {
      const bool more = Needs(tokens, park) && !Needs(conversation->pinned_tokens, park);
      if (more && IsIn(park, tier)) bytes += BytesPinned(park);
    }
    tokens = std::min(tokens, conversation->parent_tokens);
    handle = conversation->parent;
  }
  return bytes;
}

void Catalogue::AddTiers(Handle handle, ParkState* park, std::uint8_t tiers) {
  Count(Get(handle), *park, -1);
  park->tiers |= tiers;
  Count(Get(handle), *park, 1);
}

void Catalogue::SetPending(Handle handle, ParkState* park, std::shared_ptr<PendingPark> pending) {
  Count(Get(handle), *park, -1);
  park->pending = std::move(pending);
  Count(Get(handle), *park, 1);
}

}  // namespace parkade
