// What parkade-bench runs: workloads that measure their own reference in the same run and report
// ratios, so that one figure means the same on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace parkade::bench {

struct BenchOptions {
  std::string directory;  // exists; a workload works in a folder of its own below it
  double scale = 1;       // sizes, not goals; (0, 1]
  std::uint64_t seed = 0;
};

struct Goal {
  enum class Kind { kAtMost, kAtLeast };
  std::string figure;
  Kind kind = Kind::kAtMost;
  double bound = 0;
};

struct Outcome {
  std::vector<std::pair<std::string, double>> figures;  // in the order they are shown
  std::vector<Goal> goals;
  std::vector<std::string> notes;  // for people: sizes, what could not be measured and why

  void Add(std::string figure, double value);
  void AtMost(std::string figure, double bound);
  void AtLeast(std::string figure, double bound);
  // False when a figure with a goal is missing, too.
  bool Meets(const Goal& goal) const;
  bool MeetsAll() const;
  // nullptr: no such figure.
  const double* Find(std::string_view figure) const;
};

struct Workload {
  std::string_view name;
  std::string_view about;
  // An error: the workload could not run. A goal that is missed is no error.
  absl::StatusOr<Outcome> (*run)(const BenchOptions& options);
};

const std::vector<Workload>& Workloads();
const Workload* FindWorkload(std::string_view name);

absl::StatusOr<Outcome> RunApi(const BenchOptions& options);
absl::StatusOr<Outcome> RunChurn(const BenchOptions& options);
absl::StatusOr<Outcome> RunSequential(const BenchOptions& options);
absl::StatusOr<Outcome> RunSealed(const BenchOptions& options);
absl::StatusOr<Outcome> RunRebuild(const BenchOptions& options);
absl::StatusOr<Outcome> RunSplit(const BenchOptions& options);
absl::StatusOr<Outcome> RunCapture(const BenchOptions& options);
absl::StatusOr<Outcome> RunLookup(const BenchOptions& options);
absl::StatusOr<Outcome> RunOverhead(const BenchOptions& options);
absl::StatusOr<Outcome> RunRemote(const BenchOptions& options);
absl::StatusOr<Outcome> RunRemoteLookup(const BenchOptions& options);
absl::StatusOr<Outcome> RunRemotePaused(const BenchOptions& options);
absl::StatusOr<Outcome> RunRestart(const BenchOptions& options);
absl::StatusOr<Outcome> RunEngine(const BenchOptions& options);
absl::StatusOr<Outcome> RunEngineRam(const BenchOptions& options);
absl::StatusOr<Outcome> RunResume(const BenchOptions& options);
absl::StatusOr<Outcome> RunStages(const BenchOptions& options);
absl::StatusOr<Outcome> RunCopy(const BenchOptions& options);

}  // namespace parkade::bench
