// What is parked where, in RAM: conversations as a tree of forks, their parks, and the page index.
// Not synchronised: the cache's lock covers it. No I/O, no tier, no engine.
//
// What people and scrapes ask for often is kept as sums: conversations and pinned bytes by tier. So
// a park's tiers, its place in the queue and a conversation's pin change only through the
// catalogue.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "parkade/conversation_cache.h"
#include "parkade/image.h"
#include "src/index/page_index.h"
#include "src/manager/boundary.h"

namespace parkade {

struct PendingPark;  // bytes that no tier has yet; see spill.h

// Tiers are bits of a byte.
inline constexpr std::size_t kMostTiers = 8;

// What a name costs on a disk beside what it stands on: the segment of its park, that of its
// attributes and their catalogue rows, with something to spare. A name is pinned, so that without
// it names alone could fill a tier that nothing may be evicted from.
inline constexpr std::uint64_t kNameBytes = 16u << 10;

using Handle = std::uint32_t;
inline constexpr Handle kNoHandle = 0xFFFFFFFFu;

struct ParkState {
  std::uint32_t park = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint8_t tiers = 0;  // bit i: the i-th tier holds it
  std::uint32_t pins = 0;
  std::uint64_t bytes = 0;
  std::shared_ptr<PendingPark> pending;
  std::shared_ptr<const StageMap> stages;
  std::vector<std::uint64_t> page_hashes;
  std::vector<TokenRange> window_rows;
  std::vector<std::uint32_t> checkpoints;

  std::uint32_t end() const { return first + count; }
  // Recurrent state at `first`, or a part of it, and nothing else.
  bool IsCheckpoint() const { return count == 0 && bytes > 0 && window_rows.empty(); }
};

// The same of a park as a tier stores it.
inline bool IsCheckpoint(const ParkRecord& record) {
  return !record.extents.empty() && record.extents.front().group == RowGroup::kState;
}

struct Conversation {
  ConversationId id;
  Digest128 identity;
  Handle parent = kNoHandle;
  std::uint32_t parent_tokens = 0;
  // Tokens of it that pinned conversations stand on; UINT32_MAX: it is pinned itself.
  std::uint32_t pinned_tokens = 0;
  std::array<std::uint32_t, kMostTiers> parks_in = {};  // by tier
  std::vector<Handle> children;
  std::vector<ParkState> parks;  // ascending by number
  std::uint32_t next_park = 0;
  bool forgotten = false;         // kept only for what forks stand on
  std::uint32_t kept_tokens = 0;  // when forgotten: what the forks stand on
  bool indexed = true;            // false: its pages were given up, nothing finds it
  bool attributes_dirty = false;
  std::int64_t created_unix_ms = 0;
  std::int64_t written_unix_ms = 0;   // when the attributes were last written
  ConversationAttributes attributes;  // `pinned` is set by Catalogue::SetPinned

  // Tokens of the whole sequence, the parent's included; of a forgotten one what forks stand on.
  std::uint32_t tip() const;
  ParkState* FindPark(std::uint32_t park);
  const ParkState* FindPark(std::uint32_t park) const;
};

// One park on the way from the root to a position, with the part of it that lies on that way.
struct PathPark {
  Handle conversation = kNoHandle;
  ParkKey key;
  TokenRange tokens;
};

// What has to be taken out of a tier.
struct Removal {
  std::uint8_t tiers = 0;
  ParkKey key;
  std::uint64_t bytes = 0;
  bool forgotten = false;  // a person asked for it: no text may stay behind
  std::uint32_t depth = 0;  // forks above it: what stands on another is deeper
};

class Catalogue {
 public:
  Handle Create(const ConversationId& id, const Digest128& identity, Handle parent,
                std::uint32_t parent_tokens, std::int64_t now_unix_ms);
  Conversation* Get(Handle handle);
  const Conversation* Get(Handle handle) const;
  Handle FindId(const ConversationId& id) const;

  // Adds a park, in the order of its number, and its pages to the index.
  ParkState* AddPark(Handle handle, const ParkSummary& summary, std::uint8_t tiers);
  // As AddPark, for many: their pages are entered by IndexNewestFirst, which is called once, after
  // the last uses are known. Of conversations that hold the same tokens the newest owns the pages,
  // so that it does not lose them with an older one.
  ParkState* AddParkUnindexed(Handle handle, const ParkSummary& summary, std::uint8_t tiers);
  void IndexNewestFirst();

  // More tiers hold the park.
  void AddTiers(Handle handle, ParkState* park, std::uint8_t tiers);
  // Where its bytes wait; null: nowhere any more.
  void SetPending(Handle handle, ParkState* park, std::shared_ptr<PendingPark> pending);
  // Costs a step for each ancestor; unpinning one more for each sibling.
  void SetPinned(Handle handle, bool pinned);
  // It was used, and what it stands on with it; `hit`: something of it was restored.
  void Touch(Handle handle, std::int64_t now_unix_ms, bool hit);
  // Another one whenever something changed that the order of eviction follows from.
  std::uint64_t version() const { return version_; }
  // Finds out anew what is pinned: after attributes and parents were filled in from outside.
  void RecountPins();

  // The park takes over `piece`, which begins where it ends: page hashes, window rows, checkpoints
  // and bytes in the catalogue and the index. Returns `summary` with the same added.
  ParkSummary GrowPark(Handle handle, ParkState* park, ParkSummary summary,
                       const ParkSummary& piece);

  // How many conversations it stands on.
  std::uint32_t DepthOf(Handle handle) const;

