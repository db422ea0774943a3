#include "src/server/user_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"

namespace parkade {
namespace {

absl::Status Unreadable() { return absl::UnavailableError(std::strerror(errno)); }

}  // namespace

absl::StatusOr<UserFile> ReadUserFile(const std::string& path, std::size_t most_bytes) {
  // O_NONBLOCK: a pipe is refused, not waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Unreadable();
  const auto close = absl::MakeCleanup([fd] { ::close(fd); });
  struct stat info;
  if (::fstat(fd, &info) != 0) return Unreadable();
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError("is not a file");
  UserFile file;
  file.owner = info.st_uid;
  file.mode = info.st_mode;
  file.content.resize(most_bytes + 1);
  std::size_t size = 0;
  while (size < file.content.size()) {
    const ssize_t got = ::read(fd, file.content.data() + size, file.content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Unreadable();
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  file.content.resize(size);
  return file;
}

}  // namespace parkade
