// Taking back segments that no row names: rows lost with RocksDB's log, or with all of RocksDB.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tiers/disk/reconciler.h"

namespace parkade::disk {
namespace {

// A segment without payload that is larger than this holds more rows than one call ever writes
// about tombstones.
constexpr std::uint64_t kLargestSmallSegment = 1u << 20;

}  // namespace

// Tombstones count before anything is taken back.
absl::Status Reconciler::FindTombstones() {
  for (const SegmentFile& file : orphans_) {
    if (file.size_bytes > kLargestSmallSegment) continue;
    absl::StatusOr<SegmentHead> head = reader_->ReadHead(file.segment);
    if (absl::IsUnavailable(head.status())) return head.status();
    if (!head.ok()) continue;
    for (const CatalogueRow& row : head->rows) {
      if (row.family != Family::kTombstone) continue;
      const absl::StatusOr<RefRow> unwrapped = UnwrapRef(row.value);
      if (!unwrapped.ok()) continue;
      const absl::StatusOr<std::vector<std::uint64_t>> segments = DecodeTombstone(unwrapped->inner);
      if (segments.ok()) dead_.insert(segments->begin(), segments->end());
    }
  }
  return absl::OkStatus();
}

absl::Status Reconciler::AdoptOrphans() {
  absl::flat_hash_set<std::uint64_t> given_up(drop_.begin(), drop_.end());
  std::vector<std::uint64_t> refused;
  for (const SegmentFile& file : orphans_) {
    bool adopted = false;
    if (!dead_.contains(file.segment) && !given_up.contains(file.segment)) {
      if (absl::Status s = AdoptSegment(file, &adopted); !s.ok()) return s;
    }
    if (adopted) {
      ++report_.adopted_segments;
      Find(absl::StrCat(SegmentPath(file.segment), ": no row named it, taken back"));
    } else {
      refused.push_back(file.segment);
      Find(absl::StrCat(SegmentPath(file.segment), ": no row names it, dropped"));
    }
  }
  if (absl::Status s = db_->SyncLog(); !s.ok()) return s;
  drop_.insert(drop_.end(), refused.begin(), refused.end());
  return absl::OkStatus();
}

absl::Status Reconciler::AdoptSegment(const SegmentFile& file, bool* adopted) {
  absl::StatusOr<SegmentHead> head = reader_->ReadHead(file.segment);
  // That it can't be opened now (no descriptor is left) says nothing about what is in it.
  if (absl::IsFailedPrecondition(head.status()) || absl::IsUnavailable(head.status())) {
    return head.status();
  }
  if (!head.ok()) {
    Find(std::string(head.status().message()));
    return absl::OkStatus();
  }
  absl::StatusOr<bool> ours = AdoptSecret(file, *head, adopted);
  if (!ours.ok()) return ours.status();
  if (!*ours) return absl::OkStatus();
  for (const CatalogueRow& row : head->rows) {
    absl::Status status;
    if (row.family == Family::kManifest) status = AdoptPark(file, *head, row, adopted);
    if (row.family == Family::kName) status = AdoptName(file.segment, row, adopted);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Reconciler::AdoptSecret(const SegmentFile& file, const SegmentHead& head,
                                             bool* adopted) {
  for (const CatalogueRow& row : head.rows) {
    if (row.family != Family::kMeta || row.key != kSecretKey) continue;
    const absl::StatusOr<RefRow> theirs = UnwrapRef(row.value);
    if (!theirs.ok() || !DecodeSecret(theirs->inner).ok()) return false;
    const absl::StatusOr<std::string> value = db_->Get(Family::kMeta, row.key);
    if (absl::IsNotFound(value.status())) {
      RowBatch batch;
      batch.puts.push_back(row);
      if (absl::Status s = db_->Write(batch, false); !s.ok()) return s;
    } else if (!value.ok()) {
      return value.status();
    } else {
      const absl::StatusOr<RefRow> ours = UnwrapRef(*value);
      if (!ours.ok()) return ours.status();
      if (ours->inner != theirs->inner) {
        // A catalogue whose secret and parks all lie elsewhere is another directory's: what is
        // here must not be dropped for it.
        if (FileOf(ours->ref.segment) != nullptr || broken_.size() < parks_.size()) return false;
        return absl::DataLossError("catalogue: it is another directory's");
      }
      if (ours->ref.segment == file.segment) *adopted = true;
      continue;
    }
    if (theirs->ref.segment == file.segment) *adopted = true;
  }
  return true;
}

absl::Status Reconciler::AdoptPark(const SegmentFile& file, const SegmentHead& head,
                                   const CatalogueRow& row, bool* adopted) {
  const absl::StatusOr<ParkKey> key = ParseManifestKey(row.key);
  const absl::StatusOr<RefRow> ref = UnwrapRef(row.value);
  if (!key.ok() || !ref.ok()) return absl::OkStatus();
  if (ref->ref != SegmentRef{file.segment, file.size_bytes}) return absl::OkStatus();
  const absl::StatusOr<ParkSummary> summary = DecodeManifest(*key, ref->inner);
  if (!summary.ok()) return absl::OkStatus();

  RowBatch batch;
  const absl::StatusOr<std::string> held = db_->Get(Family::kManifest, row.key);
  if (held.ok()) {
    // Two segments of one key: the newer one was written after the older one was given up.
    const absl::StatusOr<RefRow> other = UnwrapRef(*held);
    if (other.ok() && other->ref.segment > file.segment) return absl::OkStatus();
    if (absl::Status s = AppendParkDeletion(*db_, *key, *held, &batch); !s.ok()) return s;
    if (other.ok()) drop_.push_back(other->ref.segment);
  } else if (!absl::IsNotFound(held.status())) {
    return held.status();
  }
  std::size_t found = 0;
  for (const CatalogueRow& other : head.rows) {
    bool take = other.family == Family::kTokens && other.key == row.key;
    if (other.family == Family::kImage) {
      const auto image = ParseImageKey(other.key);
      take = image.ok() && image->first == *key;
    }
    if (take) ++found;
    if (other.family == Family::kIdentity) {
      take = absl::IsNotFound(db_->Get(Family::kIdentity, other.key).status());
    }
    if (take) batch.puts.push_back(other);
  }
  if (found != 1 + summary->stages.stages.size()) return absl::OkStatus();
  batch.puts.push_back(row);
  *adopted = true;
  return db_->Write(batch, false);
}

absl::Status Reconciler::AdoptName(std::uint64_t segment, const CatalogueRow& row, bool* adopted) {
  const absl::StatusOr<RefRow> ref = UnwrapRef(row.value);
  if (!ref.ok() || ref->ref.segment != segment) return absl::OkStatus();
  const absl::StatusOr<std::string> held = db_->Get(Family::kName, row.key);
  if (held.ok()) {
    const absl::StatusOr<RefRow> other = UnwrapRef(*held);
    if (other.ok() && other->ref.segment > segment) return absl::OkStatus();
  } else if (!absl::IsNotFound(held.status())) {
    return held.status();
  }
  RowBatch batch;
  batch.puts.push_back(row);
  *adopted = true;
  return db_->Write(batch, false);
}

}  // namespace parkade::disk
