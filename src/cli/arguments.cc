#include "src/cli/arguments.h"

#include <map>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "parkade/identity.h"

namespace parkade {
namespace {

enum class Disk { kNever, kMay, kMust };

struct CommandSpec {
  CliCommand command = CliCommand::kHelp;
  Disk disk = Disk::kNever;
  std::size_t least = 0;  // operands
  std::size_t most = 0;
  absl::string_view operands = "";  // for the message when there are fewer
};

const std::map<std::string_view, CommandSpec>& Commands() {
  constexpr std::size_t kMany = 1u << 20;
  static const auto& commands = *new std::map<std::string_view, CommandSpec>{
      {"help", {CliCommand::kHelp, Disk::kMay, 0, kMany, ""}},
      {"ls", {CliCommand::kList, Disk::kMay, 0, 0, ""}},
      {"show", {CliCommand::kShow, Disk::kMay, 1, 1, "one conversation id"}},
      {"lookups", {CliCommand::kLookups, Disk::kNever, 0, 0, ""}},
      {"stats", {CliCommand::kStats, Disk::kMay, 0, 0, ""}},
      {"rm", {CliCommand::kForget, Disk::kMay, 1, kMany, "at least one conversation id"}},
      {"pin", {CliCommand::kPin, Disk::kMay, 1, 1, "one conversation id"}},
      {"unpin", {CliCommand::kUnpin, Disk::kMay, 1, 1, "one conversation id"}},
      {"verify", {CliCommand::kVerify, Disk::kMust, 0, 0, ""}},
      {"export", {CliCommand::kExport, Disk::kMust, 2, 2, "an id or name, and a file"}},
      {"import", {CliCommand::kImport, Disk::kMust, 1, 1, "a file"}}};
  return commands;
}

absl::Status Usage(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, "; see parkade --help"));
}

// Values as they were given, with the option's name for each number.
struct Numbers {
  std::string disk_gib;
  std::string disk_min_free_mib;
};

// Where the value of an option goes; nullptr: not an option with a value.
std::string* ValueOf(std::string_view option, CliArguments* arguments, Numbers* numbers) {
  if (option == "--url") return &arguments->url;
  if (option == "--api-key") return &arguments->api_key;
  if (option == "--disk") return &arguments->disk;
  if (option == "--disk-gib") return &numbers->disk_gib;
  if (option == "--disk-min-free-mib") return &numbers->disk_min_free_mib;
  return nullptr;
}

absl::Status TakeNumbers(const Numbers& numbers, CliArguments* arguments) {
  constexpr double kLeastGib = 0.1;
  constexpr double kMostGib = 1u << 20;
  constexpr std::uint64_t kMostMib = 1u << 30;
  if (!numbers.disk_gib.empty()) {
    double gib = 0;
    if (!absl::SimpleAtod(numbers.disk_gib, &gib) || !(gib >= kLeastGib && gib <= kMostGib)) {
      return Usage("--disk-gib is a number from 0.1 to 1048576");
    }
    arguments->disk_gib = gib;
  }
  if (!numbers.disk_min_free_mib.empty()) {
    std::uint64_t mib = 0;
    if (!absl::SimpleAtoi(numbers.disk_min_free_mib, &mib) || mib > kMostMib) {
      return Usage("--disk-min-free-mib is a whole number up to 1073741824");
    }
    arguments->disk_min_free_mib = mib;
  }
  return absl::OkStatus();
}

absl::Status TakeOperands(absl::string_view word, const CommandSpec& spec,
                          const std::vector<std::string>& operands, CliArguments* arguments) {
  if (operands.size() < spec.least) return Usage(absl::StrCat(word, " needs ", spec.operands));
  if (operands.size() > spec.most) {
    return Usage(absl::StrCat("'", operands[spec.most], "' is one argument too many"));
  }
  if (spec.command == CliCommand::kExport) arguments->id_or_name = operands[0];
  if (spec.command == CliCommand::kExport || spec.command == CliCommand::kImport) {
    arguments->file = operands.back();
    return arguments->file.empty() || operands[0].empty() ? Usage("an argument is empty")
                                                          : absl::OkStatus();
  }
  for (const std::string& id : operands) {
    if (!DigestFromHex(id).has_value()) {
      return Usage(absl::StrCat("'", id, "' is not an id of 32 hexadecimal digits"));
    }
  }
  arguments->ids = operands;
  return absl::OkStatus();
}

