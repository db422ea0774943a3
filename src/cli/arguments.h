// The command line of `parkade`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace parkade {

enum class CliCommand {
  kHelp,
  kList,
  kShow,
  kLookups,
  kStats,
  kForget,
  kPin,
  kUnpin,
  kVerify,
  kExport,
  kImport,
};

struct CliArguments {
  CliCommand command = CliCommand::kHelp;
  std::vector<std::string> ids;  // show, pin, unpin: one; rm: some. 32 hexadecimal digits each
  std::string id_or_name;        // export
  std::string file;              // export, import
  std::string url = "http://127.0.0.1:8080";
  std::string api_key;
  std::string disk;  // the directory; empty: a server is asked
  // import: what the tier may take and must leave, as the server is told; 0 GiB: all that is free.
  double disk_gib = 0;
  std::uint64_t disk_min_free_mib = 4096;
  bool repair = false;
  bool force = false;
  bool json = false;
};

// Checks everything that can be checked without a server. InvalidArgument with one line otherwise.
absl::StatusOr<CliArguments> ParseCliArguments(int argc, const char* const* argv);

std::string CliHelp();

}  // namespace parkade
