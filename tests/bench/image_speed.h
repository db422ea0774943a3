// One large image through the disk tier: restore and spill against what the machine itself can do.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "parkade/image.h"
#include "src/format/sealing.h"
#include "tests/bench/workload.h"

namespace parkade::bench {

struct ImageSpec {
  StateLayout layout;
  StageMap stages;
  std::uint32_t tokens = 0;
  SharedSealKey key = nullptr;  // not null: in an encrypted directory

  std::uint64_t bytes() const;
};

struct RestoreSpeed {
  double cold_restore_vs_raw_read = 0;   // 0: no O_DIRECT here
  double cold_restore_vs_best_read = 0;  // the same reads into a large page
  double warm_restore_vs_memcpy = 0;
  double cold_mib_per_s = 0;
  double warm_mib_per_s = 0;
  double memcpy_mib_per_s = 0;
  // Time that checking takes, by one thread right after it has read an extent, of a warm restore's.
  double checksum_share = 0;
  // Most memory held while restoring beyond what the engine's rows take.
  double peak_extra_mib = 0;
};
absl::StatusOr<RestoreSpeed> MeasureRestore(const BenchOptions& options, const ImageSpec& image);

// Time for `reference` divided by that for `image`, both in the same rounds. The engine's memory
// for both is held at once.
struct Comparison {
  double warm_restore = 0;
  double cold_restore = 0;
  double spill = 0;  // durable
};
absl::StatusOr<double> CompareWarmRestores(const BenchOptions& options, const ImageSpec& image,
                                           const ImageSpec& reference);
absl::StatusOr<Comparison> Compare(const BenchOptions& options, const ImageSpec& image,
                                   const ImageSpec& reference);

// Time of the reference divided by the time of a durable spill of `bytes`, in rows of the image's
// layout. `repeats` spills are timed together where one alone is too short.
absl::StatusOr<double> MeasureSpill(const BenchOptions& options, const ImageSpec& image,
                                    std::uint64_t bytes, int repeats);

}  // namespace parkade::bench
