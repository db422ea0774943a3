// A disk that answers no sync while a file exists: preloaded (LD_PRELOAD) into a server under test,
// which is given the file's path in PARKADE_STUCK_DISK.

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>

namespace {

void WaitWhileStuck() {
  static const char* const path = std::getenv("PARKADE_STUCK_DISK");
  if (path == nullptr) return;
  const int error = errno;
  const timespec pause = {0, 5'000'000};
  while (access(path, F_OK) == 0) nanosleep(&pause, nullptr);
  errno = error;
}

}  // namespace

extern "C" {

// The same names as the C library's, so that these are found first.
int fdatasync(int fd) {
  WaitWhileStuck();
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

int fsync(int fd) {
  WaitWhileStuck();
  return static_cast<int>(syscall(SYS_fsync, fd));
}

}  // extern "C"
