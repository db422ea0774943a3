// Clocks, medians, shuffled rounds, and what the system counts for this process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace parkade::bench {

// Seconds on a clock that only goes forward.
double NowSeconds();

// The values are copied: callers keep them in the order they were measured. 0 without values.
double Median(std::vector<double> values);
// `share` in [0, 1]; the smallest value that at least that share does not exceed.
double Percentile(std::vector<double> values, double share);

// One thing that is measured once a round; returns seconds.
struct Contestant {
  std::string name;
  std::function<absl::StatusOr<double>()> measure;
};
inline constexpr int kRounds = 7;
// Runs every contestant once a round, in an order shuffled anew from `seed` in every round, so that
// none always profits from what the one before it left behind. Medians by name.
absl::StatusOr<std::map<std::string, double>> MedianSeconds(
    const std::vector<Contestant>& contestants, int rounds, std::uint64_t seed);

// What this process has caused to be written since the constructor: the larger of what it passed to
// write calls and what the system counted against the medium (whole pages), so neither hides
// anything. From /proc/self/io; an error where the system does not offer it.
class WriteMeter {
 public:
  WriteMeter();
  absl::StatusOr<std::uint64_t> bytes() const;

 private:
  absl::StatusOr<std::uint64_t> passed_;
  absl::StatusOr<std::uint64_t> counted_;
};

std::uint64_t ResidentBytes();
// Highest resident size since the last ResetPeak, which says whether the system could reset it.
std::uint64_t PeakResidentBytes();
bool ResetPeak();

// What operator new holds in this program now, and the most it held since ResetHeapPeak.
std::uint64_t HeapBytes();
std::uint64_t HeapPeakBytes();
void ResetHeapPeak();

}  // namespace parkade::bench
