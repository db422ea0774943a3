#include "tiers/disk/file_door.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace parkade::disk {
namespace {

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};

}  // namespace

FileDoor& FileDoor::System() {
  static FileDoor& door = *new FileDoor();
  return door;
}

int FileDoor::Open(int folder, const char* name, int flags, mode_t mode) {
  return ::openat(folder, name, flags, mode);
}

int FileDoor::Close(int fd) { return ::close(fd); }

ssize_t FileDoor::Write(int fd, const iovec* pieces, int count, off_t offset) {
  return ::pwritev(fd, pieces, count, offset);
}

ssize_t FileDoor::Read(int fd, void* to, std::size_t size, off_t offset) {
  return ::pread(fd, to, size, offset);
}

int FileDoor::Allocate(int fd, off_t size) { return ::fallocate(fd, 0, 0, size); }

int FileDoor::Truncate(int fd, off_t size) { return ::ftruncate(fd, size); }

int FileDoor::SyncData(int fd) { return ::fdatasync(fd); }

int FileDoor::SyncFolder(int fd) { return ::fsync(fd); }

int FileDoor::Rename(int from_folder, const char* from, int to_folder, const char* to) {
  return ::renameat(from_folder, from, to_folder, to);
}

int FileDoor::Unlink(int folder, const char* name, int flags) {
  return ::unlinkat(folder, name, flags);
}

int FileDoor::MakeFolder(int folder, const char* name) { return ::mkdirat(folder, name, 0700); }

int FileDoor::Stat(int folder, const char* name, struct stat* info) {
  return ::fstatat(folder, name, info, AT_SYMLINK_NOFOLLOW);
}

int FileDoor::StatOpen(int fd, struct stat* info) { return ::fstat(fd, info); }

int FileDoor::StatFileSystem(int fd, struct statvfs* info) { return ::fstatvfs(fd, info); }

int FileDoor::List(int folder, std::vector<FolderEntry>* entries) {
  // A descriptor of its own: fdopendir takes it over and moves its position.
  const int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (own < 0) return -1;
  std::unique_ptr<DIR, CloseDir> dir(::fdopendir(own));
  if (dir == nullptr) {
    const int error = errno;
    ::close(own);
    errno = error;
    return -1;
  }
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) return errno != 0 ? -1 : 0;
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    entries->push_back({std::move(name), static_cast<std::uint64_t>(entry->d_ino)});
  }
}

std::shared_ptr<rocksdb::FileSystem> FileDoor::CatalogueFiles() { return nullptr; }

}  // namespace parkade::disk
