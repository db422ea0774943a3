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
#include "src/format/segment.h"
#include "tiers/disk/directory.h"

namespace parkade::disk {
namespace {

constexpr char kVersionWord[] = "parkade-disk";
constexpr char kKeyWord[] = "parkade-key";
constexpr std::size_t kLongestLine = 256;

// One line with its own checksum.
std::string SummedLine(const std::string& text) {
  const Digest128 sum = Checksum(absl::MakeConstSpan(text.data(), text.size()));
  return absl::StrCat(text, " ", absl::Hex(sum.low, absl::kZeroPad16), "\n");
}

std::string VersionLine(std::uint32_t version) {
  return SummedLine(absl::StrCat(kVersionWord, " ", version));
}

std::string KeyLine(const Digest128& id) {
  return SummedLine(absl::StrCat(kKeyWord, " ", ToHex(id)));
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

// Of a plain file alone: a pipe or a device would be waited for.
absl::StatusOr<std::string> ReadFront(const Fd& folder, const std::string& name,
                                      std::size_t bytes) {
  struct stat info;
  if (folder.door().Stat(folder.get(), name.c_str(), &info) != 0) {
    return ErrnoStatus(errno, name);
  }
  if (!S_ISREG(info.st_mode)) return absl::DataLossError(absl::StrCat(name, " is not a file"));
  return ReadSmallFile(folder, name, bytes);
}

// The first segment that says it, of those in the folder.
std::optional<Digest128> KeyIdOfSegments(const Fd& root) {
  absl::StatusOr<Fd> segments = OpenFolderAt(root, std::string(kSegmentsName));
  if (!segments.ok()) return std::nullopt;
  const absl::StatusOr<std::vector<FolderEntry>> folders = ListFolder(*segments, "segments");
  if (!folders.ok()) return std::nullopt;
  for (const FolderEntry& folder : *folders) {
    absl::StatusOr<Fd> fd = OpenFolderAt(*segments, folder.name);
    if (!fd.ok()) continue;
    const absl::StatusOr<std::vector<FolderEntry>> files = ListFolder(*fd, folder.name);
    if (!files.ok()) continue;
    for (const FolderEntry& file : *files) {
      const absl::StatusOr<std::string> front = ReadFront(*fd, file.name, kSegmentSealBytes);
      if (!front.ok()) continue;
      // swallow: a damaged one says nothing; reconciling finds it again.
      const absl::StatusOr<Digest128> id = DecodeSegmentKeyId(*front);
      if (id.ok()) return *id;
    }
  }
  return std::nullopt;
}

// Id of the key that a directory is encrypted with, zero when it is not; nothing when it holds
// nothing that tells.
std::optional<Digest128> KeyIdOf(const Fd& root, std::optional<std::uint32_t> version) {
  const absl::StatusOr<std::string> line = ReadFront(root, std::string(kKeyName), kLongestLine);
  if (line.ok()) {
    const std::vector<std::string> words = absl::StrSplit(*line, ' ');
    const std::optional<Digest128> id = words.size() == 3 ? DigestFromHex(words[1]) : std::nullopt;
    if (id.has_value() && *line == KeyLine(*id)) return id;
  }
  if (version == kDirectoryVersion) return Digest128();
  return KeyIdOfSegments(root);
}

absl::Status CheckKey(const std::string& path, const std::optional<Digest128>& stored,
                      const SealKey* key) {
  const Digest128 given = key != nullptr ? key->id() : Digest128();
  if (!stored.has_value() || *stored == given) return absl::OkStatus();
  if (stored->IsZero()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not encrypted; a key file goes with a directory of its own"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is encrypted with the key ", ToHex(*stored),
      key == nullptr ? "; give its key file"
                     : absl::StrCat("; the key file given holds another one, ", ToHex(given))));
}

absl::Status MakeParents(FileDoor& door, const std::string& path) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (door.MakeFolder(AT_FDCWD, parent.c_str()) != 0 && errno != EEXIST) {
      return ErrnoStatus(errno, parent);
    }
  }
  return absl::OkStatus();
}

// What the top level has, checked without a change.
absl::Status CheckTopLevel(const std::string& path, const Fd& root, const SealKey* key) {
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(root, path);
  if (!entries.ok()) return entries.status();
  const absl::StatusOr<std::string> line = ReadFront(root, std::string(kVersionName), kLongestLine);
  const std::optional<std::uint32_t> version = line.ok() ? ParseVersionLine(*line) : std::nullopt;
  if (version.has_value() && *version > kSealedDirectoryVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " was written by a newer version (format ", *version,
                     ", this program knows ", kSealedDirectoryVersion, ")"));
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
    if (root.door().Stat(root.get(), entry.name.c_str(), &info) != 0) {
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
  return CheckKey(path, KeyIdOf(root, version), key);
}

