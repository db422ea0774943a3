#include "src/policy/eviction.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

namespace parkade {
namespace {

constexpr double kMsPerDoubling = 3600.0 * 1000.0;

// Last use moved forward by what the hits are worth; at most 64 hours.
std::int64_t ValueMs(const EvictionCandidate& candidate) {
  if (candidate.hits < 2) return candidate.last_used_unix_ms;
  const auto bonus_ms = static_cast<std::int64_t>(
      std::llround(std::log2(static_cast<double>(candidate.hits)) * kMsPerDoubling));
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (candidate.last_used_unix_ms > kMax - bonus_ms) return kMax;
  return candidate.last_used_unix_ms + bonus_ms;
}

// Candidate indices, least valuable first.
std::vector<std::uint32_t> SortByValue(absl::Span<const EvictionCandidate> candidates) {
  using Key = std::tuple<std::int64_t, std::uint64_t, std::uint32_t, std::uint32_t>;
  std::vector<Key> keys;
  keys.reserve(candidates.size());
  for (std::uint32_t i = 0; i < candidates.size(); ++i) {
    const EvictionCandidate& candidate = candidates[i];
    keys.emplace_back(ValueMs(candidate), candidate.hits, candidate.conversation, i);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<std::uint32_t> order;
  order.reserve(keys.size());
  for (const Key& key : keys) order.push_back(std::get<3>(key));
  return order;
}

bool Needs(std::uint32_t tokens, const EvictionCandidate::Park& park) {
  if (tokens == 0) return false;
  if (park.first_token < tokens) return true;
  // Window rows or a checkpoint at the very position where the fork leaves.
  return park.first_token == tokens && park.end_token == tokens;
}

// Removes park by park. A conversation whose last park has gone is taken out of the tree: its
// children become children of its parent, so that a need never has to be looked for through it.
class Removal {
 public:
  explicit Removal(absl::Span<const EvictionCandidate> candidates);

  struct Step {
    std::uint32_t candidate = 0;
    const EvictionCandidate::Park* park = nullptr;
    bool last = false;  // nothing of the candidate is left
  };
  // The next park to go; nullopt when nothing else may.
  std::optional<Step> Next();

  const std::vector<std::uint32_t>& by_value() const { return by_value_; }

 private:
  struct Need {
    std::uint32_t tokens = 0;
    std::uint32_t child = 0;
    friend bool operator<(const Need& a, const Need& b) { return a.tokens < b.tokens; }
  };
  struct State {
    std::int32_t parent = -1;
    std::uint32_t parent_tokens = 0;
    std::uint32_t rank = 0;   // place in by_value_
    std::size_t left = 0;     // parks not removed yet
    std::size_t kept = 0;     // leading parks that must stay for now; only ever falls
    std::size_t held = 0;     // leading parks that must stay whatever the children do
    bool ready = false;       // in ready_
    std::vector<Need> needs;  // heap, most tokens first; entries of dead children fall off late
  };

  bool Alive(std::uint32_t i) const { return states_[i].left > 0 || candidates_[i].pinned; }
  void LinkParents();
  // Every candidate that a root leads to, parents before children.
  std::vector<std::uint32_t> ParentsFirst() const;
  static std::size_t HeldParks(const EvictionCandidate& candidate);
  void AddNeed(std::uint32_t parent, Need need);
  // Gives the children of a dead candidate to its parent.
  void Splice(std::uint32_t i);
  // Finds out what is needed of a candidate now, and queues it if a park of it may go.
  void Refresh(std::uint32_t i);

  absl::Span<const EvictionCandidate> candidates_;
  std::vector<std::uint32_t> by_value_;
  std::vector<State> states_;
  // Places in by_value_ of candidates that can lose a park now, lowest first.
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready_;
};

Removal::Removal(absl::Span<const EvictionCandidate> candidates)
    : candidates_(candidates), by_value_(SortByValue(candidates)), states_(candidates.size()) {
  for (std::uint32_t rank = 0; rank < by_value_.size(); ++rank) {
    states_[by_value_[rank]].rank = rank;
  }
  LinkParents();
  const std::vector<std::uint32_t> order = ParentsFirst();
  for (const std::uint32_t i : order) {
    states_[i].held = HeldParks(candidates_[i]);
    // Parents first: a child is moved once, however long the chain of dead ones above it.
    if (!Alive(i)) Splice(i);
  }
  for (const std::uint32_t i : order) Refresh(i);
}

void Removal::LinkParents() {
  for (std::uint32_t i = 0; i < candidates_.size(); ++i) {
    State& state = states_[i];
    // Until ParentsFirst has reached it, everything of it stays: so it is with a cycle.
    state.left = state.kept = state.held = candidates_[i].parks.size();
    const std::int32_t parent = candidates_[i].parent;
    if (parent < 0 || static_cast<std::size_t>(parent) >= candidates_.size()) continue;
    state.parent = parent;
    state.parent_tokens = candidates_[i].parent_tokens;
    AddNeed(static_cast<std::uint32_t>(parent), {state.parent_tokens, i});
  }
}

std::vector<std::uint32_t> Removal::ParentsFirst() const {
  std::vector<std::uint32_t> order;
  order.reserve(states_.size());
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    if (states_[i].parent < 0) order.push_back(i);
  }
  for (std::size_t next = 0; next < order.size(); ++next) {
    for (const Need& need : states_[order[next]].needs) order.push_back(need.child);
  }
  return order;
}

std::size_t Removal::HeldParks(const EvictionCandidate& candidate) {
  std::size_t held = candidate.parks.size();
  if (candidate.pinned) return held;
  while (held > 0 && !candidate.parks[held - 1].held) --held;
  return held;
}

void Removal::AddNeed(std::uint32_t parent, Need need) {
  std::vector<Need>& needs = states_[parent].needs;
  needs.push_back(need);
  std::push_heap(needs.begin(), needs.end());
}

void Removal::Splice(std::uint32_t i) {
  State& gone = states_[i];
  for (const Need& need : gone.needs) {
    State& child = states_[need.child];
    child.parent = gone.parent;
    child.parent_tokens = std::min(need.tokens, gone.parent_tokens);
    if (gone.parent >= 0 && Alive(need.child)) {
      AddNeed(static_cast<std::uint32_t>(gone.parent), {child.parent_tokens, need.child});
    }
  }
  gone.needs.clear();
}

void Removal::Refresh(std::uint32_t i) {
  State& state = states_[i];
  std::vector<Need>& needs = state.needs;
  while (!needs.empty() && !Alive(needs.front().child)) {
    std::pop_heap(needs.begin(), needs.end());
    needs.pop_back();
  }
  const std::uint32_t tokens = needs.empty() ? 0 : needs.front().tokens;
  const std::vector<EvictionCandidate::Park>& parks = candidates_[i].parks;
  while (state.kept > state.held && !Needs(tokens, parks[state.kept - 1])) --state.kept;
  if (state.left > state.kept && !state.ready) {
    state.ready = true;
    ready_.push(state.rank);
  }
}

std::optional<Removal::Step> Removal::Next() {
  if (ready_.empty()) return std::nullopt;
  const std::uint32_t i = by_value_[ready_.top()];
  State& state = states_[i];
  --state.left;
  const Step step{i, &candidates_[i].parks[state.left], state.left == 0};
  if (state.left == state.kept) {
    ready_.pop();
    state.ready = false;
  }
  if (step.last) {
    Splice(i);
    if (state.parent >= 0) Refresh(static_cast<std::uint32_t>(state.parent));
  }
  return step;
}

}  // namespace

std::vector<Victim> ChooseVictims(absl::Span<const EvictionCandidate> candidates,
                                  std::uint64_t shortfall_bytes) {
  std::vector<Victim> victims;
  if (shortfall_bytes == 0) return victims;
  Removal removal(candidates);
  while (shortfall_bytes > 0) {
    const auto step = removal.Next();
    if (!step) break;
    victims.push_back({step->candidate, step->park->park});
    shortfall_bytes -= std::min(shortfall_bytes, step->park->bytes);
  }
  return victims;
}

std::vector<std::uint32_t> EvictionRanks(absl::Span<const EvictionCandidate> candidates) {
  constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> ranks(candidates.size(), kNone);
  std::uint32_t next = 0;
  Removal removal(candidates);
  while (const auto step = removal.Next()) {
    if (step->last) ranks[step->candidate] = next++;
  }
  std::vector<std::uint32_t> rest;
  for (const std::uint32_t i : removal.by_value()) {
    if (ranks[i] == kNone) rest.push_back(i);
  }
  const auto group = [&](std::uint32_t i) {
    if (candidates[i].pinned) return 2;
    return candidates[i].parks.empty() ? 0 : 1;
  };
  std::stable_sort(rest.begin(), rest.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return group(a) < group(b); });
  for (const std::uint32_t i : rest) ranks[i] = next++;
  return ranks;
}

}  // namespace parkade
