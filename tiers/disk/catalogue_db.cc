#include "tiers/disk/catalogue_db.h"

#include <fcntl.h>
#include <rocksdb/db.h>
#include <rocksdb/statistics.h>
#include <rocksdb/write_batch.h>

#include <array>
#include <cerrno>
#include <exception>

#include "tiers/disk/catalogue_options.h"
#include "tiers/disk/file_io.h"

namespace parkade::disk {
namespace {

constexpr std::array<const char*, kFamilies> kFamilyNames = {
    "manifest", "tokens", "image", "usage", "identity", "name", "tombstone", "meta"};

rocksdb::Slice ToSlice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }
std::string_view ToView(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

// Runs `call` at RocksDB's boundary.
template <typename Call>
absl::Status Guarded(const Call& call) {
  try {
    return call();
  } catch (const std::exception& e) {
    return absl::UnavailableError(std::string("catalogue: ") + e.what());
  }
}

}  // namespace

struct CatalogueDb::State {
  ~State() {
    if (db == nullptr) return;
    const absl::Status closed = Guarded([this] {
      for (rocksdb::ColumnFamilyHandle* handle : handles) {
        // swallow: a handle has nothing to report that Close does not.
        db->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
      }
      handles.clear();
      return ToStatus(db->Close());
    });
    // swallow: every promise was kept by a sync before; there is nobody left to tell.
    (void)closed;
  }
  rocksdb::ColumnFamilyHandle* Handle(Family family) const {
    return handles[static_cast<std::size_t>(family) + 1];
  }

  Mode mode = Mode::kReadOnly;
  std::unique_ptr<RowSealer> sealer;  // null: values are plain
  std::shared_ptr<FailureListener> listener = std::make_shared<FailureListener>();
  std::shared_ptr<rocksdb::Statistics> statistics;
  std::shared_ptr<rocksdb::Env> env;
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;  // the default family, then Family's order
};

CatalogueDb::CatalogueDb(std::unique_ptr<State> state) : state_(std::move(state)) {}
CatalogueDb::~CatalogueDb() = default;

absl::StatusOr<std::unique_ptr<CatalogueDb>> CatalogueDb::Open(const std::string& path, Mode mode,
                                                               const SharedSealKey& key,
                                                               FileDoor& door) {
  auto state = std::make_unique<State>();
  state->mode = mode;
  if (key != nullptr) state->sealer = std::make_unique<RowSealer>(key);
  // RocksDB would make the folder for everybody.
  if (mode == Mode::kCreate && door.MakeFolder(AT_FDCWD, path.c_str()) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, path);
  }
  const absl::Status opened = Guarded([&] {
    rocksdb::DBOptions options = MakeDbOptions(state->listener);
    state->env = EnvOver(door.CatalogueFiles());
    options.env = state->env.get();
    options.create_if_missing = mode == Mode::kCreate;
    options.create_missing_column_families = mode == Mode::kCreate;
    options.error_if_exists = mode == Mode::kCreate;
    state->statistics = options.statistics;
    std::vector<rocksdb::ColumnFamilyDescriptor> families = {
        {rocksdb::kDefaultColumnFamilyName, MakeFamilyOptions()}};
    for (const char* name : kFamilyNames) families.emplace_back(name, MakeFamilyOptions());
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status =
        mode == Mode::kReadOnly
            ? rocksdb::DB::OpenForReadOnly(options, path, families, &state->handles, &db)
            : rocksdb::DB::Open(options, path, families, &state->handles, &db);
    state->db.reset(db);
    return ToStatus(status);
  });
  if (!opened.ok()) return opened;
  return std::unique_ptr<CatalogueDb>(new CatalogueDb(std::move(state)));
}

bool CatalogueDb::read_only() const { return state_->mode == Mode::kReadOnly; }

absl::StatusOr<std::string> CatalogueDb::Get(Family family, const std::string& key) const {
  std::string value;
  const absl::Status status = Guarded([&] {
    return ToStatus(
        state_->db->Get(rocksdb::ReadOptions(), state_->Handle(family), ToSlice(key), &value));
  });
  if (!status.ok()) return status;
  if (state_->sealer == nullptr) return value;
  return state_->sealer->Open(static_cast<std::uint8_t>(family), key, value);
}

