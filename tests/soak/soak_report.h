// How long a soak lasts, what its process holds meanwhile, and what it says in the end.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace parkade::test {

// PARKADE_SOAK_MINUTES, which both soaks read; a few where nobody says.
absl::Duration SoakTime();

// What this process holds now.
struct ProcessSample {
  std::uint64_t anonymous_bytes = 0;  // resident
  std::uint64_t descriptors = 0;
  std::uint64_t threads = 0;
};
ProcessSample SampleProcess();

// A quantity over the time of a soak: it may wander, but not grow.
class Series {
 public:
  void Add(std::uint64_t value) { values_.push_back(value); }
  std::size_t count() const { return values_.size(); }
  std::uint64_t first() const { return values_.empty() ? 0 : values_.front(); }
  std::uint64_t last() const { return values_.empty() ? 0 : values_.back(); }
  // Of the first and of the last quarter, after the warm-up: the first twentieth. 0 of too few.
  std::uint64_t early_max() const { return MaxOf(5, 29); }
  std::uint64_t late_max() const { return MaxOf(76, 100); }

 private:
  std::uint64_t MaxOf(std::size_t begin_percent, std::size_t end_percent) const;

  std::vector<std::uint64_t> values_;
};

// Figures in the order in which they came.
class SoakReport {
 public:
  explicit SoakReport(std::string name) : name_(std::move(name)) {}

  void Add(std::string figure, double value) { figures_.emplace_back(std::move(figure), value); }
  void Add(const std::string& figure, const Series& series);
  // Prints a table, and writes NAME.json into the folder that PARKADE_SOAK_REPORT names, if any.
  // False: that could not be written.
  bool Tell() const;

 private:
  const std::string name_;
  std::vector<std::pair<std::string, double>> figures_;
};

}  // namespace parkade::test
