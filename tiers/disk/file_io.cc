#include "tiers/disk/file_io.h"

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

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) door_->Close(fd_);
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

std::string ParentFolder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

absl::StatusOr<Fd> OpenAt(const Fd& folder, const std::string& name, int flags) {
  const int fd =
      folder.door().Open(folder.get(), name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return ErrnoStatus(errno, name);
  return Fd(fd, folder.door());
}

absl::StatusOr<Fd> OpenFolderAt(const Fd& folder, const std::string& name) {
  return OpenAt(folder, name, O_RDONLY | O_DIRECTORY);
}

absl::Status WriteAll(const Fd& fd, std::vector<iovec> pieces, std::string_view what,
                      std::uint64_t offset) {
  std::size_t next = 0;
  while (next < pieces.size()) {
    std::size_t count = 0;
    std::size_t bytes = 0;
    while (next + count < pieces.size() && count < kWritePieces && bytes < kWriteBytes) {
      bytes += pieces[next + count].iov_len;
      ++count;
    }
    const ssize_t written = fd.door().Write(fd.get(), &pieces[next], static_cast<int>(count),
                                            static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, what);
    }
    if (written == 0 && bytes > 0) return ErrnoStatus(EIO, what);
    // swallow: only a hint to begin writing back; the sync that follows reports errors.
    (void)::sync_file_range(fd.get(), static_cast<off_t>(offset), written, SYNC_FILE_RANGE_WRITE);
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

absl::Status ReadExactly(const Fd& fd, char* data, std::size_t size, std::uint64_t offset,
                         std::string_view what) {
  while (size > 0) {
    const ssize_t got = fd.door().Read(fd.get(), data, size, static_cast<off_t>(offset));
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

absl::Status SyncData(const Fd& fd, std::string_view what) {
  if (fd.door().SyncData(fd.get()) != 0) return ErrnoStatus(errno, what);
  return absl::OkStatus();
}

absl::Status SyncFolder(const Fd& folder, std::string_view what) {
  if (folder.door().SyncFolder(folder.get()) != 0) return ErrnoStatus(errno, what);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmallFile(const Fd& folder, const std::string& name,
                                          std::size_t limit_bytes) {
  absl::StatusOr<Fd> fd = OpenAt(folder, name, O_RDONLY);
  if (!fd.ok()) return fd.status();
  std::string content(limit_bytes, '\0');
  std::size_t filled = 0;
  while (filled < limit_bytes) {
    const ssize_t got = fd->door().Read(fd->get(), content.data() + filled, limit_bytes - filled,
                                        static_cast<off_t>(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, name);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  content.resize(filled);
  return content;
}

absl::Status ReplaceSmallFile(const Fd& folder, const std::string& name, std::string_view content) {
  // O_TMPFILE would leave no name at all, but not every file system has it.
  const std::string temporary = absl::StrCat("temporary/", name);
  absl::StatusOr<Fd> fd = OpenAt(folder, temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (!fd.ok()) return fd.status();
  std::vector<iovec> pieces = {{const_cast<char*>(content.data()), content.size()}};
  if (absl::Status s = WriteAll(*fd, std::move(pieces), name); !s.ok()) return s;
  if (absl::Status s = SyncData(*fd, name); !s.ok()) return s;
  if (folder.door().Rename(folder.get(), temporary.c_str(), folder.get(), name.c_str()) != 0) {
    return ErrnoStatus(errno, name);
  }
  return SyncFolder(folder, name);
}

absl::StatusOr<std::vector<FolderEntry>> ListFolder(const Fd& folder, std::string_view what) {
  std::vector<FolderEntry> entries;
  if (folder.door().List(folder.get(), &entries) != 0) return ErrnoStatus(errno, what);
  std::sort(entries.begin(), entries.end(),
            [](const FolderEntry& a, const FolderEntry& b) { return a.inode < b.inode; });
  return entries;
}

absl::StatusOr<std::uint64_t> FolderBlockBytes(const Fd& folder, const std::string& name) {
  absl::StatusOr<Fd> fd = OpenFolderAt(folder, name);
  if (absl::IsNotFound(fd.status())) return 0;
  if (!fd.ok()) return fd.status();
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(*fd, name);
  if (!entries.ok()) return entries.status();
  std::uint64_t bytes = 0;
  for (const FolderEntry& entry : *entries) {
    struct stat info;
    // swallow: what vanished meanwhile holds nothing.
    if (fd->door().Stat(fd->get(), entry.name.c_str(), &info) != 0) continue;
    bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
    if (!S_ISDIR(info.st_mode)) continue;
    const absl::StatusOr<std::uint64_t> inside = FolderBlockBytes(*fd, entry.name);
    if (!inside.ok()) return inside.status();
    bytes += *inside;
  }
  return bytes;
}

absl::Status RemoveTree(const Fd& folder, const std::string& name) {
  absl::StatusOr<Fd> fd = OpenFolderAt(folder, name);
  if (absl::IsNotFound(fd.status())) return absl::OkStatus();
  if (!fd.ok()) return fd.status();
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(*fd, name);
  if (!entries.ok()) return entries.status();
  for (const FolderEntry& entry : *entries) {
    struct stat info;
    if (fd->door().Stat(fd->get(), entry.name.c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) {
      if (absl::Status s = RemoveTree(*fd, entry.name); !s.ok()) return s;
    } else if (fd->door().Unlink(fd->get(), entry.name.c_str(), 0) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, entry.name);
    }
  }
  if (folder.door().Unlink(folder.get(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, name);
  }
  return absl::OkStatus();
}

}  // namespace parkade::disk
