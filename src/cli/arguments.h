// The command line of `parkade`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/cli/command_table.h"
#include "src/format/sealing.h"

namespace parkade {

// Of an id that people shorten: fewer digits would name another one by a slip of a finger.
inline constexpr std::size_t kLeastIdDigits = 4;
inline constexpr std::size_t kIdDigits = 32;

struct CliArguments {
  CliCommand command = CliCommand::kHelp;
  std::string topic;  // help: a command's name, or empty
  // show, pin, unpin: one; rm: some. kLeastIdDigits to 32 hexadecimal digits each, small letters.
  std::vector<std::string> ids;
  std::string id_or_name;  // export
  std::string file;        // export, import
  std::string shell;       // completion
  std::string url = "http://127.0.0.1:8080";
  std::string api_key;
  std::string disk;      // the directory; empty: a server is asked
  std::string key_file;  // of that directory; empty: it is not encrypted
  SharedSealKey key;     // what that file holds; read by main
  // export, import: of the file; empty: key_file.
  std::string file_key_file;
  SharedSealKey file_key;  // read by main
  // import: what the tier may take and must leave, as the server is told; none: all that is free.
  // budgets: new ones; none: as it is.
  std::optional<double> disk_gib;
  std::uint64_t disk_min_free_mib = 4096;
  std::optional<double> ram_mib;
  std::optional<std::uint32_t> limit;  // ls, lookups
  std::string by = "used";             // ls
  std::optional<std::string> name;     // pin
  bool why = false;
  bool repair = false;
  bool force = false;
  bool json = false;
};

// Checks everything that can be checked without a server. InvalidArgument with one line otherwise.
absl::StatusOr<CliArguments> ParseCliArguments(int argc, const char* const* argv);

}  // namespace parkade
