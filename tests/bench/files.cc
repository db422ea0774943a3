#include "tests/bench/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/measure.h"

namespace parkade::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDirectReadBytes = 2u << 20;
constexpr std::size_t kLogAppendBytes = 4096;
// More than any processor's last cache of the machines this runs on.
constexpr std::size_t kCacheBytes = 256u << 20;

absl::Status Failed(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// `path`: a file, or a folder whose files are meant.
absl::Status ForEachFile(const std::string& path,
                         const std::function<absl::Status(int fd, const std::string&)>& visit) {
  const auto visit_one = [&visit](const std::string& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return Failed(file);
    absl::Status status = visit(fd, file);
    ::close(fd);
    return status;
  };
  std::error_code error;
  if (fs::is_regular_file(path, error)) return visit_one(path);
  for (fs::recursive_directory_iterator it(path, error), end; it != end; it.increment(error)) {
    if (error) break;
    if (!it->is_regular_file(error)) continue;
    if (absl::Status s = visit_one(it->path().string()); !s.ok()) return s;
  }
  return error ? absl::UnavailableError(absl::StrCat(path, ": ", error.message()))
               : absl::OkStatus();
}

absl::Status WriteWhole(int fd, const char* data, std::uint64_t bytes, const std::string& what) {
  std::uint64_t done = 0;
  while (done < bytes) {
    const ssize_t written = ::write(fd, data + done, bytes - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Failed(what);
    done += static_cast<std::uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status ReadDirect(const std::string& file, char* buffer) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0 && errno == EINVAL) return absl::UnimplementedError("no O_DIRECT here");
  if (fd < 0) return Failed(file);
  const auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  for (off_t offset = 0;;) {
    const ssize_t got = ::pread(fd, buffer, kDirectReadBytes, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(file);
    offset += got;
    if (got < static_cast<ssize_t>(kDirectReadBytes)) return absl::OkStatus();
  }
}

}  // namespace

absl::StatusOr<TemporaryFolder> TemporaryFolder::Make(const std::string& parent) {
  std::string path = parent + "/parkade-bench-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return Failed(path);
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, std::string())) {}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  std::error_code error;
  fs::remove_all(path_, error);
  if (error) std::fprintf(stderr, "%s stays behind: %s\n", path_.c_str(), error.message().c_str());
}

TouchedMemory::TouchedMemory(std::size_t bytes) : size_(bytes) {
  void* memory = ::mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("parkade-bench: no memory for a reference");
    std::abort();
  }
  data_ = static_cast<char*>(memory);
  std::memset(data_, 1, size_);
}

TouchedMemory::~TouchedMemory() { ::munmap(data_, std::max<std::size_t>(size_, 1)); }

absl::Status SyncFileSystem(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed(path);
  const int synced = ::syncfs(fd);
  ::close(fd);
  return synced == 0 ? absl::OkStatus() : Failed(path);
}

absl::Status DropPageCache(const std::string& path) {
  if (absl::Status synced = SyncFileSystem(path); !synced.ok()) return synced;
  return ForEachFile(path, [](int fd, const std::string& file) {
    const int error = ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    errno = error;
    return error == 0 ? absl::OkStatus() : Failed(file);
  });
}

absl::Status WarmPageCache(const std::string& path) {
  std::vector<char> buffer(1u << 20);
  return ForEachFile(path, [&buffer](int fd, const std::string& file) {
    ssize_t got = 0;
    while ((got = ::read(fd, buffer.data(), buffer.size())) > 0) {
    }
    return got == 0 ? absl::OkStatus() : Failed(file);
  });
}

absl::Status ReadInPieces(const std::string& folder, std::size_t piece_bytes,
                          const std::function<void(absl::Span<const char>)>& show) {
  TouchedMemory buffer(piece_bytes);
  // swallow: without large pages it is a little slower.
  (void)::madvise(buffer.data(), buffer.size(), MADV_HUGEPAGE);
  return ForEachFile(folder, [&](int fd, const std::string& file) {
    off_t at = 0;
    ssize_t got = 0;
    while ((got = ::pread(fd, buffer.data(), buffer.size(), at)) > 0) {
      show({buffer.data(), static_cast<std::size_t>(got)});
      at += got;
    }
    return got == 0 ? absl::OkStatus() : Failed(file);
  });
}

std::uint64_t BlockBytes(const std::string& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  const auto add = [&bytes](const fs::path& path) {
    struct stat info;
    if (::lstat(path.c_str(), &info) == 0)
      bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
  };
  add(folder);
  for (fs::recursive_directory_iterator it(folder, error), end; it != end; it.increment(error)) {
    if (error) break;
    add(it->path());
  }
  return bytes;
}

std::uint64_t FreeBytes(const std::string& folder) {
  struct statvfs info;
  if (::statvfs(folder.c_str(), &info) != 0) return 0;
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

absl::StatusOr<double> TimeDirectRead(const std::string& folder, Pages pages) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; it != end; it.increment(error)) {
    if (error) break;
    if (it->is_regular_file(error)) files.push_back(it->path());
  }
  if (error) return absl::UnavailableError(absl::StrCat(folder, ": ", error.message()));
  // Folders fan out by a part of the number that is in the name.
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return a.filename() < b.filename(); });
  std::unique_ptr<char, decltype(&std::free)> buffer(
      static_cast<char*>(std::aligned_alloc(kDirectReadBytes, kDirectReadBytes)), &std::free);
  // swallow: without large pages the two references are one.
  (void)::madvise(buffer.get(), kDirectReadBytes,
                  pages == Pages::kLarge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::memset(buffer.get(), 1, kDirectReadBytes);
  const double begin = NowSeconds();
  for (const fs::path& file : files) {
    if (absl::Status s = ReadDirect(file.string(), buffer.get()); !s.ok()) return s;
  }
  return NowSeconds() - begin;
}

absl::StatusOr<double> TimeDurableWrite(const std::string& file, const char* data,
                                        std::uint64_t bytes, int log_fd) {
  static constexpr char kAppended[kLogAppendBytes] = {};
  const std::string folder = fs::path(file).parent_path().string();
  const double begin = NowSeconds();
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return Failed(file);
  const auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  if (absl::Status written = WriteWhole(fd, data, bytes, file); !written.ok()) return written;
  if (::fdatasync(fd) != 0) return Failed(file);
  const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd < 0) return Failed(folder);
  const int synced = ::fsync(folder_fd);
  ::close(folder_fd);
  if (synced != 0) return Failed(folder);
  if (absl::Status s = WriteWhole(log_fd, kAppended, sizeof(kAppended), "log"); !s.ok()) return s;
  if (::fdatasync(log_fd) != 0) return Failed("log");
  return NowSeconds() - begin;
}

double TimeColdCopy(TouchedMemory& to, TouchedMemory& from) {
  static TouchedMemory& other = *new TouchedMemory(kCacheBytes);
  std::memset(other.data(), static_cast<int>(from.data()[0]) + 1, other.size());
  const double begin = NowSeconds();
  std::memcpy(to.data(), from.data(), from.size());
  return NowSeconds() - begin;
}

}  // namespace parkade::bench
