// parkade-bench: runs workloads and reports ratios. Exit 0: they ran, goals met or not; 1: one
// could not run; 2: wrong usage.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/numbers.h"
#include "tests/bench/arguments.h"
#include "tests/bench/report.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

std::uint64_t Seed() {
  std::uint64_t seed = 0;
  const char* given = std::getenv("PARKADE_SEED");
  if (given != nullptr && absl::SimpleAtoi(given, &seed)) return seed;
  return std::random_device()();
}

int List() {
  for (const Workload& workload : Workloads()) {
    std::printf("%-13s %s\n", std::string(workload.name).c_str(),
                std::string(workload.about).c_str());
  }
  return 0;
}

int Run(const Arguments& arguments) {
  BenchOptions options;
  options.directory = arguments.directory.empty() ? std::filesystem::temp_directory_path().string()
                                                  : arguments.directory;
  options.scale = arguments.scale;
  options.seed = Seed();
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error) {
    std::fprintf(stderr, "parkade-bench: %s: %s\n", options.directory.c_str(),
                 error.message().c_str());
    return 2;
  }
  std::ofstream json;
  if (!arguments.json.empty()) {
    json.open(arguments.json);
    if (!json) {
      std::fprintf(stderr, "parkade-bench: %s can't be written\n", arguments.json.c_str());
      return 2;
    }
  }
  std::printf("scale %g, PARKADE_SEED=%llu\n", options.scale,
              static_cast<unsigned long long>(options.seed));
  bool ran = true;
  for (const std::string& name : arguments.names) {
    const absl::StatusOr<Outcome> outcome = FindWorkload(name)->run(options);
    if (!outcome.ok()) {
      std::fprintf(stderr, "parkade-bench: %s: %s\n", name.c_str(),
                   std::string(outcome.status().message()).c_str());
      ran = false;
      continue;
    }
    std::printf("\n%s", Table(name, *outcome).c_str());
    const std::string line = JsonLine(name, *outcome);
    if (json.is_open()) {
      json << line << std::endl;
    } else {
      std::printf("%s\n", line.c_str());
    }
    std::fflush(stdout);
  }
  return ran && (!json.is_open() || json.good()) ? 0 : 1;
}

}  // namespace
}  // namespace parkade::bench

int main(int argc, char** argv) {
  using namespace parkade::bench;
  try {
    const auto arguments = ParseArguments({argv + 1, argv + argc});
    if (!arguments.ok()) {
      std::fprintf(stderr, "parkade-bench: %s\n%s",
                   std::string(arguments.status().message()).c_str(), kUsage);
      return 2;
    }
    return arguments->list ? List() : Run(*arguments);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "parkade-bench: %s\n", e.what());
    return 1;
  }
}
