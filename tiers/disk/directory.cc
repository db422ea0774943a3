#include "tiers/disk/directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"

namespace parkade::disk {
namespace {

std::string InFolder(std::uint64_t segment) {
  return FanOutName(segment) + "/" + SegmentFileName(segment);
}

std::uint64_t BlockBytes(const struct stat& info) {
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

}  // namespace

Directory::~Directory() = default;

std::string Directory::CataloguePath() const { return path_ + "/" + std::string(kCatalogueName); }

absl::Status Directory::CheckPlace() const {
  struct stat here;
  struct stat there;
  if (door().StatOpen(root_.get(), &here) != 0) return ErrnoStatus(errno, path_);
  if (door().Stat(AT_FDCWD, path_.c_str(), &there) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return absl::OkStatus();  // it can't be told now
    return absl::NotFoundError(path_ + " was removed");
  }
  if (here.st_dev == there.st_dev && here.st_ino == there.st_ino) return absl::OkStatus();
  return absl::NotFoundError(path_ + " was replaced by another one");
}

absl::StatusOr<std::unique_ptr<Directory>> Directory::OpenPlaceAgain() const {
  const std::string parent = ParentFolder(path_);
  struct stat info;
  if (door().Stat(AT_FDCWD, parent.c_str(), &info) != 0) return ErrnoStatus(errno, parent);
  return Open(path_, true, key_, door());
}

absl::Status Directory::TakeOver(std::unique_ptr<Directory> other) {
  // The numbers of the descriptors stay, so that nobody who uses one meanwhile sees it closed. The
  // lock is of what a descriptor stands for: it stays when `other` closes its own.
  const std::pair<const Fd*, const Fd*> moves[] = {{&other->root_, &root_},
                                                   {&other->lock_, &lock_},
                                                   {&other->segments_, &segments_},
                                                   {&other->temporary_, &temporary_}};
  for (const auto& [from, to] : moves) {
    if (::dup3(from->get(), to->get(), O_CLOEXEC) < 0) return ErrnoStatus(errno, path_);
  }
  absl::MutexLock lock(&mutex_);
  folders_.reset();
  unlinked_.reset();
  return absl::OkStatus();
}

absl::Status Directory::ProbeWriting() {
  const std::string name = "probe";
  absl::Status status;
  {
    absl::StatusOr<Fd> fd = OpenAt(temporary_, name, O_WRONLY | O_CREAT | O_TRUNC);
    if (!fd.ok()) return fd.status();
    std::string page(4096, '\0');
    status = WriteAll(*fd, {{page.data(), page.size()}}, name);
    if (status.ok()) status = SyncData(*fd, name);
  }
  if (door().Unlink(temporary_.get(), name.c_str(), 0) != 0) {
    status.Update(ErrnoStatus(errno, name));
  }
  return status;
}

absl::Status Directory::CheckCatalogueFiles() const {
  const std::string name(kCatalogueName);
  absl::StatusOr<Fd> fd = OpenFolderAt(root_, name);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(*fd, name);
  if (!entries.ok()) return entries.status();
  for (const FolderEntry& entry : *entries) {
    struct stat info;
    if (door().Stat(fd->get(), entry.name.c_str(), &info) != 0) {
      return ErrnoStatus(errno, entry.name);
    }
    if (S_ISREG(info.st_mode) && info.st_uid == ::geteuid()) continue;
    return absl::DataLossError(absl::StrCat(name, "/", entry.name, " is not a file of ours"));
  }
  return absl::OkStatus();
}

absl::Status Directory::EmptyTemporary() {
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(temporary_, kTemporaryName);
  if (!entries.ok()) return entries.status();
  for (const FolderEntry& entry : *entries) {
    if (door().Unlink(temporary_.get(), entry.name.c_str(), 0) == 0) continue;
    if (errno != EISDIR && errno != EPERM) return ErrnoStatus(errno, entry.name);
    if (absl::Status s = RemoveTree(temporary_, entry.name); !s.ok()) return s;
  }
  return absl::OkStatus();
}

bool Directory::Exists(const std::string& top_level_name) const {
  struct stat info;
  return door().Stat(root_.get(), top_level_name.c_str(), &info) == 0;
}

absl::Status Directory::SetCatalogueAside(std::int64_t stamp) {
  const std::string name(kCatalogueName);
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const std::string aside = absl::StrCat(std::string(kDamagedPrefix), stamp, "-", attempt);
    if (Exists(aside)) continue;
    if (door().Rename(root_.get(), name.c_str(), root_.get(), aside.c_str()) == 0) {
      return SyncFolder(root_, path_);
    }
    if (errno == ENOENT) return absl::OkStatus();
    return ErrnoStatus(errno, name);
  }
  return absl::UnavailableError("too many damaged catalogues in " + path_);
}

absl::Status Directory::TakeCatalogueBack() {
  const std::string name(kCatalogueName);
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(root_, path_);
  if (!entries.ok()) return entries.status();
  std::string newest;
  for (const FolderEntry& entry : *entries) {
    if (entry.name.compare(0, kDamagedPrefix.size(), kDamagedPrefix) != 0) continue;
    newest = std::max(newest, entry.name);
  }
  if (newest.empty()) return absl::NotFoundError("no catalogue was set aside in " + path_);
  if (absl::Status s = RemoveTree(root_, name); !s.ok()) return s;
  if (door().Rename(root_.get(), newest.c_str(), root_.get(), name.c_str()) != 0) {
    return ErrnoStatus(errno, name);
  }
  return SyncFolder(root_, path_);
}

absl::Status Directory::RemoveDamagedCatalogues() {
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(root_, path_);
  if (!entries.ok()) return entries.status();
  for (const FolderEntry& entry : *entries) {
    if (entry.name.compare(0, kDamagedPrefix.size(), kDamagedPrefix) != 0) continue;
    if (absl::Status s = RemoveTree(root_, entry.name); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Directory::PutMarker(std::string_view name) {
  absl::StatusOr<Fd> fd = OpenAt(root_, std::string(name), O_WRONLY | O_CREAT);
  return fd.status();
}

absl::Status Directory::RemoveMarker(std::string_view name) {
  const std::string own(name);
  if (door().Unlink(root_.get(), own.c_str(), 0) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, own);
  }
  return absl::OkStatus();
}

absl::Status Directory::ListFolderSegments(const std::string& folder, Listing* listing) const {
  const std::string folder_path = std::string(kSegmentsName) + "/" + folder;
  absl::StatusOr<Fd> fd = OpenFolderAt(segments_, folder);
  if (!fd.ok()) {
    struct stat info;
    const bool there = door().Stat(segments_.get(), folder.c_str(), &info) == 0;
    // A folder that can't be opened now (no descriptor is left) may hold segments: to go on without
    // it would lose them.
    if (there ? S_ISDIR(info.st_mode) : !absl::IsNotFound(fd.status())) return fd.status();
    if (there) listing->strays.push_back(folder_path);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<FolderEntry>> files = ListFolder(*fd, folder_path);
  if (!files.ok()) return files.status();
  for (const FolderEntry& file : *files) {
    const std::optional<std::uint64_t> number = ParseSegmentFileName(file.name);
    struct stat info;
    if (door().Stat(fd->get(), file.name.c_str(), &info) != 0) {
      if (errno == ENOENT) continue;
      return ErrnoStatus(errno, file.name);
    }
    if (!number.has_value() || !S_ISREG(info.st_mode) || FanOutName(*number) != folder) {
      listing->strays.push_back(folder_path + "/" + file.name);
      continue;
    }
    listing->files.push_back({*number, static_cast<std::uint64_t>(info.st_size), BlockBytes(info)});
  }
  return absl::OkStatus();
}

absl::Status Directory::ListSegments(
    int threads, const std::function<void(const SegmentFile&)>& visit,
    const std::function<void(const std::string& path)>& stray) const {
  absl::StatusOr<std::vector<FolderEntry>> folders = ListFolder(segments_, kSegmentsName);
  if (!folders.ok()) return folders.status();
  std::vector<Listing> listings(folders->size());
  std::vector<absl::Status> statuses(folders->size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < folders->size(); i = next++) {
      statuses[i] = ListFolderSegments((*folders)[i].name, &listings[i]);
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  for (std::size_t i = 0; i < listings.size(); ++i) {
    if (!statuses[i].ok()) return statuses[i];
    for (const SegmentFile& file : listings[i].files) visit(file);
    for (const std::string& path : listings[i].strays) stray(path);
  }
  return absl::OkStatus();
}

absl::Status Directory::EnsureFolder(std::uint64_t segment) {
  const std::size_t index = segment % kFanOut;
  {
    absl::MutexLock lock(&mutex_);
    if (folders_[index]) return absl::OkStatus();
  }
  const std::string name = FanOutName(segment);
  if (door().MakeFolder(segments_.get(), name.c_str()) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, name);
  }
  // Also when it was there: another thread may have made it a moment ago.
  if (absl::Status s = SyncFolder(segments_, name); !s.ok()) return s;
  absl::MutexLock lock(&mutex_);
  folders_[index] = true;
  return absl::OkStatus();
}

absl::Status Directory::SyncSegmentFolder(std::uint64_t segment) {
  const std::string name = FanOutName(segment);
  const std::size_t index = segment % kFanOut;
  {
    // What is unlinked from now on needs a sync of its own.
    absl::MutexLock lock(&mutex_);
    unlinked_[index] = false;
  }
  absl::StatusOr<Fd> fd = OpenFolderAt(segments_, name);
  const absl::Status synced = fd.ok() ? SyncFolder(*fd, name) : fd.status();
  if (synced.ok() || absl::IsNotFound(synced)) return synced;
  absl::MutexLock lock(&mutex_);
  unlinked_[index] = true;
  return synced;
}

absl::Status Directory::SyncUnlinked() {
  for (std::size_t index = 0; index < kFanOut; ++index) {
    {
      absl::MutexLock lock(&mutex_);
      if (!unlinked_[index]) continue;
    }
    const absl::Status synced = SyncSegmentFolder(index);
    if (!synced.ok() && !absl::IsNotFound(synced)) return synced;
  }
  return absl::OkStatus();
}

absl::StatusOr<SegmentFile> Directory::Stat(std::uint64_t segment) const {
  struct stat info;
  const std::string name = InFolder(segment);
  if (door().Stat(segments_.get(), name.c_str(), &info) != 0) {
    return ErrnoStatus(errno, SegmentPath(segment));
  }
  return SegmentFile{segment, static_cast<std::uint64_t>(info.st_size), BlockBytes(info)};
}

absl::StatusOr<std::uint64_t> Directory::Unlink(std::uint64_t segment) {
  const std::string name = InFolder(segment);
  struct stat info;
  if (door().Stat(segments_.get(), name.c_str(), &info) != 0) {
    if (errno == ENOENT) return 0;
    return ErrnoStatus(errno, SegmentPath(segment));
  }
  if (door().Unlink(segments_.get(), name.c_str(), 0) != 0) {
    if (errno == ENOENT) return 0;
    return ErrnoStatus(errno, SegmentPath(segment));
  }
  absl::MutexLock lock(&mutex_);
  unlinked_[segment % kFanOut] = true;
  return BlockBytes(info);
}

std::uint64_t Directory::FreeBytes() const {
  struct statvfs info;
  if (door().StatFileSystem(root_.get(), &info) != 0) return 0;
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace parkade::disk