absl::StatusOr<Fd> TakeLock(const std::string& path, const Fd& root) {
  absl::StatusOr<Fd> lock = OpenAt(root, std::string(kLockName), O_RDWR | O_CREAT);
  if (!lock.ok()) return lock.status();
  if (::flock(lock->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat(path, "/", "LOCK"));
    char text[32] = {};
    const ssize_t got = root.door().Read(lock->get(), text, sizeof(text) - 1, 0);
    long pid = 0;
    const bool known = got > 0 && absl::SimpleAtoi(absl::string_view(text, got), &pid) && pid > 0;
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is in use by another process",
                     known ? absl::StrCat(" (pid ", pid, ")") : std::string(),
                     "; end it, or give another directory"));
  }
  std::string pid = absl::StrCat(::getpid(), "\n");
  const iovec piece = {pid.data(), pid.size()};
  // swallow: the number is there for the other side's message only.
  if (root.door().Truncate(lock->get(), 0) != 0 ||
      root.door().Write(lock->get(), &piece, 1, 0) < 0) {
  }
  return lock;
}

absl::StatusOr<Fd> MakeFolder(const Fd& parent, std::string_view name) {
  const std::string own(name);
  if (parent.door().MakeFolder(parent.get(), own.c_str()) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, own);
  }
  return OpenFolderAt(parent, own);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Directory>> Directory::Open(const std::string& given, bool create,
                                                           SharedSealKey key, FileDoor& door) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.empty()) return absl::InvalidArgumentError("no directory given for the disk tier");
  struct stat info;
  bool made = false;
  if (door.Stat(AT_FDCWD, path.c_str(), &info) != 0) {
    if (errno != ENOENT) return absl::InvalidArgumentError(ErrnoStatus(errno, path).message());
    if (!create) return absl::NotFoundError(absl::StrCat(path, " does not exist"));
    if (absl::Status s = MakeParents(door, path); !s.ok()) return s;
    if (door.MakeFolder(AT_FDCWD, path.c_str()) != 0) return ErrnoStatus(errno, path);
    if (door.Stat(AT_FDCWD, path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
    made = true;
  }
  if (S_ISLNK(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is a symbolic link"));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a directory"));
  }
  const int fd =
      door.Open(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
  if (fd < 0) return absl::InvalidArgumentError(ErrnoStatus(errno, path).message());
  Fd root(fd, door);
  if (door.StatOpen(root.get(), &info) != 0) return ErrnoStatus(errno, path);
  if (info.st_uid != ::geteuid()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " belongs to another user"));
  }
  if (absl::Status s = CheckTopLevel(path, root, key.get()); !s.ok()) return s;
  absl::StatusOr<Fd> lock = TakeLock(path, root);
  if (!lock.ok()) return lock.status();

  if ((info.st_mode & 0077) != 0 && ::fchmod(root.get(), 0700) != 0) {
    return ErrnoStatus(errno, path);
  }
  std::unique_ptr<Directory> directory(
      new Directory(path, std::move(root), std::move(lock).value(), std::move(key)));
  if (absl::Status s = directory->MakeFolders(); !s.ok()) return s;
  if (made) {
    const std::string parent = ParentFolder(path);
    // swallow: not every parent may be opened; the directory is there as long as the machine is up.
    Fd parent_fd(door.Open(AT_FDCWD, parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), door);
    if (parent_fd.valid()) (void)SyncFolder(parent_fd, parent);
  }
  return directory;
}

absl::Status Directory::MakeFolders() {
  absl::StatusOr<Fd> segments = MakeFolder(root_, kSegmentsName);
  if (!segments.ok()) return segments.status();
  segments_ = std::move(segments).value();
  absl::StatusOr<Fd> temporary = MakeFolder(root_, kTemporaryName);
  if (!temporary.ok()) return temporary.status();
  temporary_ = std::move(temporary).value();
  return PutVersion();
}

// The key first: a directory that says it is encrypted should say with what.
absl::Status Directory::PutVersion() {
  std::vector<std::pair<std::string, std::string>> lines;
  if (key_ != nullptr) lines.emplace_back(kKeyName, KeyLine(key_->id()));
  lines.emplace_back(kVersionName,
                     VersionLine(key_ != nullptr ? kSealedDirectoryVersion : kDirectoryVersion));
  for (const auto& [name, line] : lines) {
    const absl::StatusOr<std::string> old = ReadSmallFile(root_, name, kLongestLine);
    if (old.ok() && *old == line) continue;
    if (absl::Status s = ReplaceSmallFile(root_, name, line); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace parkade::disk
