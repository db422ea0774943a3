// The cache: one lookup path, one park path, over an ordered list of tiers.
//
// Threads. Park, Restore::Step and FinishLookup belong to the engine's serving thread. They wait
// for no disk and no network; Step may be told to wait for bytes that the request itself needs.
// Everything else may be called from any thread. No call throws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parkade/engine.h"
#include "parkade/events.h"
#include "parkade/host_memory.h"
#include "parkade/identity.h"
#include "parkade/image.h"
#include "parkade/options.h"
#include "parkade/tier.h"

namespace parkade {

inline constexpr std::uint32_t kExplainTokens = 64;

struct LookupRequest {
  Digest128 identity;         // from RegisterIdentity
  std::vector<Token> tokens;  // the whole prompt
  // Tokens of the prompt that can be served from a cache: less than tokens.size() where something
  // follows whose state is not reproducible from token ids (an image).
  std::uint32_t cacheable_tokens = 0;
  // Longest common prefix of the prompt and what the slot holds now.
  std::uint32_t held_tokens = 0;
  // The slot holds nothing beyond held_tokens.
  bool held_all = false;
  // Where messages of the user begin, ascending; empty: not known. Only to name the boundary that a
  // restore goes back to.
  std::vector<std::uint32_t> user_starts = {};
  // False: no lookup, counted as `disabled`.
  bool enabled = true;
  // The engine's draft model: its stage (see IsDraft), whose name says which one, and its planes.
  // Rows of the same draft are restored, too, where all of them are there. No layers: none.
  Stage draft = {};
  StateLayout draft_layout = {};
  // Not zero: this conversation alone, from FindSession, however few tokens it has.
  ConversationId session = {};
  // Parts of the prompt that are reused as a whole or not at all (an image): ascending, disjoint.
  std::vector<TokenRange> whole_ranges = {};
  // What the slot holds from held_tokens on, at most kExplainTokens of it.
  std::vector<Token> held_next = {};
  // Names what a client changed (see LookupRecord::changed); empty: nothing known. `before` are the
  // equal tokens before the first differing one, `stored` and `wanted` what follows on either side;
  // none of them more than kExplainTokens. Called by FinishLookup, at most once, when more than
  // kExplainedMissTokens are computed because of it. May be null.
  std::function<std::string(absl::Span<const Token> before, absl::Span<const Token> stored,
                            absl::Span<const Token> wanted)>
      name_change = nullptr;
};

// One lookup and, when something was found, its restore. Created by Lookup, stepped and finished on
// the serving thread. Destroying it unpins, cancels the reading and counts nothing. Restores that
// are under way at the same time share the read buffers: step all of them, not one to its end.
class Restore {
 public:
  enum class State {
    kPlanning,  // comparing tokens, checking presence; nothing was touched
    kMiss,      // nothing better than what the slot holds; the slot was not touched
    kReading,   // placed or about to be; bytes are on their way
    kRestored,  // the sequence holds restored_tokens() tokens
    kFailed,    // the sequence was cleared; a miss
  };
  virtual ~Restore() = default;

