// From what a directory holds to a catalogue that names exactly what is there.
//
// RocksDB may lose rows (a damaged log) or all of them, and segments may be missing. Rows and
// segments are made to agree without reading payload:
//   - a row whose segment is missing or has another size goes, and with it every later park of the
//     conversation and every fork that needs them;
//   - a segment that no row names is taken back when its head is whole and its key is free, which
//     is all that rebuilding a lost catalogue does; else it is dropped;
//   - what a tombstone names is dropped, never taken back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tiers/disk/catalogue_db.h"
#include "tiers/disk/directory.h"
#include "tiers/disk/segment_reader.h"

namespace parkade::disk {

// A cold disk is asked about many files at once.
inline constexpr int kListingThreads = 8;

// Opens the catalogue, or sets it aside and makes an empty one when it is missing, damaged, or the
// last start ended inside RocksDB. With less than kOpenFreeBytes free it is opened for reading.
inline constexpr std::uint64_t kOpenFreeBytes = 16ull << 20;
struct OpenedCatalogue {
  std::unique_ptr<CatalogueDb> db;
  bool created = false;  // it is empty
};
absl::StatusOr<OpenedCatalogue> OpenCatalogue(Directory* directory);

struct RecoveryReport {
  std::uint64_t parks = 0;
  std::uint64_t segments = 0;
  std::uint64_t segment_block_bytes = 0;
  std::uint64_t highest_segment = 0;  // in the folder or in a row
  std::uint64_t damaged_rows = 0;     // unreadable, or naming what is not there
  std::uint64_t lost_parks = 0;       // of those, parks that nobody asked to remove
  std::uint64_t dropped_files = 0;
  std::uint64_t adopted_segments = 0;
  std::uint64_t ended_conversations = 0;
  std::vector<std::string> findings;  // one line each; bounded
};

struct RecoveryOptions {
  // Parks to give up besides what is found: their segments are damaged.
  std::vector<std::uint64_t> damaged_segments;
  std::function<void(std::string_view point)> failpoint;
};

// Requires a writable catalogue that nobody else uses. FailedPrecondition: a segment was written by
// a newer version. Unavailable: one can't be opened now. DataLoss: the catalogue's own files are
// damaged; set it aside and start again with an empty one. After an error or a crash a second run
// goes on where the first one stopped.
// Cost: the manifest, one stat a segment, and one read a segment that no row names.
absl::StatusOr<RecoveryReport> Reconcile(Directory* directory, CatalogueDb* db,
                                         SegmentReader* reader, const RecoveryOptions& options);

// Opens and reconciles; a catalogue that turns out to be damaged is rebuilt. What was set aside is
// removed then. A catalogue that could only be opened for reading is not reconciled: its report
// counts segments only.
struct ReconciledCatalogue {
  std::unique_ptr<CatalogueDb> db;
  RecoveryReport report;
  bool rebuilt = false;  // from segments
};
absl::StatusOr<ReconciledCatalogue> OpenReconciled(Directory* directory, SegmentReader* reader,
                                                   const RecoveryOptions& options);

// Adds the deletion of a park's rows in every family. `manifest`: its row; when that can't be read
// the image rows are looked for.
absl::Status AppendParkDeletion(const CatalogueDb& db, const ParkKey& key,
                                std::string_view manifest, RowBatch* batch);

}  // namespace parkade::disk
