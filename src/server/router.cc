#include "src/server/router.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "parkade/identity.h"
#include "src/format/checksum.h"

namespace parkade {
namespace {

// llama-server's own sign of a server that a router has started.
constexpr char kRouterPortVariable[] = "LLAMA_SERVER_ROUTER_PORT";
constexpr std::size_t kMostOptionsBytes = 64 << 10;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string TemporaryFolder() {
  const std::string folder = Environment("TMPDIR");
  return folder.empty() ? "/tmp" : folder;
}

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(what, " ", path));
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("writing", path);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

// A name in the environment is no proof of anything: another user's file would choose where this
// user's conversations go.
absl::StatusOr<std::string> ReadOwnFile(const std::string& path) {
  // A pipe is refused below and must not be waited for.
  const File file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.fd() < 0) return Failed("opening", path);
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) return Failed("looking at", path);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(path + " is not a plain file");
  if (info.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(path + " belongs to another user");
  }
  if ((info.st_mode & 0077) != 0) {
    return absl::PermissionDeniedError(path + " is open to other users");
  }
  std::string text(kMostOptionsBytes, '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = ::read(file.fd(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("reading", path);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  text.resize(filled);
  return text;
}

}  // namespace

std::string CacheFolder() {
  if (const std::string cache = Environment("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/parkade";
  }
  const std::string home = Environment("HOME");
  return home.empty() ? "" : home + "/.cache/parkade";
}

absl::Status MakeFolder(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return Failed("making", folder);
    if (slash == std::string::npos) return absl::OkStatus();
  }
}

RouterOptions::RouterOptions(const std::string& folder)
    : folder_(folder.empty() ? TemporaryFolder() : folder),
      path_(absl::StrCat(folder_, "/router-", ToHex(RandomDigest()), ".conf")) {
  ::setenv(kRouterOptionsVariable, path_.c_str(), /*overwrite=*/1);
}

RouterOptions::~RouterOptions() {
  if (written_) ::unlink(path_.c_str());
}

absl::Status RouterOptions::Write(const ParsedFlags& flags) {
  absl::StatusOr<std::string> text = FlagsText(flags);
  if (!text.ok()) return text.status();
  if (absl::Status made = MakeFolder(folder_); !made.ok()) return made;
  const File file(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.fd() < 0) return Failed("making", path_);
  written_ = true;
  absl::Status status = WriteAll(file.fd(), *text, path_);
  if (!status.ok()) {
    ::unlink(path_.c_str());
    written_ = false;
  }
  return status;
}

absl::Status CheckRouterDirectory(const std::string& directory) {
  struct stat info {};
  if (::lstat(directory.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus()
                           : absl::InvalidArgumentError(Failed("looking at", directory).message());
  }
  if (S_ISLNK(info.st_mode)) {
    return absl::InvalidArgumentError(directory + " is a symbolic link");
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(directory + " is not a directory");
  }
  if (info.st_uid != ::geteuid()) {
    return absl::InvalidArgumentError(directory + " belongs to another user");
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(directory.c_str()), ::closedir);
  if (folder == nullptr) {
    return absl::InvalidArgumentError(Failed("opening", directory).message());
  }
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == ".." || name == "lost+found") continue;
    if (DigestFromHex(name).has_value()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(directory, " holds something that is not of a router (", name,
                     "); in router mode every model has a folder in it, so use an empty one"));
  }
  return absl::OkStatus();
}

bool StartedByRouter() {
  return !Environment(kRouterPortVariable).empty() && !Environment(kRouterOptionsVariable).empty();
}

absl::StatusOr<ParsedFlags> ParseChildFlags(int argc, const char* const* argv) {
  const std::string path = Environment(kRouterOptionsVariable);
  ::unsetenv(kRouterOptionsVariable);
  absl::StatusOr<std::string> text = ReadOwnFile(path);
  absl::StatusOr<ParsedFlags> flags =
      text.ok() ? ParseFlagsText(argc, argv, *text, path) : text.status();
  if (flags.ok()) return flags;
  absl::StatusOr<ParsedFlags> defaults = ParseFlagsText(argc, argv, "", path);
  if (defaults.ok()) {
    defaults->notices.push_back(absl::StrCat(
        "warning: the router's options can't be read, defaults count: ", flags.status().message()));
  }
  return defaults;
}

}  // namespace parkade
