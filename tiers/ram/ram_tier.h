// RAM as a tier: extents stay where capture or reading put them, shared, until they are removed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "parkade/tier.h"

namespace parkade {

struct RamTierOptions {
  std::uint64_t budget_bytes = 0;    // for images; the caller has taken index and buffers off
  std::uint64_t min_free_bytes = 0;  // memory to leave free; below it Shortfall answers UINT64_MAX
  // Memory available to this process (MemAvailable, or the control group's rest), bytes. Read at
  // most once in 100 ms. Null: the system's own, see SystemAvailableBytes.
  std::function<std::uint64_t()> available_bytes;
};

// MemAvailable of /proc/meminfo, or of the innermost control group with a limit its limit less
// what is used and not reclaimable, whichever is less. UINT64_MAX when neither can be read.
std::uint64_t SystemAvailableBytes();

std::unique_ptr<Tier> MakeRamTier(const RamTierOptions& options);

}  // namespace parkade
