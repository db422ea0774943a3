// Reads segments: heads for rebuilding, stored bytes for restoring. Holds few descriptors open.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "src/format/segment.h"
#include "tiers/disk/directory.h"

namespace parkade::disk {

inline constexpr std::size_t kOpenSegments = 64;

// Thread safe.
class SegmentReader {
 public:
  explicit SegmentReader(Directory* directory) : directory_(directory) {}

  // The head, checked, its number and the file's size too. DataLoss: damaged, or not this one.
  // FailedPrecondition: written by a newer version.
  absl::StatusOr<SegmentHead> ReadHead(std::uint64_t segment) const;

  // Raw bytes of one extent. One read straight into `raw`, unless it is compressed.
  absl::Status ReadExtent(std::uint64_t segment, const StoredExtent& extent, absl::Span<char> raw);
  // Stored bytes and header as they are; for checking. `header`: kExtentHeaderBytes.
  absl::Status ReadStored(std::uint64_t segment, const StoredExtent& extent, std::string* header,
                          std::string* stored);

  // Asks the system to read the file ahead.
  void Advise(std::uint64_t segment);
  // Closes a removed segment's descriptor.
  void Drop(std::uint64_t segment);

  std::uint64_t read_bytes() const { return read_bytes_.load(std::memory_order_relaxed); }

 private:
  using SharedFd = std::shared_ptr<const Fd>;
  absl::StatusOr<SharedFd> Open(std::uint64_t segment);
  std::string TakeBuffer(std::size_t size);
  void GiveBuffer(std::string buffer);

  Directory* const directory_;
  std::atomic<std::uint64_t> read_bytes_{0};
  absl::Mutex mutex_;
  struct Entry {
    SharedFd fd;
    std::list<std::uint64_t>::iterator place;
  };
  absl::flat_hash_map<std::uint64_t, Entry> open_ ABSL_GUARDED_BY(mutex_);
  std::list<std::uint64_t> recent_ ABSL_GUARDED_BY(mutex_);   // newest first
  std::vector<std::string> buffers_ ABSL_GUARDED_BY(mutex_);  // for compressed bytes
};

}  // namespace parkade::disk