  // Clears tier bits of a park. When nothing holds it any more it goes, with every later park of
  // the conversation and every fork that stands on them; all of that is returned for removal.
  std::vector<Removal> ClearTiers(Handle handle, std::uint32_t park, std::uint8_t tiers);
  // Ends a conversation at the parks before `park`.
  std::vector<Removal> CutAt(Handle handle, std::uint32_t park);
  // Forgets: what no fork stands on is returned, the rest stays hidden until the last fork goes.
  // *kept_tokens: how many.
  std::vector<Removal> Forget(Handle handle, std::uint32_t* kept_tokens);

  // Parks that hold tokens [0, limit) of the conversation's sequence, root first.
  std::vector<PathPark> Path(Handle handle, std::uint32_t limit) const;
  // Parks without tokens at this position of the sequence: checkpoints and late window rows.
  std::vector<const ParkState*> ParksAt(Handle handle, std::uint32_t position) const;
  Coverage CoverageOf(Handle handle, std::uint32_t limit) const;
  // End of the tokens that tier bit `tier` holds without a gap from 0, and from which one can go
  // on: what a queued checkpoint, or queued window rows, stand for is not there yet.
  std::uint32_t TokensIn(Handle handle, std::uint8_t tier) const;

  struct PageMatch {
    Handle conversation = kNoHandle;
    std::uint32_t pages = 0;
  };
  PageMatch MatchPages(absl::Span<const std::uint64_t> hashes) const;
  // The conversation and forks of it that may go on with tokens of the page that begins at
  // `position`: itself first, then newest first, at most `limit`.
  std::vector<Handle> Continuations(Handle handle, std::uint32_t position, std::size_t limit) const;
  // Gives up the pages of a conversation: it stays, but is not matched any more.
  void Unindex(Handle handle);
  std::uint32_t unindexed() const { return unindexed_; }
  bool RecentlyEvicted(std::uint64_t page_hash) const;
  // The conversation itself, or for a forgotten one the fork of it that holds tokens [0, tokens).
  Handle Visible(Handle handle, std::uint32_t tokens) const;

  // The park's summary as a tier stores it; its tokens and extents are elsewhere.
  std::optional<ParkSummary> SummaryOf(const ParkKey& key) const;

  // Does nothing when the handle is another conversation's by now, or the park is gone.
  void Pin(Handle handle, const ParkKey& key, int delta);

  // Whether any conversation has this identity.
  bool Uses(const Digest128& identity) const { return by_identity_.contains(identity); }

  // Conversations that are listed and of which the tier holds something.
  std::uint32_t ConversationsIn(std::size_t tier) const { return conversations_in_[tier]; }
  // Bytes in the tier, or on the way to it, that stay for pinned conversations.
  std::uint64_t PinnedBytes(std::size_t tier) const { return pinned_bytes_[tier]; }
  // What pinning the first `tokens` tokens of a conversation would add to that. Costs a step for
  // each park of it and of what it stands on.
  std::uint64_t BytesToPin(std::size_t tier, Handle handle, std::uint32_t tokens) const;

  std::size_t size() const { return by_id_.size(); }
  const std::map<ConversationId, Handle>& by_id() const { return by_id_; }
  std::uint64_t index_bytes() const { return index_.memory_bytes(); }
  // Of memory_bytes, what Unindex can give back of it all.
  std::uint64_t page_bytes() const {
    return index_.memory_bytes() + hashed_pages_ * sizeof(std::uint64_t);
  }
  std::uint64_t memory_bytes() const {
    return index_.memory_bytes() + evicted_.size() * sizeof(std::uint64_t) + held_bytes_;
  }

 private:
  void IndexPages(Handle handle, std::uint32_t first_token,
                  const std::vector<std::uint64_t>& hashes);
  // Count a park in (1) or out (-1): around every change of what it holds and where it is, and of
  // the conversation's pinned_tokens.
  void Count(Conversation* conversation, const ParkState& park, int sign);
  void CountPinned(const Conversation& conversation, const ParkState& park, int sign);
  // Whether the conversation is listed has changed.
  void CountListed(const Conversation& conversation, int sign);
  // Tokens of it that its children and its own pin need now.
  std::uint32_t PinnedTokensOf(const Conversation& conversation) const;
  void SetPinnedTokens(Conversation* conversation, std::uint32_t tokens);
  // The conversation was pinned: what it stands on is, too.
  void RaisePins(Handle handle);
  // Less may be pinned of the conversation than before, and of what it stands on.
  void LowerPins(Handle handle);
  // Counts what a park holds besides its place among the conversation's parks, in or out.
  void Hold(const ParkState& park);
  void Release(const ParkState& park);
  void RemovePark(Conversation* conversation, std::size_t position, std::vector<Removal>* out);
  void RemoveIfEmpty(Handle handle, std::vector<Removal>* out);
  void ErasePages(Handle handle, const ParkState& park, std::uint32_t from_token, bool evicted);
  // Takes out of a forgotten conversation what no fork stands on.
  void ShrinkForgotten(Handle handle, std::vector<Removal>* out);
  void CutChildren(Handle handle, std::uint32_t limit, std::vector<Removal>* out);

  std::vector<std::unique_ptr<Conversation>> slots_;
  std::vector<Handle> free_;
  std::map<ConversationId, Handle> by_id_;
  std::map<Digest128, std::uint32_t> by_identity_;  // how many conversations
  PageIndex index_;
  std::uint64_t held_bytes_ = 0;  // conversations and parks
  std::uint64_t hashed_pages_ = 0;
  std::uint32_t unindexed_ = 0;
  std::uint64_t version_ = 0;
  std::array<std::uint32_t, kMostTiers> conversations_in_ = {};
  std::array<std::uint64_t, kMostTiers> pinned_bytes_ = {};
  std::shared_ptr<const StageMap> last_stages_;  // most parks share one
  std::vector<std::uint64_t> evicted_ = std::vector<std::uint64_t>(1u << 16);
};

}  // namespace parkade
