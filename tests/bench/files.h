// Plain file operations that the references are made of, and the folders workloads live in.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace parkade::bench {

// A new folder below `parent`, removed with everything in it at the end.
class TemporaryFolder {
 public:
  static absl::StatusOr<TemporaryFolder> Make(const std::string& parent);
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Anonymous memory whose pages are all there.
class TouchedMemory {
 public:
  explicit TouchedMemory(std::size_t bytes);
  ~TouchedMemory();
  TouchedMemory(const TouchedMemory&) = delete;
  TouchedMemory& operator=(const TouchedMemory&) = delete;

  char* data() { return data_; }
  std::size_t size() const { return size_; }

 private:
  char* data_;
  std::size_t size_;
};

// Everything that is dirty on the file system of `path` goes to the medium.
absl::Status SyncFileSystem(const std::string& path);
// The page cache forgets a file, or every file below a folder. No root needed.
absl::Status DropPageCache(const std::string& path);
// Reads the same once through the page cache.
absl::Status WarmPageCache(const std::string& path);

// Reads every file below a folder through the page cache into one buffer on large pages, and shows
// each piece of at most `piece_bytes`.
absl::Status ReadInPieces(const std::string& folder, std::size_t piece_bytes,
                          const std::function<void(absl::Span<const char>)>& show);

std::uint64_t BlockBytes(const std::string& folder);
std::uint64_t FreeBytes(const std::string& folder);

// What the read reference reads into. A device takes only so many pieces of memory in one request:
// with ordinary pages a read is slower, how much depends on where they happen to lie.
enum class Pages { kOrdinary, kLarge };
// The read reference: one thread, O_DIRECT, 2 MiB a call, the files below a folder in the order of
// their names. Returns seconds. Unimplemented where the file system refuses O_DIRECT.
absl::StatusOr<double> TimeDirectRead(const std::string& folder, Pages pages);

// The durable write reference: creates `file` with `bytes` bytes of `data`, fdatasync, syncs the
// folder, appends 4 KiB to `log_fd` and fdatasyncs that. Returns seconds.
absl::StatusOr<double> TimeDurableWrite(const std::string& file, const char* data,
                                        std::uint64_t bytes, int log_fd);

// The copy reference: one thread's memcpy of all of `from`, after the processor's caches were
// filled with something else. Returns seconds. `to` is at least as large.
double TimeColdCopy(TouchedMemory& to, TouchedMemory& from);

}  // namespace parkade::bench
