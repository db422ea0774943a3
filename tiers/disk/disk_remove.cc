// Removing: rows first, synced; then the segments that no row names.
#include <algorithm>
#include <optional>

#include "tiers/disk/tier_impl.h"

namespace parkade::disk {
namespace {

constexpr std::size_t kKeptTombstones = 16;

}  // namespace

absl::StatusOr<DiskTier::Removal> DiskTier::GatherRemoval(const CatalogueDb& db,
                                                          absl::Span<const ParkKey> keys) {
  Removal removal;
  absl::flat_hash_map<ConversationId, absl::flat_hash_set<std::string>, DigestHash> going;
  for (const ParkKey& key : keys) {
    const std::string row_key = ManifestKey(key);
    absl::StatusOr<std::string> value = db.Get(Family::kManifest, row_key);
    if (absl::IsNotFound(value.status())) {
      going.try_emplace(key.conversation);
      continue;
    }
    if (!value.ok()) return value.status();
    if (!going[key.conversation].insert(row_key).second) continue;
    const absl::StatusOr<RefRow> row = UnwrapRef(*value);
    if (row.ok()) removal.segments.push_back(row->ref.segment);
    if (absl::Status s = AppendParkDeletion(db, key, *value, &removal.batch); !s.ok()) return s;
  }
  for (const auto& [id, row_keys] : going) {
    bool left = false;
    const std::string begin = ConversationKey(id);
    const absl::Status scanned =
        db.Scan(Family::kManifest, begin, PrefixEnd(begin), [&, &gone = row_keys](auto key, auto) {
          left = !gone.contains(std::string(key));
          return !left;
        });
    if (!scanned.ok()) return scanned;
    // Of one whose keys are all unknown there is mostly nothing.
    const bool known = !row_keys.empty() || db.Get(Family::kUsage, begin).ok();
    if (!left && known) removal.emptied.push_back(id);
  }
  return removal;
}

// Attributes go with the last park.
void DiskTier::AddEmptiedConversations(Removal* removal) {
  absl::MutexLock lock(&mutex_);
  for (const ConversationId& id : removal->emptied) {
    const std::string key = ConversationKey(id);
    removal->batch.deletes.emplace_back(Family::kUsage, key);
    const auto it = names_.find(id);
    if (it == names_.end()) continue;
    removal->batch.deletes.emplace_back(Family::kName, key);
    const std::uint64_t segment = it->second.ref.segment;
    names_.erase(it);
    const bool shared = std::any_of(names_.begin(), names_.end(), [&](const auto& entry) {
      return entry.second.ref.segment == segment;
    });
    if (!shared) removal->segments.push_back(segment);
  }
}

void DiskTier::Unlink(absl::Span<const std::uint64_t> segments) {
  for (const std::uint64_t segment : segments) {
    absl::StatusOr<std::uint64_t> freed = directory_->Unlink(segment);
    reader_.Drop(segment);
    // swallow: no row names it any more, so the next open drops it; the recount keeps it counted.
    if (freed.ok()) ledger_.DropSegment(*freed);
  }
}

absl::Status DiskTier::DeleteRows(CatalogueDb& db, absl::Span<const ParkKey> keys,
                                  Removal* removal) {
  const AttributesTurn turn(this);
  absl::StatusOr<Removal> gathered = GatherRemoval(db, keys);
  if (!gathered.ok()) return gathered.status();
  *removal = *std::move(gathered);
  if (removal->batch.empty() && removal->emptied.empty()) return absl::OkStatus();
  writer_.Reach("remove.begin");
  AddEmptiedConversations(removal);
  const absl::Status written = db.Write(removal->batch, true);
  if (!written.ok()) Fail(written);
  return written;
}

absl::Status DiskTier::Remove(absl::Span<const ParkKey> keys) {
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  if (!db.ok()) return db.status();
  Removal removal;
  if (absl::Status s = DeleteRows(**db, keys, &removal); !s.ok()) return s;
  if (removal.batch.empty()) return absl::OkStatus();
  writer_.Reach("remove.rows");
  for (const ParkKey& key : keys) places_.Erase(key);
  Unlink(removal.segments);
  writer_.Reach("remove.unlinked");
  return absl::OkStatus();
}

// The tombstone keeps rebuilding from taking the segments back, should the catalogue and the
// unlinking both be lost.
absl::Status DiskTier::WriteTombstone(const ConversationId& conversation,
                                      absl::Span<const std::uint64_t> segments, RowBatch* batch,
                                      std::uint64_t* number) {
  *number = writer_.TakeNumber();
  const RowsSegment tombstone = BuildRowsSegment(
      *number, {{Family::kTombstone, ConversationKey(conversation), EncodeTombstone(segments)}},
      NewSegmentSealer(directory_->key()));
  absl::StatusOr<std::uint64_t> block_bytes = writer_.Write(tombstone);
  if (!block_bytes.ok()) return block_bytes.status();
  ledger_.AddSegment(*block_bytes);
  batch->puts = tombstone.rows;
  return absl::OkStatus();
}

bool DiskTier::Keeps(const CatalogueDb& db, const ConversationId& conversation,
                     absl::Span<const ParkKey> removed) {
  bool kept = false;
  const std::string begin = ConversationKey(conversation);
  const absl::Status read = db.Scan(
      Family::kManifest, begin, PrefixEnd(begin), [&](std::string_view key, std::string_view) {
        const absl::StatusOr<ParkKey> park = ParseManifestKey(key);
        kept = park.ok() && std::find(removed.begin(), removed.end(), *park) == removed.end();
        return !kept;
      });
  // What can't be read is taken for kept: a mark too many costs nothing.
  return kept || !read.ok();
}

bool DiskTier::WasForgotten(const ConversationId& conversation) const {
  absl::MutexLock lock(&mutex_);
  const auto it = names_.find(conversation);
  return it != names_.end() && it->second.attributes.forgotten();
}

// The tombstone of an earlier Forget of the same conversation, and what it names: the new one takes
// its place.
std::vector<std::uint64_t> DiskTier::EarlierTombstone(const CatalogueDb& db,
                                                      const ConversationId& conversation,
                                                      Removal* removal) {
  const absl::StatusOr<std::string> value =
      db.Get(Family::kTombstone, ConversationKey(conversation));
  if (!value.ok() || removal->segments.empty()) return {};
  const absl::StatusOr<RefRow> row = UnwrapRef(*value);
  if (!row.ok()) return {};
  const auto named = DecodeTombstone(row->inner);
  if (named.ok()) {
    removal->segments.insert(removal->segments.end(), named->begin(), named->end());
  }
  return {row->ref.segment};
}

// What a tombstone names is gone, and synced, so it is spent. The last few stay all the same, for
// media that sync less than they say; the others would fill the folder until the next open.
absl::Status DiskTier::DropSpentTombstones(CatalogueDb& db, const ConversationId& conversation,
                                           std::uint64_t tombstone) {
  std::vector<std::pair<ConversationId, std::uint64_t>> old;
  {
    absl::MutexLock lock(&mutex_);
    spent_tombstones_.emplace_back(conversation, tombstone);
    while (spent_tombstones_.size() > kKeptTombstones) {
      old.push_back(spent_tombstones_.front());
      spent_tombstones_.pop_front();
    }
  }
  for (const auto& [id, segment] : old) {
    const std::string key = ConversationKey(id);
    const absl::StatusOr<std::string> value = db.Get(Family::kTombstone, key);
    if (!value.ok()) continue;
    const absl::StatusOr<RefRow> row = UnwrapRef(*value);
    // A later Forget of the same conversation has replaced it.
    if (!row.ok() || row->ref.segment != segment) continue;
    RowBatch spent;
    spent.deletes.emplace_back(Family::kTombstone, key);
    if (absl::Status s = db.Write(spent, true); !s.ok()) {
      Fail(s);
      return s;
    }
    Unlink({&segment, 1});
  }
  return absl::OkStatus();
}

absl::Status DiskTier::Forget(const ConversationId& conversation, absl::Span<const ParkKey> keys) {
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  if (!db.ok()) return db.status();
  std::optional<AttributesTurn> turn(std::in_place, this);
  absl::StatusOr<Removal> removal = GatherRemoval(**db, keys);
  if (!removal.ok()) return removal.status();
  // The attributes go even when a fork keeps some of the parks, but what says that they are nobody
  // else's stays with them.
  const bool emptied = std::find(removal->emptied.begin(), removal->emptied.end(), conversation) !=
                       removal->emptied.end();
  if (!emptied && !(WasForgotten(conversation) && Keeps(**db, conversation, keys))) {
    removal->emptied.push_back(conversation);
  }
  AddEmptiedConversations(&*removal);
  std::vector<std::uint64_t> replaced = EarlierTombstone(**db, conversation, &*removal);
  std::uint64_t tombstone = 0;
  // swallow: on a full disk the rows and files still go, and that is what makes room.
  if (removal->segments.empty() ||
      !WriteTombstone(conversation, removal->segments, &removal->batch, &tombstone).ok()) {
    replaced.clear();
  }
  writer_.Reach("forget.tombstone");
  if (absl::Status s = (*db)->Write(removal->batch, true); !s.ok()) {
    Fail(s);
    return s;
  }
  turn.reset();
  writer_.Reach("forget.rows");
  for (const ParkKey& key : keys) places_.Erase(key);
  Unlink(removal->segments);
  // Of every folder: an evicted segment of the same conversation has no tombstone.
  if (absl::Status s = directory_->SyncUnlinked(); !s.ok()) return s;
  writer_.Reach("forget.unlinked");
  Unlink(replaced);
  if (tombstone != 0) {
    if (absl::Status s = DropSpentTombstones(**db, conversation, tombstone); !s.ok()) return s;
  }
  std::vector<RowBatch::Range> ranges;
  const std::string begin = ConversationKey(conversation);
  for (const Family family :
       {Family::kManifest, Family::kTokens, Family::kImage, Family::kUsage, Family::kName}) {
    ranges.push_back({family, begin, PrefixEnd(begin)});
  }
  const absl::Status purged = (*db)->Purge(ranges);
  if (!purged.ok()) Fail(purged);
  writer_.Reach("forget.purged");
  return purged;
}

}  // namespace parkade::disk
