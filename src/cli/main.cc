#include <cstdio>
#include <ctime>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "src/cli/arguments.h"
#include "src/cli/commands.h"
#include "src/cli/completion.h"
#include "src/cli/disk_access.h"
#include "src/cli/help_text.h"
#include "src/cli/http_client.h"
#include "src/cli/manual.h"
#include "src/cli/terminal.h"
#include "src/cli/transfer.h"
#include "src/cli/verify.h"
#include "src/server/key_file.h"

namespace parkade {
namespace {

CliOutcome RunCacheCommand(const CliArguments& arguments) {
  const CliView view{static_cast<double>(std::time(nullptr)), TerminalColumns()};
  if (arguments.disk.empty()) {
    return RunCacheCommand(arguments, MakeHttpCall(arguments.url, arguments.api_key), view);
  }
  const absl::StatusOr<HttpCall> call = OpenDiskApi(arguments.disk, arguments.key);
  if (!call.ok()) return {1, "", std::string(call.status().message())};
  return RunCacheCommand(arguments, *call, view);
}

CliOutcome Run(const CliArguments& arguments) {
  switch (arguments.command) {
    case CliCommand::kHelp:
      return {0, CliHelp(arguments.topic), ""};
    case CliCommand::kCompletion:
      return {0, CliCompletion(arguments.shell), ""};
    case CliCommand::kManual:
      return {0, CliManual(), ""};
    case CliCommand::kVerify:
      return RunVerify(arguments);
    case CliCommand::kExport:
      return RunExport(arguments);
    case CliCommand::kImport:
      return RunImport(arguments);
    default:
      return RunCacheCommand(arguments);
  }
}

}  // namespace
}  // namespace parkade

int main(int argc, char** argv) {
  absl::StatusOr<parkade::CliArguments> arguments = parkade::ParseCliArguments(argc, argv);
  absl::Status usable = arguments.status();
  if (usable.ok()) {
    absl::StatusOr<parkade::SharedSealKey> key = parkade::ReadKeyFile(arguments->key_file);
    usable = key.status();
    if (key.ok()) arguments->key = *std::move(key);
  }
  if (!usable.ok()) {
    std::fprintf(stderr, "parkade: %s\n", std::string(usable.message()).c_str());
    return 2;
  }
  const parkade::CliOutcome outcome = parkade::Run(*arguments);
  std::fwrite(outcome.out.data(), 1, outcome.out.size(), stdout);
  for (const absl::string_view line : absl::StrSplit(outcome.error, '\n', absl::SkipEmpty())) {
    std::fprintf(stderr, "parkade: %.*s\n", static_cast<int>(line.size()), line.data());
  }
  // A full disk or a closed pipe behind stdout.
  if (std::fflush(stdout) != 0 && outcome.exit_code == 0) return 1;
  return outcome.exit_code;
}