absl::Status Check(absl::string_view word, const Numbers& numbers,
                   const std::vector<std::string>& operands, CliArguments* arguments) {
  if (word.empty()) return Usage("name a command");
  const auto found = Commands().find(std::string_view(word.data(), word.size()));
  if (found == Commands().end()) return Usage(absl::StrCat("unknown command '", word, "'"));
  const CommandSpec& spec = found->second;
  arguments->command = spec.command;
  if (spec.command == CliCommand::kHelp) return absl::OkStatus();
  if (absl::Status s = TakeOperands(word, spec, operands, arguments); !s.ok()) return s;
  if (spec.disk == Disk::kMust && arguments->disk.empty()) {
    return Usage(absl::StrCat(word, " needs --disk PATH"));
  }
  if (spec.disk == Disk::kNever && !arguments->disk.empty()) {
    return Usage(absl::StrCat("--disk does not go with ", word, ": only a server knows"));
  }
  if (arguments->repair && spec.command != CliCommand::kVerify) {
    return Usage("--repair goes with verify only");
  }
  if (arguments->force && spec.command != CliCommand::kExport) {
    return Usage("--force goes with export only");
  }
  const bool numbered = !numbers.disk_gib.empty() || !numbers.disk_min_free_mib.empty();
  if (numbered && spec.command != CliCommand::kImport) {
    return Usage("--disk-gib and --disk-min-free-mib go with import only");
  }
  if (absl::Status s = TakeNumbers(numbers, arguments); !s.ok()) return s;
  if (arguments->url.rfind("http://", 0) != 0 && arguments->url.rfind("https://", 0) != 0) {
    return Usage("--url begins with http:// or https://");
  }
  while (arguments->url.back() == '/') arguments->url.pop_back();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CliArguments> ParseCliArguments(int argc, const char* const* argv) {
  CliArguments arguments;
  Numbers numbers;
  std::string command;
  std::vector<std::string> operands;
  bool options = true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::size_t equals = argument.find('=');
    const std::string option(argument.substr(0, equals));
    if (options && (argument == "-h" || argument == "--help")) {
      command = "help";
      break;
    }
    if (options && argument == "--") {
      options = false;
    } else if (std::string* value = ValueOf(option, &arguments, &numbers);
               options && value != nullptr) {
      if (equals == std::string_view::npos && i + 1 >= argc) {
        return Usage(absl::StrCat(option, " needs a value"));
      }
      *value = equals == std::string_view::npos ? argv[++i] : argument.substr(equals + 1);
      if (value->empty()) return Usage(absl::StrCat(option, " needs a value"));
    } else if (options && argument == "--json") {
      arguments.json = true;
    } else if (options && argument == "--repair") {
      arguments.repair = true;
    } else if (options && argument == "--force") {
      arguments.force = true;
    } else if (options && argument.substr(0, 1) == "-") {
      return Usage(absl::StrCat("unknown option '", option, "'"));
    } else if (command.empty()) {
      command = argument;
      if (!Commands().contains(argument)) {
        return Usage(absl::StrCat("unknown command '", option, "'"));
      }
    } else {
      operands.emplace_back(argument);
    }
  }
  if (absl::Status s = Check(command, numbers, operands, &arguments); !s.ok()) return s;
  return arguments;
}

std::string CliHelp() {
  return R"(parkade looks into the conversation cache of a parkade-server.

  parkade ls                      the conversations
  parkade show ID                 one conversation: stages, checkpoints, parks
  parkade stats                   tiers against their budgets, tokens reused and computed
  parkade rm ID...                forgets conversations
  parkade pin ID | unpin ID       keeps a conversation whatever the budgets, or not any more
  parkade lookups                 the last lookups, newest first
  parkade verify --disk PATH      reads and checks every byte of a disk tier
        --repair                  and removes what is damaged, rebuilds a lost catalogue
  parkade export ID|NAME FILE --disk PATH
                                  writes one conversation, all its stages, into a file
        --force                   also over a file of that name
  parkade import FILE --disk PATH
                                  checks such a file and stores its conversation
        --disk-gib N              the tier's budget, as given to the server (default: no limit)
        --disk-min-free-mib N     free space to leave (default: 4096)

  --url URL      the server (default: http://127.0.0.1:8080); no proxy is used
  --api-key KEY  as given to the server
  --disk PATH    the directory of a disk tier in place of a server; no server may hold it
  --json         one JSON value in place of tables
  -h, --help     this text

Exit status: 0 done, 1 something was found or failed, 2 usage.
)";
}

}  // namespace parkade
