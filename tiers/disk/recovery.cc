#include "tiers/disk/recovery.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "tiers/disk/reconciler.h"

namespace parkade::disk {
namespace {

constexpr std::size_t kMostFindings = 1000;

}  // namespace

absl::Status AppendParkDeletion(const CatalogueDb& db, const ParkKey& key,
                                std::string_view manifest, RowBatch* batch) {
  const std::string row_key = ManifestKey(key);
  batch->deletes.emplace_back(Family::kManifest, row_key);
  batch->deletes.emplace_back(Family::kTokens, row_key);
  absl::StatusOr<RefRow> row = UnwrapRef(manifest);
  if (row.ok()) {
    absl::StatusOr<ParkSummary> summary = DecodeManifest(key, row->inner);
    if (summary.ok()) {
      for (std::size_t stage = 0; stage < summary->stages.stages.size(); ++stage) {
        batch->deletes.emplace_back(Family::kImage,
                                    ImageKey(key, static_cast<std::uint16_t>(stage)));
      }
      return absl::OkStatus();
    }
  }
  const std::string begin = ConversationKey(key.conversation);
  return db.Scan(Family::kImage, begin, PrefixEnd(begin),
                 [&](std::string_view image_key, std::string_view) {
                   const auto parsed = ParseImageKey(image_key);
                   if (parsed.ok() && parsed->first == key) {
                     batch->deletes.emplace_back(Family::kImage, std::string(image_key));
                   }
                   return true;
                 });
}

absl::StatusOr<RecoveryReport> Reconcile(Directory* directory, CatalogueDb* db,
                                         SegmentReader* reader, const RecoveryOptions& options) {
  return Reconciler(directory, db, reader, options).Run();
}

void Reconciler::Find(std::string finding) {
  if (report_.findings.size() < kMostFindings) report_.findings.push_back(std::move(finding));
}

absl::StatusOr<RecoveryReport> Reconciler::Run() {
  if (absl::Status s = ScanRows(); !s.ok()) return s;
  Reach("recovery.scanned");
  if (absl::Status s = directory_->RemoveMarker(kOpeningName); !s.ok()) return s;
  if (absl::Status s = ListFiles(); !s.ok()) return s;
  if (absl::Status s = Compare(); !s.ok()) return s;
  report_.parks = parks_.size();
  const bool rows_differ = !broken_.empty() || !damaged_rows_.empty() || !orphans_.empty();
  if (rows_differ || check_chains_) {
    RowBatch flag;
    flag.puts.push_back({Family::kMeta, std::string(kCheckChainsKey), EncodeNumber(1)});
    if (absl::Status s = db_->Write(flag, true); !s.ok()) return s;
    Reach("recovery.flagged");
    if (absl::Status s = DeleteBroken(); !s.ok()) return s;
    Reach("recovery.deleted");
    if (absl::Status s = AdoptOrphans(); !s.ok()) return s;
    Reach("recovery.adopted");
    if (absl::Status s = EndConversations(); !s.ok()) return s;
    RowBatch clear;
    clear.deletes.emplace_back(Family::kMeta, std::string(kCheckChainsKey));
    if (absl::Status s = db_->Write(clear, true); !s.ok()) return s;
    Reach("recovery.ended");
  }
  if (absl::Status s = DropFiles(); !s.ok()) return s;
  if (absl::Status s = PruneTombstones(); !s.ok()) return s;
  Reach("recovery.done");
  return std::move(report_);
}

absl::Status Reconciler::ScanRows() {
  if (absl::Status s = ScanManifest(); !s.ok()) return s;
  if (absl::Status s = ScanSmall(); !s.ok()) return s;
  const absl::StatusOr<std::string> flag = db_->Get(Family::kMeta, std::string(kCheckChainsKey));
  if (!flag.ok() && !absl::IsNotFound(flag.status())) return flag.status();
  check_chains_ = flag.ok();
  return absl::OkStatus();
}

absl::Status Reconciler::ScanManifest() {
  RowBatch unreadable;
  const absl::Status scanned =
      db_->Scan(Family::kManifest, "", "", [&](std::string_view key, std::string_view value) {
        const absl::StatusOr<ParkKey> park = ParseManifestKey(key);
        if (!park.ok()) {
          unreadable.deletes.emplace_back(Family::kManifest, std::string(key));
          return true;
        }
        const absl::StatusOr<RefRow> row = UnwrapRef(value);
        if (!row.ok()) {
          damaged_rows_.push_back(*park);
          return true;
        }
        parks_.push_back({row->ref.segment, row->ref.size_bytes, *park});
        report_.highest_segment = std::max(report_.highest_segment, row->ref.segment);
        return true;
      });
  if (!scanned.ok()) return scanned;
  report_.damaged_rows += unreadable.deletes.size() + damaged_rows_.size();
  std::sort(parks_.begin(), parks_.end(),
            [](const ParkOwner& a, const ParkOwner& b) { return a.segment < b.segment; });
  return unreadable.empty() ? absl::OkStatus() : db_->Write(unreadable, true);
}

absl::Status Reconciler::ScanSmall() {
  small_.clear();
  RowBatch unreadable;
  for (const Family family : {Family::kName, Family::kTombstone, Family::kMeta}) {
    const absl::Status scanned =
        db_->Scan(family, "", "", [&](std::string_view key, std::string_view value) {
          if (family == Family::kMeta && key != kSecretKey) return true;
          const absl::StatusOr<RefRow> row = UnwrapRef(value);
          if (!row.ok()) {
            unreadable.deletes.emplace_back(family, std::string(key));
            return true;
          }
          small_.push_back({family, std::string(key), row->ref});
          report_.highest_segment = std::max(report_.highest_segment, row->ref.segment);
          if (family != Family::kTombstone) return true;
          const absl::StatusOr<std::vector<std::uint64_t>> segments = DecodeTombstone(row->inner);
          if (segments.ok()) dead_.insert(segments->begin(), segments->end());
          return true;
        });
    if (!scanned.ok()) return scanned;
  }
  // Read by the tier as a whole when it opens; damage in them has to show here.
  for (const Family family : {Family::kIdentity, Family::kUsage}) {
    const absl::Status scanned = db_->Scan(family, "", "", [](auto, auto) { return true; });
    if (!scanned.ok()) return scanned;
  }
  report_.damaged_rows += unreadable.deletes.size();
  return unreadable.empty() ? absl::OkStatus() : db_->Write(unreadable, true);
}

absl::Status Reconciler::ListFiles() {
  const absl::Status listed = directory_->ListSegments(
      kListingThreads,
      [&](const SegmentFile& file) {
        files_.push_back(file);
        report_.highest_segment = std::max(report_.highest_segment, file.segment);
      },
      [&](const std::string& path) { strays_.push_back(path); });
  std::sort(files_.begin(), files_.end(),
            [](const SegmentFile& a, const SegmentFile& b) { return a.segment < b.segment; });
  return listed;
}

const SegmentFile* Reconciler::FileOf(std::uint64_t segment) const {
  const auto it = std::lower_bound(
      files_.begin(), files_.end(), segment,
      [](const SegmentFile& file, std::uint64_t wanted) { return file.segment < wanted; });
  return it != files_.end() && it->segment == segment ? &*it : nullptr;
}

absl::Status Reconciler::Compare() {
  absl::flat_hash_set<std::uint64_t> small_segments;
  for (const SmallOwner& owner : small_) small_segments.insert(owner.ref.segment);
  std::size_t next = 0;
  for (const SegmentFile& file : files_) {
    while (next < parks_.size() && parks_[next].segment < file.segment) {
      broken_.push_back(parks_[next++]);
    }
    bool named = small_segments.contains(file.segment);
    while (next < parks_.size() && parks_[next].segment == file.segment) {
      named = true;
      if (parks_[next].size_bytes != file.size_bytes) broken_.push_back(parks_[next]);
      ++next;
    }
    if (!named) orphans_.push_back(file);
  }
  broken_.insert(broken_.end(), parks_.begin() + static_cast<std::ptrdiff_t>(next), parks_.end());
  for (const ParkOwner& owner : broken_) {
    Find(
        absl::StrCat(SegmentPath(owner.segment), ": missing or of another size than its row says"));
  }
  report_.lost_parks = broken_.size() + damaged_rows_.size();
  if (absl::Status s = FindTombstones(); !s.ok()) return s;
  const absl::flat_hash_set<std::uint64_t> damaged(options_.damaged_segments.begin(),
                                                   options_.damaged_segments.end());
  for (const ParkOwner& owner : parks_) {
    if (damaged.contains(owner.segment) || dead_.contains(owner.segment)) broken_.push_back(owner);
  }
  drop_ = options_.damaged_segments;
  for (const ParkOwner& owner : broken_) drop_.push_back(owner.segment);
  return absl::OkStatus();
}

absl::Status Reconciler::DeleteBroken() {
  for (const ParkOwner& owner : broken_) damaged_rows_.push_back(owner.key);
  report_.damaged_rows += broken_.size();
  RowBatch batch;
  for (const ParkKey& key : damaged_rows_) {
    absl::StatusOr<std::string> row = db_->Get(Family::kManifest, ManifestKey(key));
    const std::string value = row.ok() ? *row : std::string();
    if (absl::Status s = AppendParkDeletion(*db_, key, value, &batch); !s.ok()) return s;
    const absl::StatusOr<RefRow> readable = UnwrapRef(value);
    if (!readable.ok()) continue;
    const absl::StatusOr<ParkSummary> summary = DecodeManifest(key, readable->inner);
    if (summary.ok() && summary->token_count == 0) loose_.insert(key);
  }
  return batch.empty() ? absl::OkStatus() : db_->Write(batch, true);
}

absl::Status Reconciler::DropFiles() {
  for (const std::string& path : strays_) {
    if (directory_->door().Unlink(directory_->root().get(), path.c_str(), 0) == 0) {
      ++report_.dropped_files;
      Find(absl::StrCat(path, ": not a segment, dropped"));
    }
  }
  std::sort(drop_.begin(), drop_.end());
  drop_.erase(std::unique(drop_.begin(), drop_.end()), drop_.end());
  for (const std::uint64_t segment : drop_) {
    absl::StatusOr<std::uint64_t> freed = directory_->Unlink(segment);
    if (!freed.ok()) return freed.status();
    reader_->Drop(segment);
    if (FileOf(segment) != nullptr) ++report_.dropped_files;
  }
  for (const SegmentFile& file : files_) {
    if (std::binary_search(drop_.begin(), drop_.end(), file.segment)) continue;
    ++report_.segments;
    report_.segment_block_bytes += file.block_bytes;
  }
  return absl::OkStatus();
}

absl::Status Reconciler::PruneTombstones() {
  RowBatch batch;
  std::vector<std::uint64_t> spent;
  const absl::Status scanned =
      db_->Scan(Family::kTombstone, "", "", [&](std::string_view key, std::string_view value) {
        const absl::StatusOr<RefRow> row = UnwrapRef(value);
        if (!row.ok()) return true;
        batch.deletes.emplace_back(Family::kTombstone, std::string(key));
        spent.push_back(row->ref.segment);
        return true;
      });
  if (!scanned.ok()) return scanned;
  if (batch.empty()) return absl::OkStatus();
  // What the tombstones name is gone for good once its folders are synced. The process before may
  // have unlinked it and not come to that.
  absl::flat_hash_set<std::uint64_t> folders;
  for (const std::uint64_t segment : drop_) folders.insert(segment % kFanOut);
  for (const std::uint64_t segment : dead_) folders.insert(segment % kFanOut);
  for (const std::uint64_t folder : folders) {
    if (absl::Status s = directory_->SyncSegmentFolder(folder); !s.ok() && !absl::IsNotFound(s)) {
      return s;
    }
  }
  if (absl::Status s = db_->Write(batch, true); !s.ok()) return s;
  for (const std::uint64_t segment : spent) {
    const SegmentFile* file = FileOf(segment);
    absl::StatusOr<std::uint64_t> freed = directory_->Unlink(segment);
    if (!freed.ok()) return freed.status();
    if (file == nullptr) continue;
    --report_.segments;
    report_.segment_block_bytes -= std::min(report_.segment_block_bytes, file->block_bytes);
  }
  return absl::OkStatus();
}

}  // namespace parkade::disk
