// The command line of parkade-bench.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace parkade::bench {

struct Arguments {
  bool list = false;
  std::vector<std::string> names;
  std::string directory;  // empty: the system's temporary folder
  double scale = 1;
  std::string json;  // file; empty: standard output
};

inline constexpr char kUsage[] =
    "usage: parkade-bench list\n"
    "       parkade-bench run NAME... [--dir PATH] [--scale F] [--json FILE]\n";

// InvalidArgument with one line for the user. `words` without the program's name.
absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& words);

}  // namespace parkade::bench
