// Reading and checking every byte of a directory.
#include <fcntl.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "src/format/checksum.h"
#include "tiers/disk/disk_tier.h"
#include "tiers/disk/park_places.h"
#include "tiers/disk/recovery.h"

namespace parkade {
namespace disk {
namespace {

constexpr std::uint64_t kLargestSegmentBytes = 128ull << 20;

class Verifier {
 public:
  using Progress = std::function<void(std::uint64_t, std::uint64_t)>;

  // `db` null: there is no catalogue to compare with.
  Verifier(Directory* directory, CatalogueDb* db, const Progress& progress, VerifyReport* report)
      : directory_(directory), db_(db), progress_(progress), report_(report) {}

  absl::Status Run() {
    if (absl::Status s = LoadOwners(); !s.ok()) return s;
    std::vector<SegmentFile> files;
    std::uint64_t total_bytes = 0;
    const absl::Status listed = directory_->ListSegments(
        1,
        [&](const SegmentFile& file) {
          files.push_back(file);
          total_bytes += file.size_bytes;
        },
        [&](const std::string& path) { Orphan(path); });
    if (!listed.ok()) return listed;
    std::uint64_t done_bytes = 0;
    for (const SegmentFile& file : files) {
      const absl::Status checked = CheckFile(file);
      if (absl::IsFailedPrecondition(checked)) return checked;
      if (!checked.ok()) {
        ++report_->damaged_segments;
        damaged_.push_back(file.segment);
        report_->findings.push_back(
            absl::StrCat(SegmentPath(file.segment), ": ", checked.message()));
      }
      ++report_->segments;
      report_->bytes += file.size_bytes;
      done_bytes += file.size_bytes;
      owners_.erase(file.segment);
      if (progress_) progress_(done_bytes, total_bytes);
    }
    for (const auto& [segment, what] : owners_) DamagedRow(SegmentPath(segment), "is missing");
    return absl::OkStatus();
  }

  const std::vector<std::uint64_t>& damaged_segments() const { return damaged_; }
  // Rows of the catalogue that differ from their segment's copy, as they should be.
  const RowBatch& corrections() const { return corrections_; }
  // RocksDB's own checksums differ somewhere.
  bool catalogue_damaged() const { return catalogue_damaged_; }

 private:
  void DamagedRow(std::string_view where, absl::string_view what) {
    ++report_->damaged_rows;
    report_->findings.push_back(absl::StrCat(std::string(where), ": ", what));
  }

  void Orphan(const std::string& path) {
    ++report_->orphan_files;
    report_->findings.push_back(path + ": no row names it");
  }

