// The command line of `parkade`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace parkade {

enum class CliCommand { kHelp, kList, kShow, kLookups, kStats, kVerify };

struct CliArguments {
  CliCommand command = CliCommand::kHelp;
  std::string id;  // show: 32 hexadecimal digits
  std::string url = "http://127.0.0.1:8080";
  std::string api_key;
  std::string disk;  // verify: the directory
  bool repair = false;
  bool json = false;
};

// Checks everything that can be checked without a server. InvalidArgument with one line otherwise.
absl::StatusOr<CliArguments> ParseCliArguments(int argc, const char* const* argv);

std::string CliHelp();

}  // namespace parkade
