#include "tests/support/faulty_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/time/clock.h"
#include "tests/support/door_file_system.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;

// -1, and errno.
int Failed(int error) {
  errno = error;
  return -1;
}

}  // namespace

std::string PathOf(int fd) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = ::readlink(link.c_str(), path, sizeof(path));
  return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : std::string();
}

std::string PathOf(int folder, const char* name) {
  if (name[0] == '/' || folder == AT_FDCWD) return fs::absolute(name).lexically_normal().string();
  return (fs::path(PathOf(folder)) / name).lexically_normal().string();
}

std::uint64_t BlockBytesBelow(const std::string& root) {
  std::uint64_t bytes = 0;
  const auto add = [&bytes](const fs::path& path) {
    struct stat info;
    if (::lstat(path.c_str(), &info) == 0)
      bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
  };
  std::error_code gone;
  add(root);
  for (auto it = fs::recursive_directory_iterator(root, gone);
       !gone && it != fs::recursive_directory_iterator(); it.increment(gone)) {
    add(it->path());
  }
  return bytes;
}

void FaultyFiles::AddFault(FileFault fault) {
  absl::MutexLock lock(&mutex_);
  scripts_.push_back({std::move(fault)});
}

void FaultyFiles::FailChanges(int error) {
  for (const FileCall call :
       {FileCall::kOpenToWrite, FileCall::kWrite, FileCall::kAllocate, FileCall::kTruncate,
        FileCall::kSyncData, FileCall::kRename, FileCall::kUnlink, FileCall::kMakeFolder}) {
    FileFault fault;
    fault.call = call;
    fault.error = error;
    AddFault(fault);
  }
}

void FaultyFiles::ClearFaults() {
  absl::MutexLock lock(&mutex_);
  scripts_.clear();
}

void FaultyFiles::SetDisk(std::string root, std::uint64_t size_bytes, std::uint64_t others_bytes) {
  absl::MutexLock lock(&mutex_);
  disk_ = Disk{std::move(root), size_bytes, others_bytes};
}

std::uint64_t FaultyFiles::faults_hit() const {
  absl::MutexLock lock(&mutex_);
  return faults_hit_;
}

std::optional<FileFault> FaultyFiles::Enter(FileCall call, const std::string& path) {
  std::optional<FileFault> hit;
  {
    absl::MutexLock lock(&mutex_);
    for (Script& script : scripts_) {
      const FileFault& fault = script.fault;
      if (fault.call != call || path.find(fault.path) == std::string::npos) continue;
      const std::uint64_t number = script.matched++;
      if (number < fault.skip || number - fault.skip >= fault.times) continue;
      hit = fault;
      ++faults_hit_;
      break;
    }
  }
  if (hit.has_value() && hit->kind == FileFault::Kind::kDelay) absl::SleepFor(hit->delay);
  return hit;
}

int FaultyFiles::FailureOf(FileCall call, const std::string& path) {
  const std::optional<FileFault> fault = Enter(call, path);
  return fault.has_value() && fault->kind == FileFault::Kind::kFail ? fault->error : 0;
}

std::optional<std::uint64_t> FaultyFiles::FreeBytes() const {
  std::optional<Disk> disk;
  {
    absl::MutexLock lock(&mutex_);
    disk = disk_;
  }
  if (!disk.has_value()) return std::nullopt;
  const std::uint64_t taken = disk->others_bytes + BlockBytesBelow(disk->root);
  return disk->size_bytes > taken ? disk->size_bytes - taken : 0;
}

int FaultyFiles::Open(int folder, const char* name, int flags, mode_t mode) {
  const bool writes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
  const int error =
      FailureOf(writes ? FileCall::kOpenToWrite : FileCall::kOpenToRead, PathOf(folder, name));
  return error != 0 ? Failed(error) : FileDoor::Open(folder, name, flags, mode);
}

ssize_t FaultyFiles::Write(int fd, const iovec* pieces, int count, off_t offset) {
  const std::optional<FileFault> fault = Enter(FileCall::kWrite, PathOf(fd));
  if (fault.has_value() && fault->kind == FileFault::Kind::kFail) return Failed(fault->error);
  std::uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  const std::optional<std::uint64_t> free_bytes = FreeBytes();
  if (free_bytes.has_value()) {
    struct stat info = {};
    FileDoor::StatOpen(fd, &info);
    const std::uint64_t has = static_cast<std::uint64_t>(info.st_blocks) * 512;
    const std::uint64_t end = static_cast<std::uint64_t>(offset) + bytes;
    if (end > has && end - has > *free_bytes) return Failed(ENOSPC);
  }
  if (fault.has_value() && fault->kind == FileFault::Kind::kShort && bytes > 1) {
    const std::size_t part =
        std::max<std::size_t>(1, std::min<std::size_t>(pieces[0].iov_len, bytes / 2));
    const iovec first = {pieces[0].iov_base, part};
    return FileDoor::Write(fd, &first, 1, offset);
  }
  return FileDoor::Write(fd, pieces, count, offset);
}

