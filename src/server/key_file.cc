#include "src/server/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace parkade {
namespace {

// 64 digits and a line end of two characters.
constexpr std::size_t kLongest = 66;

absl::Status Unreadable(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat("key file ", path, " can't be read: ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<SharedSealKey> ReadKeyFile(const std::string& path) {
  if (path.empty()) return SharedSealKey();
  // O_NONBLOCK: a pipe is refused, not waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Unreadable(path);
  const auto close = absl::MakeCleanup([fd] { ::close(fd); });
  struct stat info;
  if (::fstat(fd, &info) != 0) return Unreadable(path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("key file ", path, " is not a file"));
  }
  // Root may hand out keys; anybody else who owns it can read it, and change it.
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return absl::InvalidArgumentError(absl::StrCat("key file ", path, " belongs to another user"));
  }
  if ((info.st_mode & 0077) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("key file ", path, " is open to others; chmod 600 ", path));
  }
  char content[kLongest + 1];
  std::size_t size = 0;
  while (size < sizeof(content)) {
    const ssize_t got = ::read(fd, content + size, sizeof(content) - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Unreadable(path);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  absl::StatusOr<SharedSealKey> key = SealKey::Parse({content, size});
  ::explicit_bzero(content, sizeof(content));
  if (key.ok()) return key;
  return absl::InvalidArgumentError(
      absl::StrCat("key file ", path, ": ", key.status().message(),
                   "; make one with: (umask 077; openssl rand -hex 32 > ", path, ")"));
}

}  // namespace parkade
