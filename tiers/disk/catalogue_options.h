// How RocksDB is set up for small rows and bad days; DESIGN section 4 says why each.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace parkade::disk {

inline constexpr std::size_t kAllWriteBuffersBytes = 16u << 20;
inline constexpr std::size_t kBlockCacheBytes = 8u << 20;

absl::Status ToStatus(const rocksdb::Status& status);

// Notes the first failure and forbids RocksDB to recover by itself.
class FailureListener : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* status) override;
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason reason, rocksdb::Status status,
                            bool* auto_recovery) override;
  void Note(const absl::Status& status);
  absl::Status first() const;

 private:
  mutable absl::Mutex mutex_;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
};

// Files for their owner only. `files` null: the system's; that one lives as long as the process.
std::shared_ptr<rocksdb::Env> EnvOver(std::shared_ptr<rocksdb::FileSystem> files);

// Without an env.
rocksdb::DBOptions MakeDbOptions(std::shared_ptr<FailureListener> listener);
rocksdb::ColumnFamilyOptions MakeFamilyOptions();

}  // namespace parkade::disk
