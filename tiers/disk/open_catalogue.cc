#include <chrono>

#include "absl/cleanup/cleanup.h"
#include "tiers/disk/recovery.h"

namespace parkade::disk {
namespace {

std::int64_t UnixMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

absl::StatusOr<OpenedCatalogue> OpenForReading(const Directory& directory) {
  absl::StatusOr<std::unique_ptr<CatalogueDb>> db = CatalogueDb::Open(
      directory.CataloguePath(), CatalogueDb::Mode::kReadOnly, directory.key(), directory.door());
  if (!db.ok()) return db.status();
  return OpenedCatalogue{std::move(db).value(), false};
}

absl::StatusOr<RecoveryReport> CountSegments(const Directory& directory) {
  RecoveryReport report;
  const absl::Status listed = directory.ListSegments(
      kListingThreads,
      [&](const SegmentFile& file) {
        ++report.segments;
        report.segment_block_bytes += file.block_bytes;
      },
      [](const std::string&) {});
  if (!listed.ok()) return listed;
  return report;
}

}  // namespace

absl::StatusOr<OpenedCatalogue> OpenCatalogue(Directory* directory) {
  const std::string path = directory->CataloguePath();
  const std::string name(kCatalogueName);
  const std::string marker(kOpeningName);
  const bool exists = directory->Exists(name);
  const absl::Status plain = exists ? directory->CheckCatalogueFiles() : absl::OkStatus();
  if (!plain.ok() && !absl::IsDataLoss(plain)) return plain;
  if (directory->FreeBytes() < kOpenFreeBytes) {
    if (exists && plain.ok()) return OpenForReading(*directory);
    return absl::ResourceExhaustedError(directory->path() + " has no space left");
  }
  // RocksDB's assertions end the process on some damages. The marker tells the next start, which
  // then goes without the damaged files instead of ending the same way.
  const bool ended_inside = directory->Exists(marker);
  const absl::Status marked = directory->PutMarker(marker);
  if (absl::IsResourceExhausted(marked) && exists && plain.ok()) return OpenForReading(*directory);
  if (!marked.ok()) return marked;
  bool created = false;
  absl::StatusOr<std::unique_ptr<CatalogueDb>> db = absl::DataLossError("not opened yet");
  if (exists && !ended_inside && plain.ok()) {
    db = CatalogueDb::Open(path, CatalogueDb::Mode::kExisting, directory->key(), directory->door());
    if (absl::IsResourceExhausted(db.status())) {
      db = CatalogueDb::Open(path, CatalogueDb::Mode::kReadOnly, directory->key(),
                             directory->door());
    }
  }
  if (absl::IsDataLoss(db.status())) {
    if (absl::Status s = directory->SetCatalogueAside(UnixMs()); !s.ok()) return s;
    db = CatalogueDb::Open(path, CatalogueDb::Mode::kCreate, directory->key(), directory->door());
    created = true;
  }
  if (!db.ok()) return db.status();
  return OpenedCatalogue{std::move(db).value(), created};
}

absl::StatusOr<ReconciledCatalogue> OpenReconciled(Directory* directory, SegmentReader* reader,
                                                   const RecoveryOptions& options) {
  // Reconcile takes it away earlier, once everything was read that is read at every start. swallow:
  // a marker that stays costs a rebuild.
  const auto unmark =
      absl::MakeCleanup([directory] { (void)directory->RemoveMarker(std::string(kOpeningName)); });
  for (const bool again : {false, true}) {
    absl::StatusOr<OpenedCatalogue> opened = OpenCatalogue(directory);
    if (!opened.ok()) return opened.status();
    ReconciledCatalogue result;
    result.db = std::move(opened->db);
    if (result.db->read_only()) {
      absl::StatusOr<RecoveryReport> counted = CountSegments(*directory);
      if (!counted.ok()) return counted.status();
      result.report = std::move(counted).value();
      return result;
    }
    absl::StatusOr<RecoveryReport> report = Reconcile(directory, result.db.get(), reader, options);
    if (absl::IsDataLoss(report.status()) && !again) {
      result.db.reset();
      if (absl::Status s = directory->SetCatalogueAside(UnixMs()); !s.ok()) return s;
      continue;
    }
    if (!report.ok()) return report.status();
    result.report = std::move(report).value();
    result.rebuilt = opened->created && result.report.adopted_segments > 0;
    if (absl::Status s = directory->RemoveDamagedCatalogues(); !s.ok()) return s;
    return result;
  }
  return absl::InternalError("the catalogue can't be rebuilt");
}

}  // namespace parkade::disk
