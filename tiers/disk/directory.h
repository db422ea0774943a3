// The directory of a disk tier: who may use it, and its segment files by number.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "src/format/sealing.h"
#include "tiers/disk/file_io.h"
#include "tiers/disk/names.h"

namespace parkade::disk {

inline constexpr std::uint32_t kDirectoryVersion = 1;
// Of an encrypted one: a program that can't read it says so.
inline constexpr std::uint32_t kSealedDirectoryVersion = 2;

struct SegmentFile {
  std::uint64_t segment = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t block_bytes = 0;
};

// Thread safe. Holds the lock file's lock as long as it lives.
class Directory {
 public:
  // Checks that the directory is ours and nobody else's, and locks it. `create`: a missing one is
  // made (0700), parents too; else a missing one is NotFound. `key` null: not encrypted; it has to
  // be what the directory began with. `door` outlives it. Codes as OpenDiskTier says; on
  // error nothing was touched.
  static absl::StatusOr<std::unique_ptr<Directory>> Open(const std::string& path, bool create,
                                                         SharedSealKey key = nullptr,
                                                         FileDoor& door = FileDoor::System());
  ~Directory();

  const std::string& path() const { return path_; }
  // What its segments and rows are sealed with; null: nothing.
  const SharedSealKey& key() const { return key_; }
  std::string CataloguePath() const;
  const Fd& root() const { return root_; }
  const Fd& temporary() const { return temporary_; }
  FileDoor& door() const { return root_.door(); }

  // ---- what happens to it while it is in use ----
  // NotFound: its path leads to something else now, or to nothing: it was removed or replaced.
  absl::Status CheckPlace() const;
  // The path opened anew, for TakeOver; a directory is made there if its parent is still there.
  // Codes as Open.
  absl::StatusOr<std::unique_ptr<Directory>> OpenPlaceAgain() const;
  // Goes on with what `other` has opened, lock included. Callers on other threads see the one or
  // the other.
  absl::Status TakeOver(std::unique_ptr<Directory> other);
  // Whether a small file can be written, synced and removed.
  absl::Status ProbeWriting();
  // DataLoss: it holds a link, a pipe, a device or another user's file, which RocksDB would follow
  // or wait for. NotFound: there is none.
  absl::Status CheckCatalogueFiles() const;

  // ---- top level ----
  absl::Status EmptyTemporary();
  bool Exists(const std::string& top_level_name) const;
  // Renames the catalogue to a name of kDamagedPrefix, durably. A missing one is fine.
  absl::Status SetCatalogueAside(std::int64_t stamp);
  // Puts the catalogue that was set aside last back in place of what was begun instead of it.
  absl::Status TakeCatalogueBack();
  // Removes what SetCatalogueAside left.
  absl::Status RemoveDamagedCatalogues();
  absl::Status PutMarker(std::string_view name);
  absl::Status RemoveMarker(std::string_view name);

  // ---- segments ----
  // Every segment file, folder by folder. Files of other names are passed to `stray` with their
  // path relative to the root. Reads no payload. `threads` wait for a cold disk at the same time;
  // the functions are called on the caller's.
  absl::Status ListSegments(int threads, const std::function<void(const SegmentFile&)>& visit,
                            const std::function<void(const std::string& path)>& stray) const;
  // Makes the segment's folder when it is not there, durably.
  absl::Status EnsureFolder(std::uint64_t segment);
  absl::Status SyncSegmentFolder(std::uint64_t segment);
  // Syncs every folder that a file was unlinked from since its last sync: none of those returns.
  absl::Status SyncUnlinked();
  // NotFound: no such file.
  absl::StatusOr<SegmentFile> Stat(std::uint64_t segment) const;
  // Returns the bytes of the blocks that were freed; a missing file frees none.
  absl::StatusOr<std::uint64_t> Unlink(std::uint64_t segment);

  // Free bytes for this user. 0 when the file system does not answer.
  std::uint64_t FreeBytes() const;

 private:
  Directory(std::string path, Fd root, Fd lock, SharedSealKey key)
      : path_(std::move(path)),
        root_(std::move(root)),
        lock_(std::move(lock)),
        key_(std::move(key)) {}
  struct Listing {
    std::vector<SegmentFile> files;
    std::vector<std::string> strays;
  };
  absl::Status MakeFolders();
  absl::Status PutVersion();
  absl::Status ListFolderSegments(const std::string& folder, Listing* listing) const;

  const std::string path_;
  const Fd root_;
  const Fd lock_;
  const SharedSealKey key_;
  Fd segments_;
  Fd temporary_;
  absl::Mutex mutex_;
  std::bitset<kFanOut> folders_ ABSL_GUARDED_BY(mutex_);
  std::bitset<kFanOut> unlinked_ ABSL_GUARDED_BY(mutex_);  // folders
};

}  // namespace parkade::disk
