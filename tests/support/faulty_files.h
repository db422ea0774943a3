// Files with scripted faults, in front of real ones. Without faults it changes nothing.
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tiers/disk/file_door.h"

namespace parkade::test {

enum class FileCall {
  kOpenToRead,
  kOpenToWrite,
  kWrite,
  kRead,
  kAllocate,
  kTruncate,
  kSyncData,
  kSyncFolder,
  kRename,
  kUnlink,
  kMakeFolder,
  kStat,
  kStatFileSystem,
  kList,
};

struct FileFault {
  enum class Kind {
    kFail,   // not forwarded; errno is `error`
    kShort,  // Write, Read: at most half of the bytes, one at least
    kFlip,   // Read: one bit of byte `at` (modulo the size) is flipped
    kDelay,  // forwarded after `delay`
    kLie,    // SyncData, SyncFolder: not forwarded, and 0
  };

  FileCall call = FileCall::kRead;
  Kind kind = Kind::kFail;
  int error = EIO;
  std::string path;                  // what the path contains; empty: any
  std::uint64_t skip = 0;            // this many matching calls go well first
  std::uint64_t times = UINT64_MAX;  // then this many are hit
  std::uint64_t at = 0;
  absl::Duration delay;
};

// Thread safe.
class FaultyFiles : public disk::FileDoor {
 public:
  // `catalogue`: RocksDB's files go through it as well.
  explicit FaultyFiles(bool catalogue) : catalogue_(catalogue) {}

  // The first one added that matches and is due acts.
  void AddFault(FileFault fault);
  // Every call that changes something fails so: EROFS, ENOSPC.
  void FailChanges(int error);
  void ClearFaults();
  // The disk is this large, `others_bytes` of it are taken by files that are not below `root`. What
  // does not fit is ENOSPC. It stays until the next one.
  void SetDisk(std::string root, std::uint64_t size_bytes, std::uint64_t others_bytes);
  std::uint64_t faults_hit() const;

  int Open(int folder, const char* name, int flags, mode_t mode) override;
  ssize_t Write(int fd, const iovec* pieces, int count, off_t offset) override;
  ssize_t Read(int fd, void* to, std::size_t size, off_t offset) override;
  int Allocate(int fd, off_t size) override;
  int Truncate(int fd, off_t size) override;
  int SyncData(int fd) override;
  int SyncFolder(int fd) override;
  int Rename(int from_folder, const char* from, int to_folder, const char* to) override;
  int Unlink(int folder, const char* name, int flags) override;
  int MakeFolder(int folder, const char* name) override;
  int Stat(int folder, const char* name, struct stat* info) override;
  int StatFileSystem(int fd, struct statvfs* info) override;
  int List(int folder, std::vector<disk::FolderEntry>* entries) override;
  std::shared_ptr<rocksdb::FileSystem> CatalogueFiles() override;

 private:
  struct Script {
    FileFault fault;
    std::uint64_t matched = 0;
  };
  struct Disk {
    std::string root;
    std::uint64_t size_bytes = 0;
    std::uint64_t others_bytes = 0;
  };

  // The fault that hits the call, if any; a delay has been waited for.
  std::optional<FileFault> Enter(FileCall call, const std::string& path);
  // errno of a fault that fails; 0: none.
  int FailureOf(FileCall call, const std::string& path);
  std::optional<std::uint64_t> FreeBytes() const;

  const bool catalogue_;
  mutable absl::Mutex mutex_;
  std::vector<Script> scripts_ ABSL_GUARDED_BY(mutex_);
  std::optional<Disk> disk_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t faults_hit_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Where a descriptor, or a name in the folder of one, is.
std::string PathOf(int fd);
std::string PathOf(int folder, const char* name);

// Bytes of the blocks of everything below `root`, folders too: what `du` says.
std::uint64_t BlockBytesBelow(const std::string& root);

}  // namespace parkade::test
