// Files through descriptors: whole writes, exact reads, syncs, and errno as a status.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tiers/disk/file_door.h"

namespace parkade::disk {

// Owns a descriptor and knows the door it came through; what is opened below it comes the same way.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd, FileDoor& door = FileDoor::System()) : fd_(fd), door_(&door) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), door_(other.door_) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(door_, other.door_);
    return *this;
  }
  ~Fd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  FileDoor& door() const { return *door_; }

 private:
  int fd_ = -1;
  FileDoor* door_ = &FileDoor::System();
};

// ENOSPC, EDQUOT: ResourceExhausted. ENOENT: NotFound. EEXIST: AlreadyExists. Others: Unavailable.
absl::Status ErrnoStatus(int error, std::string_view what);

// The folder that a path's last name stands in; "." where the path is that name alone.
std::string ParentFolder(const std::string& path);

// openat with O_CLOEXEC and O_NOFOLLOW added; files are created 0600.
absl::StatusOr<Fd> OpenAt(const Fd& folder, const std::string& name, int flags);
absl::StatusOr<Fd> OpenFolderAt(const Fd& folder, const std::string& name);

// Writes all of `pieces` from `offset` on in few large calls, and asks the kernel to start
// writing back as it goes, so that the sync that follows finds little left. `pieces` is consumed.
absl::Status WriteAll(const Fd& fd, std::vector<iovec> pieces, std::string_view what,
                      std::uint64_t offset = 0);
// Exactly `size` bytes. The file's end or an I/O error before that: DataLoss.
absl::Status ReadExactly(const Fd& fd, char* data, std::size_t size, std::uint64_t offset,
                         std::string_view what);

absl::Status SyncData(const Fd& fd, std::string_view what);
absl::Status SyncFolder(const Fd& folder, std::string_view what);

// At most `limit_bytes` of a small file.
absl::StatusOr<std::string> ReadSmallFile(const Fd& folder, const std::string& name,
                                          std::size_t limit_bytes);
// Replaces a small file: temporary name, synced, renamed, folder synced.
absl::Status ReplaceSmallFile(const Fd& folder, const std::string& name, std::string_view content);

// Names in a folder but "." and "..", ordered by inode: stat calls then go through the inode
// tables in order.
absl::StatusOr<std::vector<FolderEntry>> ListFolder(const Fd& folder, std::string_view what);

// Bytes of the blocks of a folder's files, folders below it included. Entries that vanish
// meanwhile count nothing; a folder that is not there is empty. An error: one that is there can't
// be read now.
absl::StatusOr<std::uint64_t> FolderBlockBytes(const Fd& folder, const std::string& name);
// Removes a folder with everything in it. A missing one is fine.
absl::Status RemoveTree(const Fd& folder, const std::string& name);

}  // namespace parkade::disk
