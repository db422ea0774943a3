#include "tests/support/power_cut.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "tests/support/door_file_system.h"
#include "tests/support/faulty_files.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPage = 4096;

std::string FolderOf(const std::string& path) { return fs::path(path).parent_path().string(); }

void Zero(int fd, std::uint64_t begin, std::uint64_t end) {
  const std::string zeros(std::min<std::uint64_t>(end - begin, 1u << 20), '\0');
  while (begin < end) {
    const std::size_t part = std::min<std::uint64_t>(zeros.size(), end - begin);
    if (::pwrite(fd, zeros.data(), part, static_cast<off_t>(begin)) < 0) return;
    begin += part;
  }
}

}  // namespace

PowerCut::PowerCut(Options options)
    : options_(std::move(options)), random_(options_.seed), at_change_(options_.at_change) {}

void PowerCut::Cut() {
  absl::MutexLock lock(&mutex_);
  if (!gone_) CutLocked();
}

void PowerCut::CutIn(std::uint64_t changes) {
  absl::MutexLock lock(&mutex_);
  at_change_ = changes_ + changes;
}

std::uint64_t PowerCut::changes() const {
  absl::MutexLock lock(&mutex_);
  return changes_;
}

bool PowerCut::Begin() {
  if (!gone_ && ++changes_ == at_change_) CutLocked();
  if (gone_) errno = EIO;
  return !gone_;
}

void PowerCut::CutLocked() {
  gone_ = true;
  for (const auto& [id, file] : dirty_) LoseBytes(file);
  LoseNames();
  dirty_.clear();
  names_.clear();
  if (options_.gone) options_.gone();
}

void PowerCut::LoseBytes(const Dirty& file) {
  struct stat info = {};
  const int fd = file.fd.get();
  if (::fstat(fd, &info) != 0) return;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  const std::uint64_t lasting = std::min(file.lasting_bytes, size);
  if (size == lasting) return;
  switch (random_() % 6) {
    case 0:
    case 1:
      (void)!::ftruncate(fd, static_cast<off_t>(lasting));
      break;
    case 2:
      (void)!::ftruncate(fd, static_cast<off_t>(lasting + random_() % (size - lasting)));
      break;
    case 3:
      Zero(fd, lasting, size);
      break;
    case 4:
      for (std::uint64_t at = lasting; at < size; at = (at / kPage + 1) * kPage) {
        if (random_() % 2 == 0) Zero(fd, at, std::min(size, (at / kPage + 1) * kPage));
      }
      break;
    default:
      break;
  }
}

void PowerCut::LoseNames() {
  std::map<std::string, std::size_t> left;  // changes that stay, by folder
  std::map<std::string, std::size_t> all;
  for (const NameChange& change : names_) ++all[FolderOf(change.path)];
  for (const auto& [folder, count] : all) left[folder] = random_() % 2 == 0 ? 0 : random_() % count;
  std::vector<const NameChange*> undone;
  for (const NameChange& change : names_) {
    std::size_t& stays = left[FolderOf(change.path)];
    if (stays > 0) {
      --stays;
    } else {
      undone.push_back(&change);
    }
  }
  std::error_code gone;  // with a folder above it, or moved on by a change that stays
  for (auto it = undone.rbegin(); it != undone.rend(); ++it) {
    const NameChange& change = **it;
    switch (change.kind) {
      case NameChange::Kind::kMade:
        ::unlink(change.path.c_str());
        break;
      case NameChange::Kind::kMadeFolder:
        fs::remove_all(change.path, gone);
        break;
      case NameChange::Kind::kMoved:
        ::rename(change.path.c_str(), change.from.c_str());
        break;
      case NameChange::Kind::kRemovedFolder:
        ::mkdir(change.path.c_str(), 0700);
        break;
      case NameChange::Kind::kRemoved:
        break;
    }
    if (!change.attic.empty()) ::rename(change.attic.c_str(), change.path.c_str());
  }
}

bool PowerCut::Lies() { return options_.lies > 0 && random_() % 100 < options_.lies; }

std::string PowerCut::Keep(const std::string& path) {
  const std::string second = options_.attic + "/" + std::to_string(kept_++);
  return ::link(path.c_str(), second.c_str()) == 0 ? second : std::string();
}

void PowerCut::FolderMoved(const std::string& from, const std::string& to) {
  const std::string below = from + "/";
  for (NameChange& change : names_) {
    for (std::string* path : {&change.path, &change.from}) {
      if (path->compare(0, below.size(), below) == 0) *path = to + path->substr(from.size());
    }
  }
}