  virtual State state() const = 0;
  // True when the next Step would do something: plan ready or bytes ready.
  virtual bool Ready() const = 0;
  // Blocks until Ready(), or the time is over.
  virtual bool WaitReady(std::int64_t timeout_ms) = 0;
  // True when a restore is going to replace what the slot holds: park the slot, then Step.
  virtual bool WillRestore() const = 0;
  // Imports what is ready for at most `budget_us`, at least one extent. Never blocks on a medium.
  virtual State Step(EngineSequence& sequence, std::int64_t budget_us) = 0;
  // The planned boundary while reading, what is really held when kRestored, 0 on a miss.
  virtual std::uint32_t restored_tokens() const = 0;
  // Of the plan, while reading and when kRestored: its tokens by where they are read from, an index
  // being a Source. What waits for a tier counts as RAM. All 0 otherwise.
  virtual std::array<std::uint32_t, kSources> planned_sources() const = 0;
};

struct ParkRequest {
  Digest128 identity;
  absl::Span<const Token> tokens;  // all tokens the sequence holds
  // Store window rows and recurrent state here: a client may come back to this position.
  bool boundary = true;
  // Also when there are fewer tokens than are usually kept: a person asked for it.
  bool always = false;
  // Not zero: what the sequence's task has gone on with so far. Where that was deleted meanwhile,
  // nothing of the task is kept, unless a person asks for it.
  ConversationId conversation = {};
};

struct ParkOutcome {
  // Positions below this are held by a tier or queued for one.
  std::uint32_t captured_tokens = 0;
  // False: buffers are full; call again later and it goes on.
  bool complete = true;
  // What holds them. Zero: nothing was kept.
  ConversationId conversation;
};

// A name for a conversation up to a position.
struct SavedSession {
  ConversationId conversation;  // listed under the name: a fork that adds nothing
  Digest128 identity;
  std::uint32_t token_count = 0;
  std::vector<Token> tokens;  // from FindSession only
  std::uint64_t bytes = 0;    // payload that it stands on; from SaveSession only
  bool durable = false;
};

// What a restore that is no lookup has done.
struct RestoreTotals {
  std::uint32_t tokens = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;
};

struct ConversationInfo {
  ConversationId id;
  std::string name;
  bool pinned = false;
  std::uint32_t tokens = 0;
  std::uint32_t durable_tokens = 0;
  std::uint64_t bytes = 0;  // own payload, parents' not included
  std::vector<TierKind> tiers;
  std::int64_t created_unix_ms = 0;
  std::int64_t last_used_unix_ms = 0;
  std::uint64_t hits = 0;
  std::optional<ConversationId> forked_from;
  std::uint32_t forked_at = 0;
  std::uint32_t evict_rank = 0;  // 0 goes first
  StageMap stages;               // of the newest park
  // Only in Get():
  struct ParkDetail {
    std::uint32_t park = 0;
    TokenRange tokens;
    std::uint64_t bytes = 0;
    std::vector<TierKind> tiers;
    std::vector<TokenRange> window_rows;
    std::vector<std::uint32_t> checkpoints;
    std::uint32_t stages = 0;
  };
  std::vector<ParkDetail> parks;
  std::uint64_t window_rows = 0;  // stored, of the conversation's own parks
  std::uint64_t window_bytes = 0;
  std::uint64_t checkpoint_bytes = 0;
};

struct TierInfo {
  TierKind kind;
  TierUsage usage;
  std::uint32_t conversations = 0;
  // Payload that stays for pinned conversations, and so much for each name as it costs on a disk.
  std::uint64_t pinned_bytes = 0;
  // Of the budget that SetBudget is given: what buffers and index take before the first image.
  std::uint64_t reserved_bytes = 0;
};

struct QueueInfo {
  std::uint64_t spill_queue_bytes = 0;
  std::uint64_t capture_bytes = 0;
  std::uint64_t index_bytes = 0;        // index and catalogue
  std::uint64_t host_memory_bytes = 0;  // got by UseHostMemory
  // Listed and stored, but not found any more: the index had no room for their pages.
  std::uint32_t unindexed_conversations = 0;
};

// Identities without a conversation that stay known.
inline constexpr std::size_t kIdleIdentities = 256;

class ConversationCache {
 public:
  virtual ~ConversationCache() = default;

  // `tiers` fastest first; at most one durable tier with a catalogue is rewarmed from. Reads
  // catalogues, no payload. `sink` must outlive the cache.
  static absl::StatusOr<std::unique_ptr<ConversationCache>> Open(
      const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers, EventSink* sink);

  // Makes an identity known and returns its digest. Memory only: a tier gets it before the first
  // park that needs it. Of those that nothing is parked under the kIdleIdentities last used are
  // kept; for one that was dropped lookups miss and nothing is parked until it is registered again.
  virtual absl::StatusOr<Digest128> RegisterIdentity(const Identity& identity,
                                                     const StateLayout& layout) = 0;

