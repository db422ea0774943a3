// The disk tier's class. Only the tier's own files include this; callers see disk_tier.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "tiers/disk/catalogue_gate.h"
#include "tiers/disk/disk_tier.h"
#include "tiers/disk/key_hash.h"
#include "tiers/disk/park_places.h"
#include "tiers/disk/readahead.h"
#include "tiers/disk/recovery.h"
#include "tiers/disk/segment_reader.h"
#include "tiers/disk/segment_writer.h"
#include "tiers/disk/space.h"

namespace parkade::disk {

class DiskTier : public Tier {
 public:
  DiskTier(const DiskTierOptions& options, std::unique_ptr<Directory> directory);
  ~DiskTier() override;

  // Before anything else.
  absl::Status Start();

  TierKind kind() const override { return TierKind::kDisk; }
  bool durable() const override { return true; }
  TierUsage usage() const override;
  void SetBudget(std::uint64_t budget_bytes) override;

  Digest128 secret() const override { return secret_; }
  absl::Status Enumerate(const std::function<void(const ParkSummary&)>& visit) override;
  absl::Status EnumerateAttributes(
      const std::function<void(const ConversationAttributes&)>& visit) override;
  absl::Status EnumerateIdentities(
      const std::function<void(const Digest128&, const StoredIdentity&)>& visit) override;
  absl::StatusOr<std::vector<Token>> ReadTokens(const ParkKey& key) override;
  absl::StatusOr<std::vector<ExtentInfo>> ReadExtents(const ParkKey& key) override;

  std::uint64_t Shortfall(std::uint64_t payload_bytes) const override;
  absl::Status Store(const ParkRecord& record, absl::Span<const ExtentBytes> payload) override;
  absl::StatusOr<ExtentBytes> ReadExtent(
      const ParkKey& key, std::uint32_t extent,
      const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) override;
  void WillRead(absl::Span<const ParkKey> keys) override;

  absl::Status Remove(absl::Span<const ParkKey> keys) override;
  absl::Status Forget(const ConversationId& conversation, absl::Span<const ParkKey> keys) override;

  absl::Status PutIdentity(const Digest128& digest, const StoredIdentity& identity) override;
  absl::Status WriteAttributes(absl::Span<const ConversationAttributes> attributes,
                               bool durable) override;
  void Tick() override;

 private:
  // What pins and names need: they must survive the loss of the catalogue.
  struct NameEntry {
    SegmentRef ref;
    ConversationAttributes attributes;
  };
  // Deletions of parks, gathered before the batch that carries them.
  struct Removal {
    RowBatch batch;
    std::vector<std::uint64_t> segments;
    std::vector<ConversationId> emptied;  // conversations with no park left
  };
  // Whoever writes attributes, or takes parks away with the last of which they go, does so alone:
  // each looks first at what is there, and writes then.
  class AttributesTurn {
   public:
    explicit AttributesTurn(DiskTier* tier) ABSL_LOCKS_EXCLUDED(tier->mutex_);
    ~AttributesTurn();
    AttributesTurn(const AttributesTurn&) = delete;
    AttributesTurn& operator=(const AttributesTurn&) = delete;

   private:
    DiskTier* const tier_;
  };

  // disk_tier.cc
  absl::StatusOr<std::unique_ptr<CatalogueDb>> OpenAndLoad();
  absl::Status LoadRows(CatalogueDb* db, std::uint64_t highest_segment);
  absl::StatusOr<Digest128> LoadSecret(const CatalogueDb& db, SegmentRef* ref);
  absl::Status RestoreSmallSegments(CatalogueDb* db, const SegmentRef& secret_ref);
  void Recover();
  // What may be wrong is over: Recover is worth closing the database for. `again`: the directory,
  // if it has to be taken anew.
  bool CanRecover(std::unique_ptr<Directory>* again);
  absl::StatusOr<std::unique_ptr<CatalogueDb>> ReopenCatalogue(std::unique_ptr<Directory> again,
                                                               bool damaged);
  void Recount();
  void MeasureDatabase();
  void RefillCache();
  // The tier is read-only from now on, for this reason, until Recover has worked.
  void Fail(const absl::Status& status);
  absl::Status Writable() const;

  // disk_read.cc
  absl::StatusOr<SharedPlace> FindPlace(const ParkKey& key);
  absl::Status RemovedOr(const absl::Status& status, const ParkKey& key, const SegmentRef& ref);

  // disk_store.cc
  absl::Status StoreClaimed(CatalogueDb* db, const ParkRecord& record,
                            absl::Span<const ExtentBytes> payload);
  absl::Status WritePark(CatalogueDb* db, const ParkSegment& park,
                         absl::Span<const ExtentBytes> payload, std::uint64_t* block_bytes);
  absl::StatusOr<std::vector<CatalogueRow>> CopiedRows(const Digest128& identity) const;

  // disk_remove.cc
  absl::StatusOr<Removal> GatherRemoval(const CatalogueDb& db, absl::Span<const ParkKey> keys);
  void AddEmptiedConversations(Removal* removal);
  bool WasForgotten(const ConversationId& conversation) const;
  // Whether parks of the conversation are left without these.
  static bool Keeps(const CatalogueDb& db, const ConversationId& conversation,
                    absl::Span<const ParkKey> removed);
  absl::Status DeleteRows(CatalogueDb& db, absl::Span<const ParkKey> keys, Removal* removal);
  void Unlink(absl::Span<const std::uint64_t> segments);
  absl::Status WriteTombstone(const ConversationId& conversation,
                              absl::Span<const std::uint64_t> segments, RowBatch* batch,
                              std::uint64_t* number);
  std::vector<std::uint64_t> EarlierTombstone(const CatalogueDb& db,
                                              const ConversationId& conversation, Removal* removal);
  absl::Status DropSpentTombstones(CatalogueDb& db, const ConversationId& conversation,
                                   std::uint64_t tombstone);

  // disk_attributes.cc
  absl::Status WriteNames(CatalogueDb* db, std::vector<ConversationAttributes> changed,
                          RowBatch* batch, std::vector<std::uint64_t>* replaced);
  std::vector<ConversationAttributes> ChangedNames(
      absl::Span<const ConversationAttributes> attributes) const;

  const DiskTierOptions options_;
  const std::unique_ptr<Directory> directory_;
  SpaceLedger ledger_;
  SegmentWriter writer_;
  SegmentReader reader_;
  ParkPlaces places_;
  std::unique_ptr<CatalogueGate> gate_;
  std::unique_ptr<Readahead> readahead_;
  Digest128 secret_;
  std::string secret_row_;                                 // value, as copied into every segment
  std::atomic<std::uint64_t> catalogue_written_bytes_{0};  // by databases closed since open
  std::atomic<std::uint64_t> lost_parks_{0};
  std::atomic<bool> ticking_{false};
  // Only while ticking_:
  int ticks_until_recount_;
  int ticks_until_recovery_ = 0;

  mutable absl::Mutex mutex_;
  std::string failure_ ABSL_GUARDED_BY(mutex_);  // why the tier is read-only; empty: it is not
  bool catalogue_damaged_ ABSL_GUARDED_BY(mutex_) = false;  // Recover rebuilds it
  absl::flat_hash_set<ParkKey, ParkKeyHash> storing_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<ConversationId, NameEntry, DigestHash> names_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest128, std::string, DigestHash> identities_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<ConversationId, std::uint64_t>> spent_tombstones_ ABSL_GUARDED_BY(mutex_);
  // Names are written one call at a time, so that the last one wins in the files too.
  bool attributes_taken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace parkade::disk