// What is there stays; what comes from `offset` on may go.
void PowerCut::NoteWrite(int fd, std::uint64_t offset) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return;
  const std::uint64_t lasting = std::min(offset, static_cast<std::uint64_t>(info.st_size));
  const auto [it, first] = dirty_.try_emplace({info.st_dev, info.st_ino});
  if (!first) {
    it->second.lasting_bytes = std::min(it->second.lasting_bytes, lasting);
    return;
  }
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  it->second = {disk::Fd(::open(self.c_str(), O_RDWR | O_CLOEXEC)), lasting};
}

int PowerCut::Open(int folder, const char* name, int flags, mode_t mode) {
  if ((flags & (O_CREAT | O_TRUNC)) == 0) return FileDoor::Open(folder, name, flags, mode);
  absl::MutexLock lock(&mutex_);
  if (!Begin()) return -1;
  struct stat info = {};
  const bool there = ::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
  const int fd = FileDoor::Open(folder, name, flags, mode);
  if (fd < 0) return fd;
  if (!there) names_.push_back({NameChange::Kind::kMade, PathOf(folder, name), "", ""});
  if (there && (flags & O_TRUNC) != 0) NoteWrite(fd, 0);
  return fd;
}

ssize_t PowerCut::Write(int fd, const iovec* pieces, int count, off_t offset) {
  absl::MutexLock lock(&mutex_);
  if (!Begin()) return -1;
  NoteWrite(fd, static_cast<std::uint64_t>(offset));
  return FileDoor::Write(fd, pieces, count, offset);
}

ssize_t PowerCut::Read(int fd, void* to, std::size_t size, off_t offset) {
  absl::MutexLock lock(&mutex_);
  if (!gone_) return FileDoor::Read(fd, to, size, offset);
  errno = EIO;
  return -1;
}

int PowerCut::Allocate(int fd, off_t size) {
  absl::MutexLock lock(&mutex_);
  if (!Begin()) return -1;
  struct stat info = {};
  if (::fstat(fd, &info) == 0) NoteWrite(fd, static_cast<std::uint64_t>(info.st_size));
  return FileDoor::Allocate(fd, size);
}

int PowerCut::Truncate(int fd, off_t size) {
  absl::MutexLock lock(&mutex_);
  if (!Begin()) return -1;
  NoteWrite(fd, static_cast<std::uint64_t>(size));
  return FileDoor::Truncate(fd, size);
}

int PowerCut::SyncData(int fd) {
  absl::MutexLock lock(&mutex_);
  if (!Begin()) return -1;
  if (Lies()) return 0;
  struct stat info = {};
  if (::fstat(fd, &info) == 0) dirty_.erase({info.st_dev, info.st_ino});
  return 0;
}

int PowerCut::SyncFolder(int fd) {
  absl::MutexLock lock(&mutex_);
  if (!Begin()) return -1;
  if (Lies()) return 0;
  const std::string folder = PathOf(fd);
  const auto lasts = [&folder](const NameChange& change) {
    if (FolderOf(change.path) != folder) return false;
    if (!change.attic.empty()) ::unlink(change.attic.c_str());
    return true;
  };
  names_.erase(std::remove_if(names_.begin(), names_.end(), lasts), names_.end());
  return 0;
}

int PowerCut::Rename(int from_folder, const char* from, int to_folder, const char* to) {
  absl::MutexLock lock(&mutex_);
  if (!Begin()) return -1;
  const std::string old_path = PathOf(from_folder, from);
  const std::string new_path = PathOf(to_folder, to);
  const std::string replaced = Keep(new_path);
  const int result = FileDoor::Rename(from_folder, from, to_folder, to);
  if (result != 0) return result;
  FolderMoved(old_path, new_path);
  names_.push_back({NameChange::Kind::kMoved, new_path, old_path, replaced});
  return 0;
}

int PowerCut::Unlink(int folder, const char* name, int flags) {
  absl::MutexLock lock(&mutex_);
  if (!Begin()) return -1;
  const std::string path = PathOf(folder, name);
  const bool is_folder = (flags & AT_REMOVEDIR) != 0;
  const std::string kept = is_folder ? std::string() : Keep(path);
  const int result = FileDoor::Unlink(folder, name, flags);
  if (result != 0) return result;
  names_.push_back(
      {is_folder ? NameChange::Kind::kRemovedFolder : NameChange::Kind::kRemoved, path, "", kept});
  return 0;
}

int PowerCut::MakeFolder(int folder, const char* name) {
  absl::MutexLock lock(&mutex_);
  if (!Begin()) return -1;
  const int result = FileDoor::MakeFolder(folder, name);
  if (result == 0) {
    names_.push_back({NameChange::Kind::kMadeFolder, PathOf(folder, name), "", ""});
  }
  return result;
}

std::shared_ptr<rocksdb::FileSystem> PowerCut::CatalogueFiles() { return MakeDoorFileSystem(this); }

}  // namespace parkade::test
