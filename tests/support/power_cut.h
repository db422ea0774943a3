// Files on a medium that loses its power: what was written and not synced, and names that were
// made, moved or removed in a folder that was not synced, may be gone, each file and folder on its
// own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tiers/disk/file_door.h"
#include "tiers/disk/file_io.h"

namespace parkade::test {

// Thread safe. Syncs are kept as notes only: no medium is waited for.
//
// Of a file, the bytes up to the last sync stay. What was written or allocated after that is, by
// chance, cut off, cut off in part, zeroed, zeroed in some pages, or all there. Of the changes of
// names in a folder since its last sync the first few stay, or none; a move counts for the folder
// that it goes to. A file that is cut short and written again counts as changed from there on.
class PowerCut : public disk::FileDoor {
 public:
  struct Options {
    // An empty folder on the same file system: files that were removed lie there until that counts.
    std::string attic;
    std::uint64_t seed = 1;
    // The power goes before this change, of all that come through the door; 0: when Cut is called.
    std::uint64_t at_change = 0;
    // Called when the power is gone, while nothing else comes through. It may end the process.
    std::function<void()> gone;
    // Of 100 syncs so many do nothing and say that they did.
    unsigned lies = 0;
  };
  explicit PowerCut(Options options);

  // Takes away what did not last. Every later change and read fails with EIO; those that come
  // meanwhile wait for the end of this first.
  void Cut();
  // The same, before the `changes`th change from now on.
  void CutIn(std::uint64_t changes);
  std::uint64_t changes() const;

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
  std::shared_ptr<rocksdb::FileSystem> CatalogueFiles() override;

 private:
  // A file that has bytes which may go.
  struct Dirty {
    disk::Fd fd;
    std::uint64_t lasting_bytes = 0;
  };
  struct NameChange {
    enum class Kind { kMade, kMadeFolder, kMoved, kRemoved, kRemovedFolder };
    Kind kind;
    std::string path;
    std::string from;   // kMoved
    std::string attic;  // what was removed, or replaced by a move; empty: nothing
  };

  // False: the power is gone, errno is EIO.
  bool Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteWrite(int fd, std::uint64_t offset) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoseBytes(const Dirty& file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoseNames() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Lies() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Keeps a second name of the file, or nothing where there is no file.
  std::string Keep(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FolderMoved(const std::string& from, const std::string& to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable absl::Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t at_change_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t kept_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<dev_t, ino_t>, Dirty> dirty_ ABSL_GUARDED_BY(mutex_);
  std::vector<NameChange> names_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace parkade::test
