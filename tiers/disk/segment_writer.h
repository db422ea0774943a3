// Writes segments so that a name never stands for bytes that are not there.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tiers/disk/directory.h"
#include "tiers/disk/rows.h"

namespace parkade::disk {

// Called at named points; null: nothing.
using Failpoint = std::function<void(std::string_view point)>;

// Segment numbers are never used twice: each start begins above its start stamp and above what
// earlier starts have set aside in the catalogue (kNextSegmentKey).
inline constexpr int kStampShift = 20;
inline constexpr std::uint64_t kNumbersSetAside = 1ull << kStampShift;

// Thread safe.
class SegmentWriter {
 public:
  SegmentWriter(Directory* directory, Failpoint failpoint)
      : directory_(directory), failpoint_(std::move(failpoint)) {}

  // First number of this start and the row that sets numbers aside.
  CatalogueRow StartNumbers(std::uint64_t lowest);
  std::uint64_t TakeNumber() { return next_.fetch_add(1); }
  // True once each time the numbers set aside are used up: `row` belongs in the next batch.
  bool SetNumbersAside(std::uint64_t number, CatalogueRow* row);

  // Temporary file, whole content in few writes, fdatasync, rename, folder synced. Returns the
  // bytes of its blocks. On an error no file of that number is left. `pieces` is consumed.
  absl::StatusOr<std::uint64_t> Write(const SegmentRef& ref, std::vector<iovec> pieces);
  absl::StatusOr<std::uint64_t> Write(const RowsSegment& segment);
  // Also of a sealed one, whose extents are encrypted one by one on the way: `payload` is not
  // changed and one extent's bytes are held besides it.
  absl::StatusOr<std::uint64_t> Write(const ParkSegment& park,
                                      absl::Span<const ExtentBytes> payload);

  void Reach(std::string_view point) const {
    if (failpoint_) failpoint_(point);
  }
  std::uint64_t written_bytes() const { return written_bytes_.load(std::memory_order_relaxed); }

 private:
  // Writes the content of a file that is open and has its size.
  using Fill = std::function<absl::Status(const Fd& fd, const std::string& name)>;
  absl::StatusOr<std::uint64_t> Write(const SegmentRef& ref, const Fill& fill);
  absl::StatusOr<std::uint64_t> WriteTemporary(const SegmentRef& ref, const std::string& name,
                                               const Fill& fill);
  absl::Status Publish(std::uint64_t segment, const std::string& name);

  Directory* const directory_;
  const Failpoint failpoint_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> set_aside_{0};
  std::atomic<std::uint64_t> written_bytes_{0};
};

}  // namespace parkade::disk
