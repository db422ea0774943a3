// How much memory this process may still take: parsing of what the kernel says, and a reader that
// asks it rarely. Internal to tiers/ram.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace parkade::ram {

inline constexpr std::uint64_t kUnknownBytes = UINT64_MAX;

// MemAvailable of the text of /proc/meminfo.
std::optional<std::uint64_t> ParseMemAvailable(std::string_view meminfo);

enum class CgroupVersion { kV1, kV2 };

// Where this process's memory control group is.
struct CgroupPlace {
  CgroupVersion version = CgroupVersion::kV2;
  std::string mount;  // folder the hierarchy is mounted at
  std::string path;   // below it, with a leading slash; "/" is the mount itself
  friend bool operator==(const CgroupPlace&, const CgroupPlace&) = default;
};

// From the texts of /proc/self/cgroup and /proc/self/mountinfo. A v1 memory hierarchy is taken
// where there is one, because then v2 does not control memory. Nothing when neither is mounted.
std::optional<CgroupPlace> ParseCgroupPlace(std::string_view cgroup, std::string_view mountinfo);

// The limit of a v2 memory.max or memory.high or of a v1 memory.limit_in_bytes; nothing when the
// text means "no limit" or is not a number.
std::optional<std::uint64_t> ParseCgroupLimit(std::string_view text);

// Bytes of a memory.stat that the kernel can take back without swapping: file pages and, in v2,
// reclaimable slab.
std::uint64_t ParseReclaimable(CgroupVersion version, std::string_view memory_stat);

// SystemAvailableBytes with every path below `root` ("" for the system itself).
std::uint64_t AvailableBytesUnder(const std::string& root);

// Thread safe. Asks `read` when made, then at most once in 100 ms of `clock`; between, and while
// another thread asks, answers what it said last.
class AvailableMemory {
 public:
  AvailableMemory(std::function<std::uint64_t()> read, std::function<absl::Time()> clock);

  std::uint64_t Bytes() const;

 private:
  const std::function<std::uint64_t()> read_;
  const std::function<absl::Time()> clock_;
  mutable absl::Mutex mu_;
  mutable absl::Time next_ ABSL_GUARDED_BY(mu_);
  mutable std::uint64_t bytes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parkade::ram
