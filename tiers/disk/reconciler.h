// The steps of Reconcile and what they share. Only recovery's own files include this.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "tiers/disk/key_hash.h"
#include "tiers/disk/recovery.h"

namespace parkade::disk {

class Reconciler {
 public:
  Reconciler(Directory* directory, CatalogueDb* db, SegmentReader* reader,
             const RecoveryOptions& options)
      : directory_(directory), db_(db), reader_(reader), options_(options) {}

  absl::StatusOr<RecoveryReport> Run();

 private:
  struct ParkOwner {
    std::uint64_t segment = 0;
    std::uint64_t size_bytes = 0;
    ParkKey key;
  };
  struct SmallOwner {
    Family family = Family::kName;
    std::string key;
    SegmentRef ref;
  };
  // A park as far as it matters for which conversations are whole.
  struct Link {
    std::uint32_t park = 0;
    std::uint32_t first_token = 0;
    std::uint32_t end_token = 0;
    std::uint64_t segment = 0;
    ConversationId parent;
    std::uint32_t parent_tokens = 0;
  };
  struct Chain {
    std::vector<Link> links;
    std::optional<std::uint32_t> broken_from;  // lowest park that is known to be gone
    bool visiting = false;
    bool done = false;
    std::uint32_t covered = 0;  // once done: tokens [0, covered) are there
  };

  // recovery.cc
  void Find(std::string finding);
  void Reach(std::string_view point) const {
    if (options_.failpoint) options_.failpoint(point);
  }
  absl::Status ScanRows();
  absl::Status ScanManifest();
  absl::Status ScanSmall();
  absl::Status ListFiles();
  absl::Status Compare();
  absl::Status DeleteBroken();
  absl::Status DropFiles();
  absl::Status PruneTombstones();
  const SegmentFile* FileOf(std::uint64_t segment) const;

  // adoption.cc
  absl::Status FindTombstones();
  absl::Status AdoptOrphans();
  absl::Status AdoptSegment(const SegmentFile& file, bool* adopted);
  absl::Status AdoptPark(const SegmentFile& file, const SegmentHead& head, const CatalogueRow& row,
                         bool* adopted);
  absl::Status AdoptName(std::uint64_t segment, const CatalogueRow& row, bool* adopted);
  // False: the segment belongs to another directory.
  absl::StatusOr<bool> AdoptSecret(const SegmentFile& file, const SegmentHead& head, bool* adopted);

  // chains.cc
  absl::Status EndConversations();
  absl::Status LoadChains();
  std::uint32_t Cover(const ConversationId& id);
  void EndChain(const ConversationId& id, Chain* chain);
  absl::Status DeleteEnded();
  absl::Status DeleteOrphanNames();

  Directory* const directory_;
  CatalogueDb* const db_;
  SegmentReader* const reader_;
  const RecoveryOptions& options_;
  RecoveryReport report_;

  std::vector<ParkOwner> parks_;       // ascending by segment
  std::vector<SmallOwner> small_;      // as the rows are
  std::vector<ParkOwner> broken_;      // rows to delete
  std::vector<ParkKey> damaged_rows_;  // keys whose values can't be read
  std::set<ParkKey> loose_;            // of those, parks without tokens: nothing stands on them
  std::vector<SegmentFile> files_;     // ascending by segment
  std::vector<SegmentFile> orphans_;   // ascending
  absl::flat_hash_set<std::uint64_t> dead_;  // named by a tombstone
  std::vector<std::uint64_t> drop_;          // files to unlink
  std::vector<std::string> strays_;
  bool check_chains_ = false;

  absl::flat_hash_map<ConversationId, Chain, DigestHash> chains_;
  std::vector<std::pair<ParkKey, std::uint64_t>> ended_;  // parks and their segments
};

}  // namespace parkade::disk
