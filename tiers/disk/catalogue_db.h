// RocksDB behind a small door: eight families of rows, synced batches, and failures as statuses.
// No exception and no RocksDB type passes it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tiers/disk/file_door.h"
#include "tiers/disk/rows.h"

namespace parkade::disk {

// Applied as a whole or not at all: deletions first, then puts.
struct RowBatch {
  struct Range {
    Family family;
    std::string begin;  // first key deleted
    std::string end;    // first key kept
  };
  std::vector<Range> delete_ranges;
  std::vector<std::pair<Family, std::string>> deletes;
  std::vector<CatalogueRow> puts;

  bool empty() const { return delete_ranges.empty() && deletes.empty() && puts.empty(); }
};

// Thread safe.
class CatalogueDb {
 public:
  enum class Mode {
    kCreate,    // a folder that is not there yet
    kExisting,  // fails when anything is missing
    kReadOnly,  // changes no file: for a full disk, and for looking
  };
  // DataLoss: files missing or damaged; rebuilding from segments helps. ResourceExhausted: no
  // space. Unavailable: anything else, rebuilding does not help (descriptors, permissions).
  // `key` not null: values are encrypted, keys of rows are not. `door` outlives it.
  static absl::StatusOr<std::unique_ptr<CatalogueDb>> Open(const std::string& path, Mode mode,
                                                           const SharedSealKey& key = nullptr,
                                                           FileDoor& door = FileDoor::System());
  ~CatalogueDb();

  bool read_only() const;

  // NotFound: no such row. DataLoss: RocksDB's own checksums differ, or an encrypted value does not
  // open.
  absl::StatusOr<std::string> Get(Family family, const std::string& key) const;
  // Rows with begin <= key < end, in order, until `visit` says false. An empty `end`: to the last.
  // An encrypted value that does not open is visited as an empty one, which no decoder takes.
  absl::Status Scan(
      Family family, const std::string& begin, const std::string& end,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) const;
  // On an error nothing of the batch counts, and no later Write succeeds.
  absl::Status Write(const RowBatch& batch, bool sync);
  // Unsynced rows become durable.
  absl::Status SyncLog();
  // Deleted rows of these keys leave the files: write buffers and log are flushed, and the ranges
  // rewritten. Cost: what the ranges' files weigh.
  absl::Status Purge(const std::vector<RowBatch::Range>& ranges);

  // First failure that RocksDB met in the background or in Write; OK while healthy.
  absl::Status health() const;
  // Bytes of log, flushes and compactions since open.
  std::uint64_t written_bytes() const;

 private:
  struct State;
  explicit CatalogueDb(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// First key after every key that begins with `prefix`; empty when there is none.
std::string PrefixEnd(std::string prefix);

}  // namespace parkade::disk
