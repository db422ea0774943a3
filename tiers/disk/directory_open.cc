// Opening: every check comes before the first change.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/format/checksum.h"
#include "tiers/disk/directory.h"

namespace parkade::disk {
namespace {

constexpr char kVersionWord[] = "parkade-disk";

std::string VersionLine(std::uint32_t version) {
  const std::string text = absl::StrCat(kVersionWord, " ", version);
  const Digest128 sum = Checksum(absl::MakeConstSpan(text.data(), text.size()));
  return absl::StrCat(text, " ", absl::Hex(sum.low, absl::kZeroPad16), "\n");
}

// The version a file states; nothing when the line is damaged: the segments, which carry their own
// version, decide then.
std::optional<std::uint32_t> ParseVersionLine(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \n"));
  std::uint32_t version = 0;
  if (words.size() < 3 || !absl::SimpleAtoi(words[1], &version)) return std::nullopt;
  if (line != VersionLine(version)) return std::nullopt;
  return version;
}

absl::Status MakeParents(const std::string& path) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (::mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, parent);
  }
  return absl::OkStatus();
}

// What the top level has, checked without a change.
absl::Status CheckTopLevel(const std::string& path, int root) {
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(root, path);
  if (!entries.ok()) return entries.status();
  absl::StatusOr<std::string> line = ReadSmallFile(root, std::string(kVersionName), 256);
  if (line.ok()) {
    const std::optional<std::uint32_t> version = ParseVersionLine(*line);
    if (version.has_value() && *version > kDirectoryVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " was written by a newer version (format ", *version,
                       ", this program knows ", kDirectoryVersion, ")"));
    }
  }
  for (const FolderEntry& entry : *entries) {
    const TopLevelKind kind = KindOfTopLevelName(entry.name);
    if (kind == TopLevelKind::kIgnored) continue;
    if (kind == TopLevelKind::kUnknown) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " holds something that is not of a disk tier (", entry.name,
                       "); use an empty one"));
    }
    struct stat info;
    if (::fstatat(root, entry.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return ErrnoStatus(errno, absl::StrCat(path, "/", entry.name));
    }
    const bool right_type =
        kind == TopLevelKind::kFile ? S_ISREG(info.st_mode) : S_ISDIR(info.st_mode);
    if (!right_type || info.st_uid != ::geteuid()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, "/", entry.name,
          right_type ? " belongs to another user" : " is not what a disk tier has there"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Fd> TakeLock(const std::string& path, int root) {
  absl::StatusOr<Fd> lock = OpenAt(root, std::string(kLockName), O_RDWR | O_CREAT);
  if (!lock.ok()) return lock.status();
  if (::flock(lock->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat(path, "/", "LOCK"));
    char text[32] = {};
    const ssize_t got = ::pread(lock->get(), text, sizeof(text) - 1, 0);
    long pid = 0;
    const bool known = got > 0 && absl::SimpleAtoi(absl::string_view(text, got), &pid) && pid > 0;
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is in use by another process",
                     known ? absl::StrCat(" (pid ", pid, ")") : std::string()));
  }
  const std::string pid = absl::StrCat(::getpid(), "\n");
  // swallow: the number is there for the other side's message only.
  if (::ftruncate(lock->get(), 0) != 0 || ::pwrite(lock->get(), pid.data(), pid.size(), 0) < 0) {
  }
  return lock;
}

absl::StatusOr<Fd> MakeFolder(int parent, std::string_view name) {
  const std::string own(name);
  if (::mkdirat(parent, own.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, own);
  return OpenFolderAt(parent, own);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Directory>> Directory::Open(const std::string& given, bool create) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.empty()) return absl::InvalidArgumentError("no directory given for the disk tier");
  struct stat info;
  bool made = false;
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return absl::InvalidArgumentError(ErrnoStatus(errno, path).message());
    if (!create) return absl::NotFoundError(absl::StrCat(path, " does not exist"));
    if (absl::Status s = MakeParents(path); !s.ok()) return s;
    if (::mkdir(path.c_str(), 0700) != 0) return ErrnoStatus(errno, path);
    if (::lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
    made = true;
  }
  if (S_ISLNK(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is a symbolic link"));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a directory"));
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return absl::InvalidArgumentError(ErrnoStatus(errno, path).message());
  Fd root(fd);
  if (::fstat(root.get(), &info) != 0) return ErrnoStatus(errno, path);
  if (info.st_uid != ::geteuid()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " belongs to another user"));
  }
  if (absl::Status s = CheckTopLevel(path, root.get()); !s.ok()) return s;
  absl::StatusOr<Fd> lock = TakeLock(path, root.get());
  if (!lock.ok()) return lock.status();

  if ((info.st_mode & 0077) != 0 && ::fchmod(root.get(), 0700) != 0) {
    return ErrnoStatus(errno, path);
  }
  std::unique_ptr<Directory> directory(
      new Directory(path, std::move(root), std::move(lock).value()));
  if (absl::Status s = directory->MakeFolders(); !s.ok()) return s;
  if (made) {
    const std::size_t slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    // swallow: not every parent may be opened; the directory is there as long as the machine is up.
    Fd parent_fd(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (parent_fd.valid()) (void)SyncFolder(parent_fd.get(), parent);
  }
  return directory;
}

absl::Status Directory::MakeFolders() {
  absl::StatusOr<Fd> segments = MakeFolder(root_.get(), kSegmentsName);
  if (!segments.ok()) return segments.status();
  segments_ = std::move(segments).value();
  absl::StatusOr<Fd> temporary = MakeFolder(root_.get(), kTemporaryName);
  if (!temporary.ok()) return temporary.status();
  temporary_ = std::move(temporary).value();
  const std::string name(kVersionName);
  const std::string line = VersionLine(kDirectoryVersion);
  absl::StatusOr<std::string> old = ReadSmallFile(root_.get(), name, 256);
  if (old.ok() && *old == line) return absl::OkStatus();
  return ReplaceSmallFile(root_.get(), name, line);
}

}  // namespace parkade::disk
