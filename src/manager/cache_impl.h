// The cache behind ConversationCache. Parts of it live in files by path: lookup.cc (plan),
// restore.cc (import), reading.cc (threads that read ahead), promotion.cc (of what was read in
// part), park.cc (capture), spill.cc (writer threads), shared_find.cc and publish.cc (a tier that
// other machines write, too), eviction.cc, thinning.cc (checkpoints), index_limit.cc, worth.cc
// (cost), attributes.cc, accounting.cc (counters), listing.cc (management).
//
// Lock order: mu_, then RestoreOp::mu, then the locks inside BufferPool and TokenCache. Tiers are
// never called with a lock held.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "parkade/conversation_cache.h"
#include "parkade/shared_tier.h"
#include "src/manager/buffer_pool.h"
#include "src/manager/catalogue.h"
#include "src/manager/recent_uses.h"
#include "src/manager/restore_op.h"
#include "src/manager/shared_reads.h"
#include "src/manager/token_cache.h"
#include "src/policy/eviction.h"
#include "src/policy/load_speed.h"
#include "src/policy/prompt_speed.h"
#include "src/policy/thinning.h"

namespace parkade {

// Debian's Abseil has a string_view of its own.
inline std::string_view Text(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// A captured park that is on its way to the tiers. Guarded by the cache's lock, but for the bytes.
struct PendingPark {
  Handle conversation = kNoHandle;
  std::shared_ptr<const ParkRecord> record;  // replaced when it grows or its checksums are known
  std::vector<ExtentBytes> payload;
  bool begun = false;   // a writer works on it: it does not grow any more
  bool sealed = false;  // checksums are known
};

class CacheImpl : public ConversationCache {
 public:
  CacheImpl(const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers, EventSink* sink);
  ~CacheImpl() override;
  absl::Status Start();

  absl::StatusOr<Digest128> RegisterIdentity(const Identity& identity,
                                             const StateLayout& layout) override;
  std::unique_ptr<Restore> Lookup(LookupRequest request) override;
  void Prefetch(const Digest128& identity, absl::Span<const Token> tokens) override;
  void NotePromptRead(std::uint32_t first, std::uint32_t tokens, double seconds) override;
  void FinishLookup(std::unique_ptr<Restore> restore, std::uint32_t reused_tokens) override;
  RestoreTotals FinishSession(std::unique_ptr<Restore> restore) override;
  ParkOutcome Park(EngineSequence& sequence, const ParkRequest& request) override;
  void CountSkippedPark(SkipReason reason, std::uint32_t tokens) override;
  std::vector<ConversationInfo> List(std::uint32_t limit,
                                     const ConversationId& after) const override;
  std::optional<ConversationInfo> Get(const ConversationId& id) const override;
  std::vector<LookupRecord> Lookups(std::uint32_t limit) const override;
  std::vector<TierInfo> Tiers() const override;
  QueueInfo Queue() const override;
  absl::StatusOr<std::uint32_t> Forget(const ConversationId& id) override;
  absl::Status Pin(const ConversationId& id, bool pinned,
                   const std::optional<std::string>& name) override;
  absl::StatusOr<SavedSession> SaveSession(const ConversationId& conversation, std::uint32_t tokens,
                                           const std::string& name,
                                           std::int64_t deadline_ms) override;
  absl::StatusOr<SavedSession> FindSession(const std::string& name) override;
  std::string DifferentField(const Digest128& wanted, const Digest128& stored) const override;
  absl::Status SetBudget(TierKind tier, std::uint64_t budget_bytes) override;
  void UseHostMemory(std::shared_ptr<HostMemory> memory) override;
  void Drain(std::int64_t deadline_ms) override;

  // Serving thread's half of a restore; see restore.cc.
  Restore::State StepRestore(RestoreOp* op, EngineSequence& sequence, std::int64_t budget_us);
  void Abandon(const std::shared_ptr<RestoreOp>& op);

 private:
  // ---- shared_find.cc ----
  SharedTier* Shared() const { return shared_tier_ < 0 ? nullptr : tiers_[shared_tier_]->shared(); }
  void StartShared();
  // Whether the shared tier may have more of the prompt than `matched` tokens, and is worth asking.
  // Notes in *op when that would be so and it can't be reached.
  bool MayAskShared(RestoreOp* op, std::uint32_t matched);
  // Parks that the match goes through and only the shared tier holds.
  std::vector<ParkKey> FarParks(const RestoreOp& op) const ABSL_LOCKS_EXCLUDED(mu_);
  void Ask(RestoreOp* op);
  void SubmitFind(const std::shared_ptr<RestoreOp>& op);
  void FinderLoop();
  void FarReaderLoop();
  void NoteFindTime(absl::Duration took) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the parks into the catalogue, so that the lookup goes on as if they had been there.
  void Adopt(RestoreOp* op, const std::vector<FoundPark>& found);
  AdoptSpot SpotFor(const RestoreOp& op, const std::vector<FoundPark>& found) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AdoptFrom(const RestoreOp& op, const AdoptSpot& spot, const std::vector<FoundPark>& found,
                 const std::vector<std::vector<std::uint64_t>>& hashes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsShared(int tier) const { return tier != kFromQueue && tier == shared_tier_; }

  // ---- worth.cc ----
  void NoteRestoreSpeed(const RestoreOp& op) ABSL_LOCKS_EXCLUDED(mu_);
  std::uint32_t WorthUpTo(RestoreOp* op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsWorthAsking(const TokenRange& tokens) ABSL_LOCKS_EXCLUDED(mu_);

  // ---- publish.cc ----
  void SubmitPublish(const ConversationId& id) ABSL_LOCKS_EXCLUDED(mu_);
  void PublishLoop();
  // A conversation as a shared tier is told of it; nothing: it is gone, or has nothing to tell.
  std::optional<PublishRequest> WayOf(const ConversationId& id) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status PublishOne(const ConversationId& id);
  absl::StatusOr<PublishPayload> ReadForPublishing(const PublishStep& step);
  absl::StatusOr<PublishPayload> ReadWhole(std::size_t tier, const ParkKey& key);
  void NotePublished(const std::vector<ParkKey>& keys) ABSL_LOCKS_EXCLUDED(mu_);
  bool CanPublish() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool CanErase() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A lookup uses a conversation: what the shared tier has of it must not expire.
  void RenewShared(const ConversationId& id) ABSL_LOCKS_EXCLUDED(mu_);
  void EraseShared(const ConversationId& id, PublishRequest way);
  bool EraseOne();
  void DrainPublishing(absl::Time deadline);

  // ---- lookup.cc ----
  std::vector<std::uint64_t> PageHashes(const Digest128& identity,
                                        absl::Span<const Token> tokens) const;
  void MakePlan(const std::shared_ptr<RestoreOp>& op);
  void ReadFollowingTokens(Handle conversation, std::uint32_t matched) ABSL_LOCKS_EXCLUDED(mu_);
  struct TokenSource {
    PathPark step;
    std::uint32_t count = 0;  // tokens of the whole park
    std::uint8_t tiers = 0;
    SharedTokens queued;
  };
  struct MatchCandidate {
    Handle conversation = kNoHandle;
    std::vector<ParkKey> path;
    std::vector<TokenSource> sources;
  };
  std::vector<MatchCandidate> GatherCandidates(RestoreOp* op);
  TokenSource TokenSourceOf(const PathPark& step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::uint32_t CompareTokens(RestoreOp* op, const MatchCandidate& candidate, std::uint32_t matched,
                              bool* differs, std::vector<Token>* stored_next);
  bool FindBestMatch(RestoreOp* op);
  enum class Choice { kGo, kNotWorth, kChanged };
  Choice ChooseSources(RestoreOp* op);
  bool PlanUpTo(RestoreOp* op, std::uint32_t limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PlanParks(RestoreOp* op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::vector<ExtentInfo>> ExtentsOf(const RestoreOp& op, const PlannedPark& park);
  absl::Status CollectExtents(RestoreOp* op, std::uint32_t* failed_park);
  void StartReading(const std::shared_ptr<RestoreOp>& op);
  bool GiveUpPark(RestoreOp* op, std::uint32_t index, const absl::Status& status);
  // A tier could not give a part of a park. True: damaged or gone, so it was taken out of the
  // tier and is never asked for again; false: the tier may have it another time.
  bool GiveUpCopy(std::size_t tier, const ParkKey& key, const absl::Status& status);
  SharedTokens TokensOf(const ParkKey& key, std::uint32_t count, std::uint8_t tiers);
  void Unpin(RestoreOp* op);

  // ---- restore.cc ----
  Restore::State EndRestore(RestoreOp* op, Restore::State state, std::string_view why);
  Restore::State FailRestore(RestoreOp* op, EngineSequence& sequence, const absl::Status& status);
  Restore::State StepReading(RestoreOp* op, EngineSequence& sequence, absl::Duration budget);
  absl::Status ImportReady(RestoreOp* op, EngineSequence& sequence, absl::Time deadline,
                           bool* more);

  // ---- reading.cc ----
  void ReaderLoop();
  static bool WantsReader(const std::shared_ptr<RestoreOp>& op);
  std::shared_ptr<RestoreOp> TakeRead(bool far) ABSL_EXCLUSIVE_LOCKS_REQUIRED(reader_mu_);
  void WakeReaders();
  void SubmitPlan(const std::shared_ptr<RestoreOp>& op);
  void SubmitReads(const std::shared_ptr<RestoreOp>& op);
  void ReadOne(const std::shared_ptr<RestoreOp>& op);
  std::shared_ptr<ExtentBuffer> ReadBuffer(std::size_t bytes, bool promoted);
  ExtentBytes CutForFork(RestoreOp* op, const PlannedExtent& extent, ExtentBytes bytes);
  absl::StatusOr<ExtentBytes> FetchExtent(RestoreOp* op, std::uint32_t index);
  absl::StatusOr<ExtentBytes> ReadShared(const SharedReads::Key& key, bool promoted);
  static absl::Status CheckExtent(const ExtentInfo& info, const ExtentBuffer& bytes);
  void FailRead(RestoreOp* op, std::uint32_t index, const absl::Status& status);
  void PreparePromotions(RestoreOp* op);
  void CollectPromotion(RestoreOp* op, std::uint32_t index, const ExtentBytes& bytes);
  absl::StatusOr<ParkRecord> RecordOf(const ParkKey& key, std::vector<ExtentInfo> extents);
  bool StoreCopy(std::size_t tier, const ParkRecord& record,
                 const std::vector<ExtentBytes>& payload);
  bool Holds(std::size_t tier, const ParkKey& key) const;
  bool NoteStored(std::size_t tier, const ParkKey& key);

  // ---- promotion.cc ----
  // A promotion of which a restore has read a part.
  struct PartialPromotion {
    std::size_t tier = 0;
    ParkKey key;
    std::unique_ptr<Promotion> part;
  };
  void NotePartialUses(const RestoreOp& op);
  void SubmitPromotion(std::size_t tier, const ParkKey& key, std::unique_ptr<Promotion> part);
  void CompletePromotion(PartialPromotion partial);
  void StorePromotion(const ParkKey& key, Promotion promotion);

  // ---- park.cc ----
  struct ParkSpot {
    Handle conversation = kNoHandle;  // owner of the matched prefix
    ConversationId id;                // tells whether the handle is still its
    std::uint32_t matched = 0;
    // Holds the last matched token. While it is there, so is all before it: what is cut off, and
    // then grows again with other tokens, does so in parks of other numbers.
    std::optional<ParkKey> last;
  };
  ParkSpot LocateForPark(absl::Span<const Token> tokens, const std::vector<std::uint64_t>& hashes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::uint32_t ExtensionInMemory(Handle handle, std::uint32_t position,
                                  absl::Span<const Token> tokens)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct CapturePiece {
    TokenRange tokens;
    std::vector<ExtentInfo> extents;
    std::vector<TokenRange> window_rows;
    std::vector<std::uint32_t> checkpoints;
    std::uint64_t bytes = 0;
  };
  std::vector<CapturePiece> PlanCapture(EngineSequence& sequence, const ParkRequest& request,
                                        std::uint32_t matched, const Coverage& coverage);
  void PlanWindowRows(EngineSequence& sequence, std::uint32_t end, TokenRange within,
                      const Coverage& coverage, std::uint64_t piece_bytes,
                      std::vector<CapturePiece>* pieces);
  void PlanCheckpoint(EngineSequence& sequence, std::uint32_t end, const Coverage& coverage,
                      std::uint64_t piece_bytes, std::vector<CapturePiece>* pieces);
  // ResourceExhausted: no buffers now.
  absl::Status CapturePieceNow(EngineSequence& sequence, const CapturePiece& piece,
                               std::vector<ExtentBytes>* payload);
  static std::shared_ptr<ParkRecord> MakeParkRecord(const ParkRequest& request,
                                                    const std::vector<std::uint64_t>& hashes,
                                                    const StageMap& stages,
                                                    const CapturePiece& piece);
  // Null: the piece becomes a park of its own.
  ParkState* GrowablePark(Conversation* conversation, const ParkRecord& piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GrowPending(Handle handle, ParkState* park, const ParkRecord& piece,
                   std::vector<ExtentBytes> payload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False: what the piece stands on is gone.
  bool Enqueue(const ParkRequest& request, const std::vector<std::uint64_t>& hashes,
               const StageMap& stages, const CapturePiece& piece, std::vector<ExtentBytes> payload,
               ParkSpot* spot, absl::Time begin) ABSL_LOCKS_EXCLUDED(mu_);
  bool ChooseTarget(const Digest128& identity, TokenRange piece, std::int64_t now_unix_ms,
                    ParkSpot* spot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool QueueHasRoom() const ABSL_LOCKS_EXCLUDED(mu_);

  // ---- spill.cc ----
  void SealLoop();
  void SpillLoop();
  void Seal(const std::shared_ptr<PendingPark>& pending);
  bool StoreHeld(std::size_t tier, const std::shared_ptr<PendingPark>& pending);
  bool StoreInto(std::size_t tier, const std::shared_ptr<PendingPark>& pending);
  bool CompleteBelow(std::size_t tier, const std::shared_ptr<PendingPark>& pending);
  bool CopyDown(std::size_t from, std::size_t to, const ParkKey& key);
  void FinishPending(const std::shared_ptr<PendingPark>& pending);

  // ---- eviction.cc ----
  // As Tier::Shortfall; for bytes == 0 also where not even an empty park fits.
  std::uint64_t BytesToEvict(std::size_t tier, std::uint64_t bytes) const;
  bool MakeRoom(std::size_t tier, std::uint64_t bytes, EvictReason reason);
  bool EvictFor(std::size_t tier, std::uint64_t bytes, EvictReason reason);  // its work
  // What stands on another goes before it: an end in between must not leave it without that. Not
  // OK: the first failure, after which that tier keeps the rest.
  absl::Status RemoveFromTiers(std::vector<Removal> removals, EvictReason reason);
  // The same from one tier, and nobody is told. What the tier refuses is asked of it again, before
  // anything else is removed from it or stored in it, and every second.
  absl::Status RemoveInOrder(std::size_t tier, std::vector<Removal> removals);
  // OK where nothing waits.
  absl::Status RemoveRefused(std::size_t tier);
  // Takes a park out of one tier's books, and what can't be without it out of all.
  void TakeOut(std::size_t tier, Handle handle, std::uint32_t park, std::vector<Removal>* out)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes a park out of one tier because its bytes can't be trusted or are not there.
  // False: the tier does not hold it.
  bool DropPark(std::size_t tier, const ParkKey& key, EvictReason reason);
  void EnforceSlots();
  // Conversations as eviction sees them, with their ids, in the order of the ids. Taken piece by
  // piece, so that nobody waits for long: what it says of one may be over when it is used.
  struct Snapshot {
    std::vector<EvictionCandidate> candidates;
    std::vector<ConversationId> ids;
  };
  // The places of all conversations in the order of eviction, as of one moment or nearly so.
  struct Ranks {
    std::uint64_t version = 0;        // of the catalogue
    std::vector<ConversationId> ids;  // ascending
    std::vector<std::uint32_t> ranks;
  };
  // Those found last, as long as nothing has changed: whoever lists pages asks again and again.
  std::shared_ptr<const Ranks> EvictionOrder() const ABSL_LOCKS_EXCLUDED(mu_);
  // Between two pieces: a mutex that is taken again at once mostly stays with its thread.
  static void LetOthersIn() { absl::SleepFor(absl::Microseconds(50)); }
  // Of one tier (tier bit) or of all (0). `pinning`: pinned conversations stay there.
  Snapshot TakeSnapshot(std::uint8_t tier, bool pinning) const ABSL_LOCKS_EXCLUDED(mu_);
  struct Victims {
    std::uint64_t bytes = 0;  // of the chosen ones
    std::vector<Removal> removals;
  };
  bool TakeVictims(std::size_t tier, std::uint64_t shortfall, Victims* taken)
      ABSL_LOCKS_EXCLUDED(mu_);
  struct PlannedVictim {
    ParkKey key;
    // Of its conversation when it was chosen.
    std::int64_t last_used_unix_ms = 0;
    std::uint64_t hits = 0;
  };
  struct EvictionPlan {
    std::vector<PlannedVictim> victims;  // in the order in which they go
    std::size_t next = 0;
    absl::Time made = absl::InfinitePast();
  };
  bool TakePlanned(std::size_t tier, std::uint64_t shortfall, Victims* taken)
      ABSL_LOCKS_EXCLUDED(mu_);
  ParkState* StillVictim(std::size_t tier, const PlannedVictim& victim)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::uint64_t IndexLimit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes their index entries from the oldest leaves while index and catalogue are too large.
  void TrimIndex() ABSL_LOCKS_EXCLUDED(mu_);
  bool MayUnindex(const Conversation& conversation, std::int64_t last_used_unix_ms) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ConversationInfo Describe(const ConversationId& id, Handle handle) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- thinning.cc ----
  // A conversation that shares the first `tokens` tokens of another one.
  struct CheckpointUse {
    std::uint32_t tokens = 0;
    std::int64_t last_used_unix_ms = 0;
    bool pinned = false;
  };
  using CheckpointUses = std::map<ConversationId, std::vector<CheckpointUse>>;
  struct StoredCheckpoint {
    CheckpointCandidate candidate;
    std::vector<ParkKey> parks;
    bool held = false;
    bool pinned = false;
  };
  // As of the last look.
  struct ThinningState {
    std::uint64_t share = 0;
    std::uint64_t written_bytes = 0;
  };
  // Drops checkpoints while those that are not a conversation's newest exceed their share.
  void ThinCheckpoints(std::size_t tier) ABSL_LOCKS_EXCLUDED(mu_);
  void CollectCheckpoints(const Conversation& conversation, std::size_t tier,
                          std::vector<StoredCheckpoint>* found) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteUses(const Conversation& conversation, CheckpointUses* uses) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Victims TakeSuperseded(std::size_t tier, const std::vector<StoredCheckpoint>& chosen)
      ABSL_LOCKS_EXCLUDED(mu_);

  // ---- sessions.cc ----
  std::size_t PinningTier() const;
  // False: pinning the first `tokens` tokens, and a name of so many bytes, would hold too much of a
  // tier of this budget.
  bool PinFits(Handle handle, std::uint32_t tokens, std::uint64_t name_bytes,
               std::uint64_t budget_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Handle FindName(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct SessionFork {
    ParkRequest request;
    StageMap stages;
    ParkSpot spot;
    std::uint64_t bytes = 0;
  };
  absl::StatusOr<SessionFork> ForkForSession(const ConversationId& id, std::uint32_t tokens,
                                             const std::string& name, std::uint64_t budget_bytes);
  absl::Status WaitStored(const ConversationId& id, std::uint32_t tokens, absl::Time deadline);
  void DropOlderSessions(const ConversationId& id, const std::string& name);
  void SettleNames();
  absl::Status ReleaseName(const ConversationId& id);

  // ---- attributes.cc ----
  // Last uses of all conversations that were used, to the durable tier.
  void WriteAttributes(bool all) ABSL_LOCKS_EXCLUDED(mu_);
  // A conversation's attributes to every tier that has something of it.
  absl::Status StoreAttributes(const ConversationId& id) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status StoreAttributesInto(std::size_t tier, const ConversationId& id,
                                   const ConversationAttributes* written) ABSL_LOCKS_EXCLUDED(mu_);
  // Tier::Store, with the name, pin or mark that a restart must find with the park.
  absl::Status StoreWithAttributes(std::size_t tier, const ParkRecord& record,
                                   const std::vector<ExtentBytes>& payload)
      ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<ConversationAttributes> MarksWithoutPark(std::size_t tier,
                                                         const ConversationId& id) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // ---- accounting.cc ----
  LookupRecord MakeRecord(const RestoreOp& op, const MatchReport& match, std::uint32_t reused);
  void CountMisses(const RestoreOp& op, const MatchReport& match, std::uint32_t reused,
                   LookupRecord* record);
  MissReason ReasonBeyond(const RestoreOp& op, const MatchReport& match, std::uint32_t matched,
                          LookupRecord* record);
  static void NameBoundary(const RestoreOp& op, LookupRecord* record);
  void EmitRestored(const RestoreOp& op, const LookupRecord& record);
  std::string IdentityDifference(const RestoreOp& op);
  static std::string NameChange(const RestoreOp& op, const MatchReport& match,
                                const LookupRecord& record);
  void NameColdChange(const RestoreOp& op, LookupRecord* record);
  void NoteFront(const RestoreOp& op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- cache.cc ----
  absl::Status Rewarm();
  // `operation`: read, write, remove or catalogue, the first word of what the sink is told.
  void ReportTierError(std::size_t tier, std::string_view operation, const absl::Status& status);
  absl::Status Tolerate(std::size_t tier, const absl::Status& status);
  using ForkParents = std::map<ConversationId, std::pair<ConversationId, std::uint32_t>>;
  void LinkForks(const ForkParents& parents) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<Removal> EndAtGaps() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False: it is not known (any more).
  bool UseIdentity(const Digest128& digest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropIdleIdentity() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetIdentity(const Digest128& digest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetUnusedIdentities() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status PutIdentityInto(std::size_t tier, const Digest128& digest);
  void HousekeepingLoop();
  void TellLosses();
  void AdjustRamBudget();
  void Touch(Handle handle, bool hit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static std::int64_t NowUnixMs();
  std::uint8_t Bit(std::size_t tier) const { return static_cast<std::uint8_t>(1u << tier); }

  const CacheOptions options_;
  const std::vector<std::unique_ptr<Tier>> tiers_;
  EventSink* const sink_;
  int ram_tier_ = -1;
  int durable_tier_ = -1;
  int shared_tier_ = -1;
  Digest128 secret_;
  std::uint64_t buffer_bytes_ = 0;          // all that is not index, images or queue
  const std::shared_ptr<HostArena> arena_;  // of both pools
  std::shared_ptr<BufferPool> capture_pool_;
  std::shared_ptr<BufferPool> read_pool_;
  TokenCache tokens_;
  SharedReads shared_reads_;
  RecentUses recent_parts_;  // parks that were read in part

  mutable absl::Mutex mu_;
  Catalogue catalogue_ ABSL_GUARDED_BY(mu_);
  std::map<Digest128, StoredIdentity> identities_ ABSL_GUARDED_BY(mu_);
  // Which tiers were given an identity since opening, by tier bit.
  std::map<Digest128, std::uint8_t> identity_tiers_ ABSL_GUARDED_BY(mu_);
  std::map<Digest128, std::uint64_t> identity_uses_ ABSL_GUARDED_BY(mu_);  // higher: later
  std::uint64_t last_identity_use_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<std::shared_ptr<PendingPark>> seal_queue_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<PendingPark>> spill_queue_ ABSL_GUARDED_BY(mu_);
  std::uint64_t pending_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // in either queue or being written
  std::uint64_t pending_parks_ ABSL_GUARDED_BY(mu_) = 0;
  double spill_bytes_per_second_ ABSL_GUARDED_BY(mu_) = 200e6;
  std::uint64_t ram_budget_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::size_t, std::vector<Removal>> refused_ ABSL_GUARDED_BY(mu_);  // by tier
  std::map<std::size_t, EvictionPlan> eviction_plans_ ABSL_GUARDED_BY(mu_);   // by tier
  std::array<bool, kMostTiers> making_room_ ABSL_GUARDED_BY(mu_) = {};
  mutable std::shared_ptr<const Ranks> ranks_ ABSL_GUARDED_BY(mu_);
  std::map<std::size_t, ThinningState> thinning_ ABSL_GUARDED_BY(mu_);  // by tier
  std::uint64_t index_stuck_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // trimming ended above the limit
  std::uint32_t unindexed_logged_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time index_log_time_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::deque<LookupRecord> lookups_ ABSL_GUARDED_BY(mu_);
  std::deque<PromptFront> fronts_ ABSL_GUARDED_BY(mu_);  // the newest first
  std::int64_t last_touch_unix_ms_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool sealer_done_ ABSL_GUARDED_BY(mu_) = false;
  PromptSpeed prompt_speed_ ABSL_GUARDED_BY(mu_);
  std::array<LoadSpeed, kMostTiers> load_speeds_ ABSL_GUARDED_BY(mu_);
  double find_seconds_ ABSL_GUARDED_BY(mu_) = 0;             // that asking the shared tier takes
  std::deque<ConversationId> deleted_ ABSL_GUARDED_BY(mu_);  // the newest last
  // Conversations with something that the shared tier may lack, and those that are to go from it.
  std::deque<ConversationId> to_publish_ ABSL_GUARDED_BY(mu_);
  std::deque<std::pair<ConversationId, PublishRequest>> to_erase_ ABSL_GUARDED_BY(mu_);
  bool publishing_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time publish_again_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  bool publishing_stops_ ABSL_GUARDED_BY(mu_) = false;

  mutable absl::Mutex reader_mu_;
  std::deque<std::shared_ptr<RestoreOp>> to_plan_ ABSL_GUARDED_BY(reader_mu_);
  std::deque<std::shared_ptr<RestoreOp>> to_find_ ABSL_GUARDED_BY(reader_mu_);
  std::deque<std::shared_ptr<RestoreOp>> to_read_ ABSL_GUARDED_BY(reader_mu_);
  std::deque<std::vector<std::pair<std::size_t, ParkKey>>> to_warm_ ABSL_GUARDED_BY(reader_mu_);
  std::deque<PartialPromotion> to_promote_ ABSL_GUARDED_BY(reader_mu_);
  bool readers_stop_ ABSL_GUARDED_BY(reader_mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace parkade