  // ---- the lookup path ----
  virtual std::unique_ptr<Restore> Lookup(LookupRequest request) = 0;
  // A hint for a task that waits for a slot: warms what Lookup would read. Returns at once.
  virtual void Prefetch(const Digest128& identity, absl::Span<const Token> tokens) = 0;
  // `tokens` prompt tokens behind `first` others were computed in `seconds`, by an engine that did
  // nothing else: what reading costs here, against which a restore is weighed.
  virtual void NotePromptRead(std::uint32_t first, std::uint32_t tokens, double seconds) = 0;
  // The engine has fixed its reuse: all counters of this lookup move, once.
  virtual void FinishLookup(std::unique_ptr<Restore> restore, std::uint32_t reused_tokens) = 0;
  // For a session that a person restored: bytes and times count, no lookup does.
  virtual RestoreTotals FinishSession(std::unique_ptr<Restore> restore) = 0;

  // ---- the park path ----
  virtual ParkOutcome Park(EngineSequence& sequence, const ParkRequest& request) = 0;
  // Rows of this sequence were dropped before they could be captured.
  virtual void CountSkippedPark(SkipReason reason, std::uint32_t tokens) = 0;

  // ---- management ----
  virtual std::vector<ConversationInfo> List(std::uint32_t limit,
                                             const ConversationId& after) const = 0;
  virtual std::optional<ConversationInfo> Get(const ConversationId& id) const = 0;
  virtual std::vector<LookupRecord> Lookups(std::uint32_t limit) const = 0;  // newest first
  // Costs the same however many conversations there are.
  virtual std::vector<TierInfo> Tiers() const = 0;
  virtual QueueInfo Queue() const = 0;
  // Not listed or matched from the return on. Returns the tokens a fork still needs.
  virtual absl::StatusOr<std::uint32_t> Forget(const ConversationId& id) = 0;
  // Nullopt: it keeps the name it has; empty: it loses it. NotFound: no such conversation;
  // AlreadyExists: another one has the name; ResourceExhausted: pins would hold more than 80 % of
  // a tier.
  virtual absl::Status Pin(const ConversationId& id, bool pinned,
                           const std::optional<std::string>& name) = 0;

  // ---- named sessions. These wait for media: not on the serving thread ----

  // Gives the first `tokens` tokens of a conversation (ParkOutcome::conversation) a name: they
  // stay, pinned, wherever the conversation goes on. Returns when the lowest tier holds all of it;
  // what had the name before has lost it then. On an error nothing is changed. NotFound: the
  // conversation is gone; ResourceExhausted: no room, or pins would hold more than 80 % of a tier;
  // Unavailable: not stored in time.
  virtual absl::StatusOr<SavedSession> SaveSession(const ConversationId& conversation,
                                                   std::uint32_t tokens, const std::string& name,
                                                   std::int64_t deadline_ms) = 0;
  // The session of a name, with its tokens; also a conversation that was given the name by Pin.
  virtual absl::StatusOr<SavedSession> FindSession(const std::string& name) = 0;
  // Name of the first field in which two registered identities differ; empty: none, or unknown.
  virtual std::string DifferentField(const Digest128& wanted, const Digest128& stored) const = 0;
  virtual absl::Status SetBudget(TierKind tier, std::uint64_t budget_bytes) = 0;
  // From now on buffers, and what the RAM tier keeps of them, are in this memory as far as it goes:
  // the budget's size at most, got ahead by a thread of the cache. Only the first call has an
  // effect. Buffers that an engine keeps must be let go before the cache closes.
  virtual void UseHostMemory(std::shared_ptr<HostMemory> memory) = 0;
  // Waits until the queue is empty or the time is over; what is left is dropped and counted.
  virtual void Drain(std::int64_t deadline_ms) = 0;
};

}  // namespace parkade