absl::Status CatalogueDb::Scan(
    Family family, const std::string& begin, const std::string& end,
    const std::function<bool(std::string_view key, std::string_view value)>& visit) const {
  return Guarded([&] {
    rocksdb::ReadOptions options;
    options.fill_cache = false;
    options.readahead_size = 1u << 20;
    std::unique_ptr<rocksdb::Iterator> it(state_->db->NewIterator(options, state_->Handle(family)));
    for (it->Seek(begin); it->Valid(); it->Next()) {
      const std::string_view key = ToView(it->key());
      if (!end.empty() && key >= end) break;
      if (state_->sealer == nullptr) {
        if (!visit(key, ToView(it->value()))) break;
        continue;
      }
      // swallow: an empty value is damaged to every reader of rows.
      const std::string opened =
          state_->sealer->Open(static_cast<std::uint8_t>(family), key, ToView(it->value()))
              .value_or("");
      if (!visit(key, opened)) break;
    }
    return ToStatus(it->status());
  });
}

absl::Status CatalogueDb::Write(const RowBatch& batch, bool sync) {
  if (read_only()) return absl::UnavailableError("catalogue: open for reading only");
  // A log that could not be written ends the process when it is written again (an assertion).
  if (absl::Status failed = health(); !failed.ok()) return failed;
  const absl::Status status = Guarded([&] {
    rocksdb::WriteBatch writes;
    rocksdb::Status s;
    for (const RowBatch::Range& range : batch.delete_ranges) {
      s = writes.DeleteRange(state_->Handle(range.family), range.begin, range.end);
      if (!s.ok()) return ToStatus(s);
    }
    for (const auto& [family, key] : batch.deletes) {
      s = writes.Delete(state_->Handle(family), key);
      if (!s.ok()) return ToStatus(s);
    }
    for (const CatalogueRow& row : batch.puts) {
      s = writes.Put(
          state_->Handle(row.family), row.key,
          state_->sealer == nullptr
              ? row.value
              : state_->sealer->Seal(static_cast<std::uint8_t>(row.family), row.key, row.value));
      if (!s.ok()) return ToStatus(s);
    }
    rocksdb::WriteOptions options;
    options.sync = sync;
    return ToStatus(state_->db->Write(options, &writes));
  });
  if (!status.ok()) state_->listener->Note(status);
  return status;
}

absl::Status CatalogueDb::SyncLog() {
  if (read_only()) return absl::OkStatus();
  if (absl::Status failed = health(); !failed.ok()) return failed;
  return Guarded([&] { return ToStatus(state_->db->FlushWAL(true)); });
}

absl::Status CatalogueDb::Purge(const std::vector<RowBatch::Range>& ranges) {
  if (read_only()) return absl::UnavailableError("catalogue: open for reading only");
  return Guarded([&] {
    // All families: the log goes only when none of them needs it.
    rocksdb::Status s = state_->db->Flush(rocksdb::FlushOptions(), state_->handles);
    if (!s.ok()) return ToStatus(s);
    for (const RowBatch::Range& range : ranges) {
      rocksdb::CompactRangeOptions options;
      options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
      const rocksdb::Slice begin = ToSlice(range.begin);
      const rocksdb::Slice end = ToSlice(range.end);
      s = state_->db->CompactRange(options, state_->Handle(range.family), &begin, &end);
      if (!s.ok()) return ToStatus(s);
    }
    return absl::OkStatus();
  });
}

absl::Status CatalogueDb::health() const { return state_->listener->first(); }

std::uint64_t CatalogueDb::written_bytes() const {
  return state_->statistics->getTickerCount(rocksdb::WAL_FILE_BYTES) +
         state_->statistics->getTickerCount(rocksdb::FLUSH_WRITE_BYTES) +
         state_->statistics->getTickerCount(rocksdb::COMPACT_WRITE_BYTES);
}

std::string PrefixEnd(std::string prefix) {
  while (!prefix.empty()) {
    if (static_cast<unsigned char>(prefix.back()) != 0xff) {
      ++prefix.back();
      return prefix;
    }
    prefix.pop_back();
  }
  return prefix;
}

}  // namespace parkade::disk
