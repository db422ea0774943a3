// Which parks to give up. Pure functions over usage; no clock, no lock, no tier.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace parkade {

// One conversation as eviction sees it. Indices are the caller's own.
struct EvictionCandidate {
  std::uint32_t conversation = 0;
  std::int32_t parent = -1;         // index in the candidates span, -1: root or parent elsewhere
  std::uint32_t parent_tokens = 0;  // how much of the parent this one needs
  std::int64_t last_used_unix_ms = 0;
  std::uint64_t hits = 0;
  bool pinned = false;  // by the user
  struct Park {
    std::uint32_t park = 0;
    std::uint32_t first_token = 0;
    std::uint32_t end_token = 0;
    std::uint64_t bytes = 0;
    bool held = false;  // in use now, or queued: not removable
  };
  std::vector<Park> parks;  // those in the tier, ascending
};

struct Victim {
  std::uint32_t candidate = 0;  // index in the span
  std::uint32_t park = 0;
  friend bool operator==(const Victim&, const Victim&) = default;
};

// Victims in the order in which to remove them, until their bytes reach `shortfall_bytes` or no
// candidate is left. Least valuable leaf first (older last use; more hits count as younger, each
// doubling of hits as one hour), its tail parks first; a parent's park goes only after every child
// that needs it; pinned conversations and what they stand on never; held parks and what is before
// them in the conversation never. Only the shortfall goes, rounded up to parks.
//
// A child needs its parent's parks that begin before parent_tokens, and parks without tokens up to
// and including it; what that parent in turn stands on is needed too. It needs them while one of
// its own parks is in the tier, or, pinned, always. One with neither needs nothing itself, but its
// own children's needs pass through it, cut at its parent_tokens. Parks of a parent beyond every
// child's need are a tail like any other and may go before the children.
//
// Fewer bytes than asked for means that nothing else may go. Equal values go by hits, then by
// conversation, so the order does not depend on the order of the span. A parent index out of range
// counts as -1; nothing in a cycle of parents is chosen. Costs O(n log n) for n candidates and
// parks, and one step more for each living fork of a conversation that has gone before it.
std::vector<Victim> ChooseVictims(absl::Span<const EvictionCandidate> candidates,
                                  std::uint64_t shortfall_bytes);

// Ranks candidates by the same order: result[i] is candidate i's rank, 0 goes first. What counts is
// when a conversation's last park would go. Behind those that would go entirely stand, each by
// value, those without a park, those that something holds, and the pinned ones.
std::vector<std::uint32_t> EvictionRanks(absl::Span<const EvictionCandidate> candidates);

}  // namespace parkade
