// Reads segments: heads for rebuilding, stored bytes for restoring. Holds few descriptors open.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/format/segment.h"
#include "tiers/disk/directory.h"
#include "tiers/disk/payload_file.h"

namespace parkade::disk {

inline constexpr std::size_t kOpenSegments = 64;  // two descriptors each

// Thread safe.
class SegmentReader {
 public:
  explicit SegmentReader(Directory* directory) : directory_(directory) {}

  // The head, checked, its number and the file's size too. DataLoss: damaged, or not this one.
  // FailedPrecondition: written by a newer version.
  absl::StatusOr<SegmentHead> ReadHead(std::uint64_t segment) const;

  // Raw bytes of one extent, read straight into a buffer got from `allocate`, unless it is
  // compressed. The buffer may be a little larger than the bytes.
  absl::StatusOr<ExtentBytes> ReadExtent(
      std::uint64_t segment, const ParkKey& key, const StoredExtent& extent,
      const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate);
  // Asks the system to read the file ahead.
  void Advise(std::uint64_t segment);
  // Puts up to `bytes` of what was read past the system's cache into it, oldest first, so that the
  // next process finds it there. The caller sees to it that there is memory nobody uses. Returns
  // how much it asked for.
  std::uint64_t RefillCache(std::uint64_t bytes);
  // When payload was last read; in the past for ever when it never was.
  absl::Time last_read() const;
  // Closes a removed segment's descriptor.
  void Drop(std::uint64_t segment);
  void DropAll();

  std::uint64_t read_bytes() const { return read_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Segment {
    PayloadFile file;
    SharedSealer sealer;  // null: plain
  };
  using SharedFile = std::shared_ptr<const Segment>;
  // Part of a segment that is not in the system's cache yet.
  struct Uncached {
    std::uint64_t segment = 0;
    std::uint64_t done = 0;  // bytes before this are
  };
  absl::StatusOr<SharedFile> Open(std::uint64_t segment);
  absl::StatusOr<SharedSealer> ReadSealer(const PayloadFile& file) const;
  // Where in `buffer` the bytes are.
  absl::StatusOr<std::size_t> Read(const Segment& segment, std::uint64_t number, const ParkKey& key,
                                   const StoredExtent& extent, bool past_cache,
                                   absl::Span<char> buffer);
  absl::Status ReadPacked(const Segment& segment, const ParkKey& key, const StoredExtent& extent,
                          absl::Span<char> raw);
  void NoteRead(std::uint64_t segment, bool past_cache);
  std::string TakeBuffer(std::size_t size);
  void GiveBuffer(std::string buffer);

  Directory* const directory_;
  std::atomic<std::uint64_t> read_bytes_{0};
  mutable absl::Mutex mutex_;
  struct Entry {
    SharedFile file;
    std::list<std::uint64_t>::iterator place;
  };
  absl::flat_hash_map<std::uint64_t, Entry> open_ ABSL_GUARDED_BY(mutex_);
  std::list<std::uint64_t> recent_ ABSL_GUARDED_BY(mutex_);   // newest first
  std::vector<std::string> buffers_ ABSL_GUARDED_BY(mutex_);  // for compressed bytes
  std::deque<Uncached> uncached_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_read_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace parkade::disk
