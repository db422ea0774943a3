// One large image through the disk tier: restore and spill against what the machine itself can do.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "parkade/image.h"
#include "tests/bench/workload.h"

namespace parkade::bench {

struct ImageSpec {
  StateLayout layout;
  StageMap stages;
  std::uint32_t tokens = 0;

  std::uint64_t bytes() const;
};

struct RestoreSpeed {
  double cold_restore_vs_raw_read = 0;   // 0: no O_DIRECT here
  double cold_restore_vs_best_read = 0;  // the same reads into a large page
  double warm_restore_vs_memcpy = 0;
  double cold_mib_per_s = 0;
  double warm_mib_per_s = 0;
  double memcpy_mib_per_s = 0;
  // Most memory held while restoring beyond what the engine's rows take.
  double peak_extra_mib = 0;
};
absl::StatusOr<RestoreSpeed> MeasureRestore(const BenchOptions& options, const ImageSpec& image);

// Time of a warm restore of `reference` divided by that of `image`, both in the same rounds. The
// engine's memory for both is held at once.
absl::StatusOr<double> CompareRestores(const BenchOptions& options, const ImageSpec& image,
                                       const ImageSpec& reference);

// Time of the reference divided by the time of a durable spill of `bytes`, in rows of the image's
// layout. `repeats` spills are timed together where one alone is too short.
absl::StatusOr<double> MeasureSpill(const BenchOptions& options, const ImageSpec& image,
                                    std::uint64_t bytes, int repeats);

}  // namespace parkade::bench
