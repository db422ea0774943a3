#include "tiers/disk/file_io.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace parkade::disk {
namespace {

// One write call carries at most this much: large enough for full speed, small enough that write
// back of the first part overlaps with copying the next.
constexpr std::size_t kWriteBytes = 4u << 20;
constexpr std::size_t kWritePieces = 512;

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status ErrnoStatus(int error, std::string_view what) {
  const std::string message =
      absl::StrCat(absl::string_view(what.data(), what.size()), ": ", strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    case ENOENT:
      return absl::NotFoundError(message);
    case EEXIST:
      return absl::AlreadyExistsError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::StatusOr<Fd> OpenAt(int folder, const std::string& name, int flags) {
  const int fd = ::openat(folder, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return ErrnoStatus(errno, name);
  return Fd(fd);
}

absl::StatusOr<Fd> OpenFolderAt(int folder, const std::string& name) {
  return OpenAt(folder, name, O_RDONLY | O_DIRECTORY);
}

absl::Status WriteAll(int fd, std::vector<iovec> pieces, std::string_view what,
                      std::uint64_t offset) {
  std::size_t next = 0;
  while (next < pieces.size()) {
    std::size_t count = 0;
    std::size_t bytes = 0;
    while (next + count < pieces.size() && count < kWritePieces && bytes < kWriteBytes) {
      bytes += pieces[next + count].iov_len;
      ++count;
    }
    const ssize_t written =
        ::pwritev(fd, &pieces[next], static_cast<int>(count), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, what);
    }
    if (written == 0 && bytes > 0) return ErrnoStatus(EIO, what);
    // swallow: only a hint to begin writing back; the sync that follows reports errors.
    (void)::sync_file_range(fd, static_cast<off_t>(offset), written, SYNC_FILE_RANGE_WRITE);
    offset += static_cast<std::uint64_t>(written);
    std::size_t left = static_cast<std::size_t>(written);
    while (next < pieces.size() && left >= pieces[next].iov_len) {
      left -= pieces[next].iov_len;
      ++next;
    }
    if (left > 0) {
      pieces[next].iov_base = static_cast<char*>(pieces[next].iov_base) + left;
      pieces[next].iov_len -= left;
    }
  }
  return absl::OkStatus();
}

absl::Status ReadExactly(int fd, char* data, std::size_t size, std::uint64_t offset,
                         std::string_view what) {
  while (size > 0) {
    const ssize_t got = ::pread(fd, data, size, static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      return absl::DataLossError(ErrnoStatus(errno, what).message());
    }
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat(absl::string_view(what.data(), what.size()), ": ends at ", offset));
    }
    data += got;
    size -= static_cast<std::size_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status SyncData(int fd, std::string_view what) {
  if (::fdatasync(fd) != 0) return ErrnoStatus(errno, what);
  return absl::OkStatus();
}

absl::Status SyncFolder(int folder_fd, std::string_view what) {
  if (::fsync(folder_fd) != 0) return ErrnoStatus(errno, what);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmallFile(int folder, const std::string& name,
                                          std::size_t limit_bytes) {
  absl::StatusOr<Fd> fd = OpenAt(folder, name, O_RDONLY);
  if (!fd.ok()) return fd.status();
  std::string content(limit_bytes, '\0');
  std::size_t filled = 0;
  while (filled < limit_bytes) {
    const ssize_t got = ::read(fd->get(), content.data() + filled, limit_bytes - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, name);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  content.resize(filled);
  return content;
}

absl::Status ReplaceSmallFile(int folder, const std::string& name, std::string_view content) {
  // O_TMPFILE would leave no name at all, but not every file system has it.
  const std::string temporary = absl::StrCat("temporary/", name);
  absl::StatusOr<Fd> fd = OpenAt(folder, temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (!fd.ok()) return fd.status();
  std::vector<iovec> pieces = {{const_cast<char*>(content.data()), content.size()}};
  if (absl::Status s = WriteAll(fd->get(), std::move(pieces), name); !s.ok()) return s;
  if (absl::Status s = SyncData(fd->get(), name); !s.ok()) return s;
  if (::renameat(folder, temporary.c_str(), folder, name.c_str()) != 0) {
    return ErrnoStatus(errno, name);
  }
  return SyncFolder(folder, name);
}

absl::StatusOr<std::vector<FolderEntry>> ListFolder(int folder_fd, std::string_view what) {
  // A descriptor of its own: fdopendir takes it over and moves its position.
  const int own = ::openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (own < 0) return ErrnoStatus(errno, what);
  std::unique_ptr<DIR, CloseDir> dir(::fdopendir(own));
  if (dir == nullptr) {
    const int error = errno;
    ::close(own);
    return ErrnoStatus(error, what);
  }
  std::vector<FolderEntry> entries;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) {
      if (errno != 0) return ErrnoStatus(errno, what);
      break;
    }
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    entries.push_back({std::move(name), static_cast<std::uint64_t>(entry->d_ino)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const FolderEntry& a, const FolderEntry& b) { return a.inode < b.inode; });
  return entries;
}

std::uint64_t FolderBlockBytes(int folder, const std::string& name) {
  // swallow: a folder or file that vanished meanwhile holds nothing.
  absl::StatusOr<Fd> fd = OpenFolderAt(folder, name);
  if (!fd.ok()) return 0;
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(fd->get(), name);
  if (!entries.ok()) return 0;
  std::uint64_t bytes = 0;
  for (const FolderEntry& entry : *entries) {
    struct stat info;
    if (::fstatat(fd->get(), entry.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
    if (S_ISDIR(info.st_mode)) bytes += FolderBlockBytes(fd->get(), entry.name);
  }
  return bytes;
}

absl::Status RemoveTree(int folder, const std::string& name) {
  absl::StatusOr<Fd> fd = OpenFolderAt(folder, name);
  if (absl::IsNotFound(fd.status())) return absl::OkStatus();
  if (!fd.ok()) return fd.status();
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(fd->get(), name);
  if (!entries.ok()) return entries.status();
  for (const FolderEntry& entry : *entries) {
    struct stat info;
    if (::fstatat(fd->get(), entry.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISDIR(info.st_mode)) {
      if (absl::Status s = RemoveTree(fd->get(), entry.name); !s.ok()) return s;
    } else if (::unlinkat(fd->get(), entry.name.c_str(), 0) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, entry.name);
    }
  }
  if (::unlinkat(folder, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, name);
  }
  return absl::OkStatus();
}

}  // namespace parkade::disk
