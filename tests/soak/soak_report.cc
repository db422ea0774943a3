#include "tests/soak/soak_report.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace parkade::test {
namespace {

constexpr double kMinutes = 2;

}  // namespace

absl::Duration SoakTime() {
  const char* given = std::getenv("PARKADE_SOAK_MINUTES");
  return absl::Minutes(given == nullptr ? kMinutes : std::atof(given));
}

ProcessSample SampleProcess() {
  ProcessSample sample;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t number = 0;
    if (word == "RssAnon:" && status >> number) sample.anonymous_bytes = number << 10;
    if (word == "Threads:" && status >> number) sample.threads = number;
  }
  // Without the one that lists them.
  const auto open = std::filesystem::directory_iterator("/proc/self/fd");
  sample.descriptors = static_cast<std::uint64_t>(std::distance(begin(open), end(open))) - 1;
  return sample;
}

std::uint64_t Series::MaxOf(std::size_t begin_percent, std::size_t end_percent) const {
  const auto at = [this](std::size_t percent) {
    return values_.begin() + static_cast<std::ptrdiff_t>(values_.size() * percent / 100);
  };
  const auto largest = std::max_element(at(begin_percent), at(end_percent));
  return largest == at(end_percent) ? 0 : *largest;
}

void SoakReport::Add(const std::string& figure, const Series& series) {
  Add(figure + "_first", static_cast<double>(series.first()));
  Add(figure + "_early_max", static_cast<double>(series.early_max()));
  Add(figure + "_late_max", static_cast<double>(series.late_max()));
  Add(figure + "_last", static_cast<double>(series.last()));
}

bool SoakReport::Tell() const {
  std::string json = "{\"name\": \"" + name_ + "\", \"figures\": {";
  for (const auto& [figure, value] : figures_) {
    std::printf("  %-40s %18.15g\n", figure.c_str(), value);
    char number[40];
    std::snprintf(number, sizeof number, "%.15g", value);
    json += (json.back() == '{' ? "\"" : ", \"") + figure + "\": " + number;
  }
  json += "}}\n";
  const char* folder = std::getenv("PARKADE_SOAK_REPORT");
  if (folder == nullptr) return true;
  std::ofstream file(std::string(folder) + "/" + name_ + ".json");
  return static_cast<bool>(file << json << std::flush);
}

}  // namespace parkade::test
