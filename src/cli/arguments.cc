#include "src/cli/arguments.h"

#include <map>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "parkade/identity.h"

namespace parkade {
namespace {

const std::map<std::string_view, CliCommand>& Commands() {
  static const auto& commands = *new std::map<std::string_view, CliCommand>{
      {"help", CliCommand::kHelp},   {"ls", CliCommand::kList},
      {"show", CliCommand::kShow},   {"lookups", CliCommand::kLookups},
      {"stats", CliCommand::kStats}, {"verify", CliCommand::kVerify}};
  return commands;
}

absl::Status Usage(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, "; see parkade --help"));
}

// Where the value of an option goes; nullptr: not an option with a value.
std::string* ValueOf(std::string_view option, CliArguments* arguments) {
  if (option == "--url") return &arguments->url;
  if (option == "--api-key") return &arguments->api_key;
  if (option == "--disk") return &arguments->disk;
  return nullptr;
}

absl::Status Check(const std::optional<CliCommand>& command,
                   const std::vector<std::string>& operands, CliArguments* arguments) {
  if (!command.has_value()) return Usage("name a command");
  arguments->command = *command;
  if (*command == CliCommand::kHelp) return absl::OkStatus();
  if (*command == CliCommand::kShow) {
    if (operands.size() != 1) return Usage("show needs one conversation id");
    if (!DigestFromHex(operands[0]).has_value()) {
      return Usage(absl::StrCat("'", operands[0], "' is not an id of 32 hexadecimal digits"));
    }
    arguments->id = operands[0];
  } else if (!operands.empty()) {
    return Usage(absl::StrCat("'", operands[0], "' is one argument too many"));
  }
  const bool verify = *command == CliCommand::kVerify;
  if (verify && arguments->disk.empty()) return Usage("verify needs --disk PATH");
  if (!verify && !arguments->disk.empty()) return Usage("--disk goes with verify only");
  if (!verify && arguments->repair) return Usage("--repair goes with verify only");
  if (arguments->url.rfind("http://", 0) != 0 && arguments->url.rfind("https://", 0) != 0) {
    return Usage("--url begins with http:// or https://");
  }
  while (arguments->url.back() == '/') arguments->url.pop_back();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CliArguments> ParseCliArguments(int argc, const char* const* argv) {
  CliArguments arguments;
  std::optional<CliCommand> command;
  std::vector<std::string> operands;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::size_t equals = argument.find('=');
    const std::string option(argument.substr(0, equals));
    if (argument == "-h" || argument == "--help") {
      command = CliCommand::kHelp;
      break;
    }
    if (std::string* value = ValueOf(option, &arguments); value != nullptr) {
      if (equals == std::string_view::npos && i + 1 >= argc) {
        return Usage(absl::StrCat(option, " needs a value"));
      }
      *value = equals == std::string_view::npos ? argv[++i] : argument.substr(equals + 1);
      if (value->empty()) return Usage(absl::StrCat(option, " needs a value"));
    } else if (argument == "--json") {
      arguments.json = true;
    } else if (argument == "--repair") {
      arguments.repair = true;
    } else if (argument.substr(0, 1) == "-") {
      return Usage(absl::StrCat("unknown option '", option, "'"));
    } else if (!command.has_value()) {
      const auto found = Commands().find(argument);
      if (found == Commands().end()) return Usage(absl::StrCat("unknown command '", option, "'"));
      command = found->second;
    } else {
      operands.emplace_back(argument);
    }
  }
  if (absl::Status checked = Check(command, operands, &arguments); !checked.ok()) return checked;
  return arguments;
}

std::string CliHelp() {
  return R"(parkade looks into the conversation cache of a parkade-server.

  parkade ls                  the conversations
  parkade show ID             one conversation: stages, checkpoints, parks
  parkade lookups             the last lookups, newest first
  parkade stats               tiers against their budgets, tokens reused and computed
  parkade verify --disk PATH  reads and checks every byte of a disk tier; no server may hold it
        --repair              and removes what is damaged, rebuilds a lost catalogue

  --url URL      the server (default: http://127.0.0.1:8080); no proxy is used
  --api-key KEY  as given to the server
  --json         one JSON value in place of tables
  -h, --help     this text

Exit status: 0 done, 1 something was found or failed, 2 usage.
)";
}

}  // namespace parkade
