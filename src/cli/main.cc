#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>

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

absl::Status ReadKeys(CliArguments* arguments) {
  absl::StatusOr<SharedSealKey> key = ReadKeyFile(arguments->key_file);
  if (!key.ok()) return key.status();
  arguments->key = arguments->file_key = *std::move(key);
  if (arguments->file_key_file.empty()) return absl::OkStatus();
  key = ReadKeyFile(arguments->file_key_file);
  if (key.ok()) arguments->file_key = *std::move(key);
  return key.status();
}

}  // namespace
}  // namespace parkade

int main(int argc, char** argv) {
  absl::StatusOr<parkade::CliArguments> arguments = parkade::ParseCliArguments(argc, argv);
  absl::Status usable = arguments.status();
  if (usable.ok()) usable = parkade::ReadKeys(&*arguments);
  if (!usable.ok()) {
    std::fprintf(stderr, "parkade: %s\n", std::string(usable.message()).c_str());
    return 2;
  }
  const parkade::CliOutcome outcome = parkade::Run(*arguments);
  errno = 0;
  const bool written =
      std::fwrite(outcome.out.data(), 1, outcome.out.size(), stdout) == outcome.out.size() &&
      std::fflush(stdout) == 0;
  const int error = errno;
  for (const absl::string_view line : absl::StrSplit(outcome.error, '\n', absl::SkipEmpty())) {
    std::fprintf(stderr, "parkade: %.*s\n", static_cast<int>(line.size()), line.data());
  }
  if (written) return outcome.exit_code;
  // A full disk behind stdout. Who reads through a pipe and has enough is no failure to tell of.
  if (error != EPIPE) std::fprintf(stderr, "parkade: can't write: %s\n", std::strerror(error));
  return outcome.exit_code != 0 ? outcome.exit_code : 1;
}
