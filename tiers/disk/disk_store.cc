// Storing a park: segment first, then one synced batch.
#include <sys/uio.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tiers/disk/tier_impl.h"

namespace parkade::disk {

absl::Status DiskTier::Store(const ParkRecord& record, absl::Span<const ExtentBytes> payload) {
  const ParkKey key = record.summary.key;
  if (absl::Status s = Writable(); !s.ok()) return s;
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  if (!db.ok()) return db.status();
  {
    absl::MutexLock lock(&mutex_);
    if (!storing_.insert(key).second) {
      return absl::AlreadyExistsError("this park is being written");
    }
  }
  const auto release = absl::MakeCleanup([this, &key] {
    absl::MutexLock lock(&mutex_);
    storing_.erase(key);
  });
  const absl::StatusOr<std::string> held = (*db)->Get(Family::kManifest, ManifestKey(key));
  if (held.ok()) return absl::AlreadyExistsError("this park is stored already");
  if (!absl::IsNotFound(held.status())) return held.status();
  return StoreClaimed(&**db, record, payload);
}

absl::StatusOr<std::vector<CatalogueRow>> DiskTier::CopiedRows(const Digest128& identity) const {
  std::vector<CatalogueRow> rows;
  rows.push_back({Family::kMeta, std::string(kSecretKey), secret_row_});
  absl::MutexLock lock(&mutex_);
  const auto it = identities_.find(identity);
  if (it == identities_.end()) {
    return absl::FailedPreconditionError("the identity of this park was not put before");
  }
  rows.push_back({Family::kIdentity, DigestKey(identity), it->second});
  return rows;
}

absl::Status DiskTier::StoreClaimed(CatalogueDb* db, const ParkRecord& record,
                                    absl::Span<const ExtentBytes> payload) {
  absl::StatusOr<std::vector<CatalogueRow>> copied = CopiedRows(record.summary.identity);
  if (!copied.ok()) return copied.status();
  absl::StatusOr<ParkSegment> park =
      BuildParkSegment(writer_.TakeNumber(), record, payload, options_.codec, *copied,
                       NewSegmentSealer(directory_->key()));
  if (!park.ok()) return park.status();
  std::uint64_t payload_bytes = 0;
  for (const ExtentInfo& extent : record.extents) payload_bytes += extent.raw_bytes;
  writer_.Reach("store.begin");
  if (absl::Status s = ledger_.Reserve(payload_bytes, directory_->FreeBytes()); !s.ok()) return s;
  std::uint64_t block_bytes = 0;
  const absl::Status written = WritePark(db, *park, payload, &block_bytes);
  ledger_.Settle(payload_bytes, written.ok() ? block_bytes : 0);
  if (!written.ok()) {
    Fail(written);
    return written;
  }
  MeasureDatabase();
  return absl::OkStatus();
}

absl::Status DiskTier::WritePark(CatalogueDb* db, const ParkSegment& park,
                                 absl::Span<const ExtentBytes> payload,
                                 std::uint64_t* block_bytes) {
  absl::StatusOr<std::uint64_t> written = writer_.Write(park, payload);
  if (!written.ok()) return written.status();
  *block_bytes = *written;
  RowBatch batch;
  batch.puts = park.rows;
  CatalogueRow set_aside;
  if (writer_.SetNumbersAside(park.ref.segment, &set_aside)) batch.puts.push_back(set_aside);
  const absl::Status status = db->Write(batch, true);
  if (!status.ok()) {
    // swallow: the caller gets the batch's error; a file that no row names goes at the next open.
    (void)directory_->Unlink(park.ref.segment);
    return status;
  }
  writer_.Reach("store.batch");
  return absl::OkStatus();
}

}  // namespace parkade::disk
