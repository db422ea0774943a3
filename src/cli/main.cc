#include <cstdio>
#include <ctime>

#include "src/cli/arguments.h"
#include "src/cli/commands.h"
#include "src/cli/http_client.h"
#include "src/cli/verify.h"

int main(int argc, char** argv) {
  const absl::StatusOr<parkade::CliArguments> arguments = parkade::ParseCliArguments(argc, argv);
  if (!arguments.ok()) {
    std::fprintf(stderr, "parkade: %s\n", std::string(arguments.status().message()).c_str());
    return 2;
  }
  parkade::CliOutcome outcome;
  if (arguments->command == parkade::CliCommand::kHelp) {
    outcome.out = parkade::CliHelp();
  } else if (arguments->command == parkade::CliCommand::kVerify) {
    outcome = parkade::RunVerify(*arguments);
  } else {
    outcome = parkade::RunServerCommand(*arguments,
                                        parkade::MakeHttpGet(arguments->url, arguments->api_key),
                                        static_cast<double>(std::time(nullptr)));
  }
  std::fwrite(outcome.out.data(), 1, outcome.out.size(), stdout);
  if (!outcome.error.empty()) std::fprintf(stderr, "parkade: %s\n", outcome.error.c_str());
  // A full disk or a closed pipe behind stdout.
  if (std::fflush(stdout) != 0 && outcome.exit_code == 0) return 1;
  return outcome.exit_code;
}
