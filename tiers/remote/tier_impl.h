// Parts of the remote tier live in files by what they do: remote_tier.cc (asking, state),
// remote_find.cc, remote_publish.cc, remote_read.cc, remote_erase.cc.
//
// No lock is held over I/O.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "parkade/shared_tier.h"
#include "tiers/remote/breaker.h"
#include "tiers/remote/keys.h"
#include "tiers/remote/packing.h"
#include "tiers/remote/redis.h"
#include "tiers/remote/remote_tier.h"
#include "tiers/remote/values.h"

namespace parkade::remote {

// What is used is renewed when this part of its time to live is over.
inline constexpr int kRenewals = 8;

// What stands under the name is no string: nobody of us wrote it.
inline bool IsForeign(const Reply& reply) {
  return reply.kind == Reply::Kind::kError && reply.bytes.rfind("WRONGTYPE", 0) == 0;
}

using SharedRow = std::shared_ptr<const RowValue>;

// Rows that were read lately, by bytes. Thread safe.
class RowCache {
 public:
  explicit RowCache(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  SharedRow Find(const Digest128& row);
  void Insert(const Digest128& row, SharedRow value);
  void Erase(const Digest128& row);

 private:
  struct Entry {
    SharedRow value;
    std::uint64_t bytes = 0;
    std::list<Digest128>::iterator place;
  };
  const std::uint64_t limit_bytes_;
  absl::Mutex mu_;
  std::map<Digest128, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::list<Digest128> recent_ ABSL_GUARDED_BY(mu_);  // newest first
  std::uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

class RemoteTier final : public SharedTier {
 public:
  RemoteTier(const RemoteTierOptions& options, std::unique_ptr<Redis> redis);

  // ---- Tier ----
  TierUsage usage() const override;
  Digest128 secret() const override { return local_secret_; }
  absl::StatusOr<std::vector<Token>> ReadTokens(const ParkKey& key) override;
  absl::StatusOr<std::vector<ExtentInfo>> ReadExtents(const ParkKey& key) override;
  absl::StatusOr<ExtentBytes> ReadExtent(
      const ParkKey& key, std::uint32_t extent,
      const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) override;
  absl::Status Remove(absl::Span<const ParkKey> keys) override;
  void Tick() override;

  // ---- SharedTier ----
  bool reachable() const override { return breaker_.closed(); }
  bool writable() const override;
  absl::StatusOr<FoundWay> Find(const Digest128& identity, absl::Span<const Token> tokens,
                                std::uint32_t beyond) override;
  void Prepare(absl::Span<const ParkKey> keys) override;
  void Reject(const ParkKey& key) override;
  bool RenewalDue(const ParkKey& key) const override;
  void Bind(const ParkKey& key, const FoundPark& park) override;
  absl::Status Publish(const PublishRequest& request, PublishOutcome* outcome) override;
  absl::Status Erase(const ConversationId& conversation, const Digest128& identity,
                     absl::Span<const Token> tokens, absl::Span<const PublishStep> steps) override;

 private:
  // Where a park of this cache stands in the store.
  struct Place {
    Digest128 row;
    ConversationId label;
    std::uint32_t first = 0;
    std::uint32_t end = 0;  // the park's own
    std::uint32_t extents = 0;
    absl::Time renewed;
    std::uint64_t used = 0;  // higher: later
  };

  // ---- remote_tier.cc ----
  // Runs commands unless the breaker is open, and tells it what came of them. An error reply of a
  // command is left in the replies.
  absl::StatusOr<std::vector<Reply>> Ask(absl::Span<const Command> commands, absl::Time deadline);
  absl::Status Noted(absl::Status status);
  // The same of a write, which a store may refuse that answers all else.
  absl::Status NotedWrite(absl::Status status) ABSL_LOCKS_EXCLUDED(mu_);
  // As Ask, of commands that write; the first error reply is the status.
  absl::Status Write(absl::Span<const Command> commands, absl::Time deadline);
  // What every lookup asks, of a store that may have been given up.
  absl::Status AskSecret(absl::Duration limit);
  void ProbeWriting(absl::Time now);
  // The secret that page hashes are keyed with. Zero: there is none yet, and `make` is false.
  absl::StatusOr<Digest128> Secret(bool make, absl::Time deadline);
  // What this machine would write there: with a key the mark of that, else the secret it knows, or
  // a new one.
  std::string OwnSecret() const ABSL_LOCKS_EXCLUDED(mu_);
  // What the store says now; true: it is another one than before, so nothing that was known holds.
  // PermissionDenied: the prefix belongs to machines with another key.
  absl::StatusOr<bool> AdoptSecret(const Reply& reply) ABSL_LOCKS_EXCLUDED(mu_);
  // What was read there is damaged, or useless without what is gone: Tick removes it.
  void Discard(std::string name) ABSL_LOCKS_EXCLUDED(mu_);
  void DiscardRow(const Digest128& row) ABSL_LOCKS_EXCLUDED(mu_);
  bool Rejected(const Digest128& row) const ABSL_LOCKS_EXCLUDED(mu_);
  void RemoveDiscarded();
  std::vector<std::uint64_t> PageHashes(const Digest128& secret, const Digest128& identity,
                                        absl::Span<const Token> tokens) const;
  std::optional<Place> PlaceOf(const ParkKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  void SetPlace(const ParkKey& key, Place place) ABSL_LOCKS_EXCLUDED(mu_);
  void ErasePlace(const ParkKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  std::string TtlMs() const { return std::to_string(absl::ToInt64Milliseconds(options_.ttl)); }

  // ---- remote_find.cc ----
  // Why a row that is there can't be used.
  struct RowFaults {
    bool damaged = false;
    bool newer = false;  // a newer program wrote it
  };
  // Rows of a chain.
  struct Rows {
    std::vector<SharedRow>
        rows;              // the store's and those that were read before; null: there is none
    std::size_t dead = 0;  // the first step whose conversation was erased, or their number
    RowFaults faults;
  };
  absl::StatusOr<Rows> FetchRows(const Chain& chain, absl::Time deadline);
  // A row's value, damage being taken out of the store; null.
  SharedRow TakeRow(const Digest128& row, const Reply& reply, RowFaults* faults);
  // The boundary says that the prompt's first `boundary_tokens` tokens are there. *gap: something
  // of what it names is gone. *newer: a newer program wrote some of it, which is no loss.
  absl::StatusOr<FoundWay> Resolve(Chain chain, const Digest128& identity,
                                   absl::Span<const Token> tokens, std::uint32_t boundary_tokens,
                                   absl::Time deadline, bool* gap, bool* newer);
  // The deepest of the boundaries, in the order of the pages from `first` on, that can be used.
  absl::StatusOr<FoundWay> ResolveDeepest(const Digest128& identity, absl::Span<const Token> tokens,
                                          std::size_t first, std::uint32_t beyond,
                                          absl::Span<const std::string> names,
                                          absl::Span<const Reply> replies, absl::Time deadline);
  absl::StatusOr<SharedRow> RowOf(const Digest128& row, absl::Time deadline);

  // ---- remote_publish.cc ----
  struct Progress {
    Chain chain;           // whole, of the steps that are there
    std::size_t next = 0;  // the first step that is not
  };
  absl::Status PublishSteps(const PublishRequest& request, absl::Span<const std::uint64_t> hashes,
                            PublishOutcome* outcome);
  // Steps that are in the store, as far as this cache knows; those that are due are renewed.
  absl::Status Known(const PublishRequest& request, absl::Span<const std::uint64_t> hashes,
                     absl::Time deadline, Progress* progress);
  // Renews one step, of which the chain is the last; false: something of it is gone.
  absl::StatusOr<bool> Renew(const Place& place, const Chain& chain,
                             absl::Span<const std::uint64_t> hashes, absl::Time deadline);
  // What others have stored of the same tokens.
  void UseFound(const PublishRequest& request, const std::vector<FoundPark>& found,
                Progress* progress);
  // Looks before anything is added whether what it stands on is still there, and whether it may be
  // stored: *dead gets the conversations that were deleted. Aborted: other things are there than
  // were known; what is to be done is found out by publishing again.
  absl::Status Check(const PublishRequest& request, const Progress& progress, absl::Time deadline,
                     std::vector<ConversationId>* dead);
  absl::Status Upload(const PublishStep& step, const PublishPayload& payload,
                      absl::Span<const std::uint64_t> hashes, Chain* chain);
  absl::Status UploadExtents(const Digest128& row, const PublishPayload& payload, RowValue* value);
  absl::Status SetBoundaries(const Chain& chain, const Place& place,
                             absl::Span<const std::uint64_t> hashes, absl::Time deadline);
  // Pages whose boundaries a park of these tokens writes.
  static std::vector<std::size_t> BoundaryPages(const Place& place);

  // ---- remote_erase.cc ----
  // Takes away what this machine stored of conversations that another one has deleted since.
  absl::Status EraseDead(const PublishRequest& request, absl::Span<const ConversationId> dead,
                         absl::Span<const std::uint64_t> hashes, absl::Time deadline);
  absl::Status WriteTombstones(absl::Span<const ConversationId> labels, absl::Time deadline);
  absl::Status EraseRows(const std::vector<Place>& places, absl::Span<const std::uint64_t> hashes,
                         absl::Time deadline);

  // ---- remote_read.cc ----
  absl::StatusOr<SharedRow> RowFor(const ParkKey& key, Digest128* row);
  // When a value of this size has to be there, from the measured speed.
  absl::Time TransferDeadline(std::size_t bytes) const;
  void NoteSpeed(std::size_t bytes, absl::Duration took);

  const RemoteTierOptions options_;
  const std::unique_ptr<Redis> redis_;
  const Keys keys_;
  const std::string page_hash_key_;
  const Digest128 local_secret_;
  Breaker breaker_;
  RowCache rows_;
  Packing packing_;
  std::atomic<bool> greeted_{false};
  std::atomic<std::uint64_t> written_bytes_{0};
  std::atomic<std::uint64_t> read_bytes_{0};

  mutable absl::Mutex mu_;
  Digest128 secret_ ABSL_GUARDED_BY(mu_);  // zero: not known
  std::map<ParkKey, Place> places_ ABSL_GUARDED_BY(mu_);
  // The newest rows of which something was damaged or gone, and names that are to go.
  std::set<Digest128> rejected_ ABSL_GUARDED_BY(mu_);
  std::deque<Digest128> rejected_order_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> discarded_ ABSL_GUARDED_BY(mu_);
  std::uint64_t last_use_ ABSL_GUARDED_BY(mu_) = 0;
  double bytes_per_second_ ABSL_GUARDED_BY(mu_) = 100e6;
  std::string refusal_ ABSL_GUARDED_BY(mu_);  // of the last write; empty: it was taken
  absl::Time next_write_probe_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace parkade::remote