  absl::Status LoadOwners() {
    if (db_ == nullptr) return absl::OkStatus();
    for (const Family family :
         {Family::kManifest, Family::kName, Family::kTombstone, Family::kMeta}) {
      const absl::Status scanned = db_->Scan(family, "", "", [&](auto key, auto value) {
        if (family == Family::kMeta && key != kSecretKey) return true;
        const absl::StatusOr<RefRow> row = UnwrapRef(value);
        if (row.ok()) {
          owners_[row->ref.segment] = family;
        } else {
          DamagedRow("catalogue", row.status().message());
        }
        return true;
      });
      if (!scanned.ok()) return scanned;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadWhole(const SegmentFile& file) {
    if (file.size_bytes > kLargestSegmentBytes) return absl::DataLossError("is far too large");
    absl::StatusOr<Fd> fd = OpenAt(directory_->root(), SegmentPath(file.segment), O_RDONLY);
    if (!fd.ok()) return fd.status();
    std::string bytes(file.size_bytes, '\0');
    if (absl::Status s = ReadExactly(*fd, bytes.data(), bytes.size(), 0, "reading"); !s.ok()) {
      return s;
    }
    return bytes;
  }

  absl::Status CheckFile(const SegmentFile& file) {
    absl::StatusOr<std::string> bytes = ReadWhole(file);
    if (!bytes.ok()) return bytes.status();
    std::uint64_t needed = 0;
    const absl::StatusOr<SegmentHead> head =
        DecodeSegmentHead(*bytes, &needed, directory_->key().get());
    if (absl::IsOutOfRange(head.status())) return absl::DataLossError("is shorter than its head");
    if (!head.ok()) return StatusInDirectory(head.status(), *bytes);
    if (head->segment != file.segment) return absl::DataLossError("holds another segment's bytes");
    if (head->head_bytes + head->payload_bytes != file.size_bytes) {
      return absl::DataLossError("its size is not what its head says");
    }
    const auto owner = owners_.find(file.segment);
    if (db_ != nullptr && owner == owners_.end()) Orphan(SegmentPath(file.segment));
    std::uint64_t end = head->head_bytes;
    for (const CatalogueRow& row : head->rows) {
      if (row.family != Family::kManifest) continue;
      if (absl::Status s = CheckPark(file, *head, row, *bytes, &end); !s.ok()) return s;
      if (owner != owners_.end()) CompareRows(*head, row);
    }
    if (end != file.size_bytes) return absl::DataLossError("has bytes that belong to no extent");
    return absl::OkStatus();
  }

  // `end`: where the last extent checked so far ends.
  absl::Status CheckPark(const SegmentFile& file, const SegmentHead& head,
                         const CatalogueRow& manifest, std::string_view bytes, std::uint64_t* end) {
    const absl::StatusOr<ParkKey> key = ParseManifestKey(manifest.key);
    if (!key.ok()) return key.status();
    const absl::StatusOr<RefRow> ref = UnwrapRef(manifest.value);
    if (!ref.ok()) return ref.status();
    if (ref->ref != SegmentRef{file.segment, file.size_bytes}) {
      return absl::DataLossError("its manifest row names another segment");
    }
    const absl::StatusOr<ParkSummary> summary = DecodeManifest(*key, ref->inner);
    if (!summary.ok()) return summary.status();
    std::vector<std::string> images;
    for (const CatalogueRow& row : head.rows) {
      if (row.family == Family::kTokens && row.key == manifest.key) {
        const absl::StatusOr<std::vector<Token>> tokens = DecodeTokens(row.value);
        if (!tokens.ok()) return tokens.status();
        if (tokens->size() != summary->token_count) {
          return absl::DataLossError("it has another number of tokens than its manifest row says");
        }
      }
      const auto image = ParseImageKey(row.key);
      if (row.family == Family::kImage && image.ok() && image->first == *key) {
        images.push_back(row.value);
      }
    }
    const absl::StatusOr<std::vector<StoredExtent>> extents = JoinImageRows(file.segment, images);
    if (!extents.ok()) return extents.status();
    for (const StoredExtent& extent : *extents) {
      if (absl::Status s = CheckExtent(*key, extent, head.sealer.get(), bytes, end); !s.ok()) {
        return absl::DataLossError(
            absl::StrCat("extent ", extent.ordinal, " at ", extent.offset, ": ", s.message()));
      }
      ++report_->extents;
    }
    return absl::OkStatus();
  }

  absl::Status CheckExtent(const ParkKey& key, const StoredExtent& extent, const Sealer* sealer,
                           std::string_view bytes, std::uint64_t* end) {
    if (extent.offset < *end + kExtentHeaderBytes || extent.offset > bytes.size() ||
        extent.stored_bytes > bytes.size() - extent.offset) {
      return absl::DataLossError("lies outside of the file");
    }
    const std::uint64_t header_at = extent.offset - kExtentHeaderBytes;
    const std::string_view padding = bytes.substr(*end, header_at - *end);
    if (padding.size() >= kExtentAlignment ||
        padding.find_first_not_of('\0') != std::string_view::npos) {
      return absl::DataLossError("the bytes before it are not padding");
    }
    const std::string_view header = bytes.substr(header_at, kExtentHeaderBytes);
    std::string_view stored = bytes.substr(extent.offset, extent.stored_bytes);
    *end = extent.offset + extent.stored_bytes;
    absl::Status whole;
    if (sealer == nullptr) {
      whole = CheckExtentHeader(header, key, extent);
    } else {
      opened_.resize(stored.size());
      whole =
          OpenExtent(*sealer, header, key, extent, {stored.data(), stored.size()}, opened_.data());
      stored = opened_;
    }
    if (!whole.ok()) return whole;
    if (extent.codec == Codec::kRaw) {
      raw_.assign(stored.begin(), stored.end());
    } else {
      raw_.resize(extent.info.raw_bytes);
      if (absl::Status s = Decompress(extent.codec, stored, absl::MakeSpan(raw_)); !s.ok()) {
        return s;
      }
    }
    if (Checksum(raw_) != extent.info.checksum) return absl::DataLossError("its checksum is wrong");
    return absl::OkStatus();
  }

  // What RocksDB gives for the rows of a park that are not read at every open.
  void CompareRows(const SegmentHead& head, const CatalogueRow& manifest) {
    const absl::StatusOr<ParkKey> key = ParseManifestKey(manifest.key);
    const absl::StatusOr<std::string> held = db_->Get(Family::kManifest, manifest.key);
    if (!key.ok() || !held.ok() || *held != manifest.value) return;
    for (const CatalogueRow& row : head.rows) {
      const auto image = ParseImageKey(row.key);
      const bool ours = (row.family == Family::kTokens && row.key == manifest.key) ||
                        (row.family == Family::kImage && image.ok() && image->first == *key);
      if (!ours) continue;
      const absl::StatusOr<std::string> value = db_->Get(row.family, row.key);
      if (value.ok() && *value == row.value) continue;
      if (absl::IsDataLoss(value.status())) catalogue_damaged_ = true;
      DamagedRow(SegmentPath(head.segment), "a catalogue row differs from its copy");
      corrections_.puts.push_back(row);
    }
  }

  Directory* const directory_;
  CatalogueDb* const db_;
  const Progress& progress_;
  VerifyReport* const report_;
  absl::flat_hash_map<std::uint64_t, Family> owners_;
  std::vector<std::uint64_t> damaged_;
  RowBatch corrections_;
  bool catalogue_damaged_ = false;
  std::vector<char> raw_;
  std::string opened_;  // stored bytes of a sealed extent
};

absl::StatusOr<VerifyReport> Look(Directory* directory, const Verifier::Progress& progress) {
  VerifyReport report;
  const absl::Status plain = directory->CheckCatalogueFiles();
  absl::StatusOr<std::unique_ptr<CatalogueDb>> db = absl::DataLossError(plain.message());
  if (!absl::IsDataLoss(plain)) {
    db = CatalogueDb::Open(directory->CataloguePath(), CatalogueDb::Mode::kReadOnly,
                           directory->key(), directory->door());
  }
  if (absl::IsUnavailable(db.status())) return db.status();
  if (!db.ok()) {
    ++report.damaged_rows;
    report.findings.push_back(std::string(db.status().message()));
  }
  absl::Status status = Verifier(directory, db.ok() ? db->get() : nullptr, progress, &report).Run();
  if (absl::IsDataLoss(status)) {
    // The catalogue opens but can't be read through: segments are looked at on their own.
    report = VerifyReport();
    ++report.damaged_rows;
    report.findings.push_back(std::string(status.message()));
    status = Verifier(directory, nullptr, progress, &report).Run();
  }
  if (!status.ok()) return status;
  return report;
}

absl::StatusOr<VerifyReport> Repair(Directory* directory, const Verifier::Progress& progress) {
  VerifyReport report;
  SegmentReader reader(directory);
  if (absl::Status s = directory->EmptyTemporary(); !s.ok()) return s;
  absl::StatusOr<ReconciledCatalogue> opened = OpenReconciled(directory, &reader, {});
  if (!opened.ok()) return opened.status();
  if (opened->db->read_only()) {
    return absl::ResourceExhaustedError(directory->path() + " has no space for a repair");
  }
  report.catalogue_rebuilt = opened->rebuilt;
  report.damaged_rows = opened->report.damaged_rows;
  report.orphan_files = opened->report.dropped_files + opened->report.adopted_segments;
  if (report.catalogue_rebuilt) report.orphan_files = opened->report.dropped_files;
  report.findings = opened->report.findings;

  Verifier verifier(directory, opened->db.get(), progress, &report);
  if (absl::Status s = verifier.Run(); !s.ok()) return s;
  if (verifier.catalogue_damaged()) {
    opened->db.reset();
    if (absl::Status s = directory->SetCatalogueAside(absl::ToUnixMillis(absl::Now())); !s.ok()) {
      return s;
    }
    opened = OpenReconciled(directory, &reader, {});
    if (!opened.ok()) return opened.status();
    report.catalogue_rebuilt = true;
  } else if (!verifier.corrections().empty()) {
    if (absl::Status s = opened->db->Write(verifier.corrections(), true); !s.ok()) return s;
  }
  if (verifier.damaged_segments().empty()) return report;
  RecoveryOptions options;
  options.damaged_segments = verifier.damaged_segments();
  absl::StatusOr<RecoveryReport> ended = Reconcile(directory, opened->db.get(), &reader, options);
  if (!ended.ok()) return ended.status();
  report.findings.insert(report.findings.end(), ended->findings.begin(), ended->findings.end());
  return report;
}

// Names and the secret that lost their copy in a segment: whoever opens the tier writes it again.
absl::Status WriteSmallSegments(const std::string& directory, const SharedSealKey& key) {
  DiskTierOptions options;
  options.directory = directory;
  options.budget_bytes = std::numeric_limits<std::uint64_t>::max();
  options.min_free_bytes = 0;
  options.key = key;
  return OpenDiskTier(options).status();
}

}  // namespace
}  // namespace disk

absl::StatusOr<VerifyReport> VerifyDiskTier(
    const std::string& directory, bool repair,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress, const SharedSealKey& key) {
  try {
    absl::StatusOr<std::unique_ptr<disk::Directory>> opened =
        disk::Directory::Open(directory, false, key);
    if (!opened.ok()) return opened.status();
    if (!repair) return disk::Look(opened->get(), progress);
    absl::StatusOr<VerifyReport> report = disk::Repair(opened->get(), progress);
    opened->reset();
    if (!report.ok() || report->findings.empty()) return report;
    if (absl::Status s = disk::WriteSmallSegments(directory, key); !s.ok()) return s;
    return report;
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat(directory, ": ", e.what()));
  }
}

}  // namespace parkade
