#include "tiers/disk/catalogue_options.h"

#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/statistics.h>
#include <rocksdb/table.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace parkade::disk {
namespace {

constexpr std::size_t kWriteBufferBytes = 4u << 20;
constexpr int kOpenFiles = 128;

// RocksDB's own info log aborts the process when the disk is full. What matters comes back as a
// status; the rest is dropped.
class SilentLogger : public rocksdb::Logger {
 public:
  SilentLogger() : rocksdb::Logger(rocksdb::InfoLogLevel::FATAL_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* /*format*/, va_list /*arguments*/) override {}
};

// Files for their owner only; RocksDB gives them to everybody, whatever it is told.
class PrivateFileSystem : public rocksdb::FileSystemWrapper {
 public:
  explicit PrivateFileSystem(std::shared_ptr<rocksdb::FileSystem> files)
      : rocksdb::FileSystemWrapper(std::move(files)) {}
  const char* Name() const override { return "ParkadePrivate"; }

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override {
    const rocksdb::IOStatus status = target()->NewWritableFile(name, options, file, context);
    if (status.ok()) ::chmod(name.c_str(), 0600);
    return status;
  }
  rocksdb::IOStatus LockFile(const std::string& name, const rocksdb::IOOptions& options,
                             rocksdb::FileLock** lock, rocksdb::IODebugContext* context) override {
    const rocksdb::IOStatus status = target()->LockFile(name, options, lock, context);
    if (status.ok()) ::chmod(name.c_str(), 0600);
    return status;
  }
};

std::shared_ptr<rocksdb::Env> PrivateEnv(std::shared_ptr<rocksdb::FileSystem> files) {
  return rocksdb::NewCompositeEnv(std::make_shared<PrivateFileSystem>(std::move(files)));
}

// One for the process, so that every directory opened shares one bound.
std::shared_ptr<rocksdb::Cache> BlockCache() {
  static const auto* cache =
      new std::shared_ptr<rocksdb::Cache>(rocksdb::NewLRUCache(kBlockCacheBytes, 2));
  return *cache;
}

}  // namespace

absl::Status ToStatus(const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = "catalogue: " + status.ToString();
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  if (status.IsNotFound()) return absl::NotFoundError(message);
  if (status.IsCorruption() || status.IsPathNotFound() || status.IsInvalidArgument() ||
      status.IsNotSupported()) {
    return absl::DataLossError(message);
  }
  if (status.IsIOError() && message.find(strerror(EIO)) != std::string::npos) {
    return absl::DataLossError(message);
  }
  return absl::UnavailableError(message);
}

void FailureListener::OnBackgroundError(rocksdb::BackgroundErrorReason /*reason*/,
                                        rocksdb::Status* status) {
  Note(ToStatus(*status));
}

void FailureListener::OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason /*reason*/,
                                           rocksdb::Status /*status*/, bool* auto_recovery) {
  *auto_recovery = false;
}

void FailureListener::Note(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  first_.Update(status);
}

absl::Status FailureListener::first() const {
  absl::MutexLock lock(&mutex_);
  return first_;
}

std::shared_ptr<rocksdb::Env> EnvOver(std::shared_ptr<rocksdb::FileSystem> files) {
  if (files != nullptr) return PrivateEnv(std::move(files));
  // For the life of the process: databases and RocksDB's threads refer to it.
  static const auto& system =
      *new std::shared_ptr<rocksdb::Env>(PrivateEnv(rocksdb::FileSystem::Default()));
  return system;
}

rocksdb::DBOptions MakeDbOptions(std::shared_ptr<FailureListener> listener) {
  rocksdb::DBOptions options;
  options.info_log = std::make_shared<SilentLogger>();
  options.info_log_level = rocksdb::InfoLogLevel::FATAL_LEVEL;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.listeners = {std::move(listener)};
  options.max_bgerror_resume_count = 0;
  options.paranoid_checks = true;
  options.best_efforts_recovery = false;
  // Rows that a damaged log has lost come back from their segments, see recovery.h.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.manifest_preallocation_size = 1u << 20;
  options.max_manifest_file_size = 4u << 20;
  options.max_open_files = kOpenFiles;
  options.allow_fallocate = true;
  options.max_total_wal_size = kAllWriteBuffersBytes;
  options.db_write_buffer_size = kAllWriteBuffersBytes;
  options.max_background_jobs = 2;
  options.skip_stats_update_on_db_open = true;
  options.statistics = rocksdb::CreateDBStatistics();
  options.statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
  return options;
}

rocksdb::ColumnFamilyOptions MakeFamilyOptions() {
  rocksdb::ColumnFamilyOptions options;
  options.write_buffer_size = kWriteBufferBytes;
  options.arena_block_size = 128u << 10;
  // Small, so that what a compaction needs for a moment stays within the headroom of space.h.
  options.max_bytes_for_level_base = 16u << 20;
  options.target_file_size_base = 4u << 20;
  options.max_compaction_bytes = 16u << 20;
  options.compression = rocksdb::kNoCompression;
  options.paranoid_file_checks = true;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = BlockCache();
  table.cache_index_and_filter_blocks = true;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10, false));
  table.format_version = 5;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

}  // namespace parkade::disk