ssize_t FaultyFiles::Read(int fd, void* to, std::size_t size, off_t offset) {
  const std::optional<FileFault> fault = Enter(FileCall::kRead, PathOf(fd));
  if (fault.has_value() && fault->kind == FileFault::Kind::kFail) return Failed(fault->error);
  if (fault.has_value() && fault->kind == FileFault::Kind::kShort && size > 1) size /= 2;
  const ssize_t got = FileDoor::Read(fd, to, size, offset);
  if (fault.has_value() && fault->kind == FileFault::Kind::kFlip && got > 0) {
    static_cast<char*>(to)[fault->at % static_cast<std::uint64_t>(got)] ^= 0x10;
  }
  return got;
}

int FaultyFiles::Allocate(int fd, off_t size) {
  if (const int error = FailureOf(FileCall::kAllocate, PathOf(fd)); error != 0) {
    return Failed(error);
  }
  const std::optional<std::uint64_t> free_bytes = FreeBytes();
  if (free_bytes.has_value() && static_cast<std::uint64_t>(size) > *free_bytes) {
    return Failed(ENOSPC);
  }
  return FileDoor::Allocate(fd, size);
}

int FaultyFiles::Truncate(int fd, off_t size) {
  const int error = FailureOf(FileCall::kTruncate, PathOf(fd));
  return error != 0 ? Failed(error) : FileDoor::Truncate(fd, size);
}

int FaultyFiles::SyncData(int fd) {
  const std::optional<FileFault> fault = Enter(FileCall::kSyncData, PathOf(fd));
  if (!fault.has_value()) return FileDoor::SyncData(fd);
  if (fault->kind == FileFault::Kind::kFail) return Failed(fault->error);
  return fault->kind == FileFault::Kind::kLie ? 0 : FileDoor::SyncData(fd);
}

int FaultyFiles::SyncFolder(int fd) {
  const std::optional<FileFault> fault = Enter(FileCall::kSyncFolder, PathOf(fd));
  if (!fault.has_value()) return FileDoor::SyncFolder(fd);
  if (fault->kind == FileFault::Kind::kFail) return Failed(fault->error);
  return fault->kind == FileFault::Kind::kLie ? 0 : FileDoor::SyncFolder(fd);
}

int FaultyFiles::Rename(int from_folder, const char* from, int to_folder, const char* to) {
  const int error = FailureOf(FileCall::kRename, PathOf(to_folder, to));
  return error != 0 ? Failed(error) : FileDoor::Rename(from_folder, from, to_folder, to);
}

int FaultyFiles::Unlink(int folder, const char* name, int flags) {
  const int error = FailureOf(FileCall::kUnlink, PathOf(folder, name));
  return error != 0 ? Failed(error) : FileDoor::Unlink(folder, name, flags);
}

int FaultyFiles::MakeFolder(int folder, const char* name) {
  const std::string path = PathOf(folder, name);
  // What is there already is that first, also on a file system that nobody may change.
  struct stat info;
  if (FileDoor::Stat(folder, name, &info) == 0) return Failed(EEXIST);
  const int error = FailureOf(FileCall::kMakeFolder, path);
  return error != 0 ? Failed(error) : FileDoor::MakeFolder(folder, name);
}

int FaultyFiles::Stat(int folder, const char* name, struct stat* info) {
  const int error = FailureOf(FileCall::kStat, PathOf(folder, name));
  return error != 0 ? Failed(error) : FileDoor::Stat(folder, name, info);
}

int FaultyFiles::StatFileSystem(int fd, struct statvfs* info) {
  const int error = FailureOf(FileCall::kStatFileSystem, PathOf(fd));
  if (error != 0) return Failed(error);
  const int result = FileDoor::StatFileSystem(fd, info);
  const std::optional<std::uint64_t> free_bytes = FreeBytes();
  if (result == 0 && free_bytes.has_value()) info->f_bavail = *free_bytes / info->f_frsize;
  return result;
}

int FaultyFiles::List(int folder, std::vector<disk::FolderEntry>* entries) {
  const int error = FailureOf(FileCall::kList, PathOf(folder));
  return error != 0 ? Failed(error) : FileDoor::List(folder, entries);
}

std::shared_ptr<rocksdb::FileSystem> FaultyFiles::CatalogueFiles() {
  return catalogue_ ? MakeDoorFileSystem(this) : nullptr;
}

}  // namespace parkade::test
