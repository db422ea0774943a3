#include "src/cli/arguments.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace parkade {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Usage(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, "; see parkade --help"));
}

// What stood on the command line, as it was given.
struct Words {
  const CliCommandSpec* command = nullptr;
  std::map<std::string, std::string> options;  // switches have no value
  std::vector<std::string> operands;
  bool help = false;
};

// An option of any command; null: nobody takes it.
const CliOption* FindOption(std::string_view name) {
  for (const CliOption& option : CliSharedOptions()) {
    if (option.name == name) return &option;
  }
  for (const CliCommandSpec& command : CliCommands()) {
    for (const CliOption& option : command.options) {
      if (option.name == name) return &option;
    }
  }
  return nullptr;
}

bool Takes(const CliCommandSpec& command, std::string_view name) {
  const std::vector<CliOption> options = CliOptionsOf(command);
  return std::any_of(options.begin(), options.end(),
                     [name](const CliOption& option) { return option.name == name; });
}

absl::StatusOr<Words> Split(int argc, const char* const* argv) {
  Words words;
  bool options = true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (options && word == "--") {
      options = false;
      continue;
    }
    if (options && (word == "-h" || word == "--help")) {
      words.help = true;
      return words;
    }
    if (options && word.substr(0, 1) == "-") {
      const std::size_t equals = word.find('=');
      const std::string name(word.substr(0, equals));
      const CliOption* option = FindOption(name);
      if (option == nullptr) return Usage(absl::StrCat("unknown option '", name, "'"));
      std::string& value = words.options[name];
      if (option->argument.empty()) {
        if (equals != std::string_view::npos) return Usage(absl::StrCat(name, " takes no value"));
        continue;
      }
      if (equals == std::string_view::npos && i + 1 >= argc) {
        return Usage(absl::StrCat(name, " needs a value"));
      }
      // What is an option's name is no value: one was forgotten.
      if (equals == std::string_view::npos && FindOption(argv[i + 1]) != nullptr) {
        return Usage(absl::StrCat(name, " needs a value"));
      }
      value = equals == std::string_view::npos ? argv[++i] : std::string(word.substr(equals + 1));
      if (value.empty() && !option->may_be_empty) {
        return Usage(absl::StrCat(name, " needs a value"));
      }
    } else if (words.command == nullptr) {
      words.command = FindCliCommand(word);
      if (words.command == nullptr) {
        return Usage(absl::StrCat("unknown command '", View(word), "'"));
      }
    } else {
      words.operands.emplace_back(word);
    }
  }
  return words;
}

// The message for an option that the command does not take.
std::string WrongPlace(std::string_view option, const CliCommandSpec& command) {
  const std::string begin = absl::StrCat(View(option), " does not go with ", View(command.name));
  if (option == "--disk" && command.place == CliPlace::kServer) {
    return begin + ": only a server knows";
  }
  if (command.place == CliPlace::kDisk && (option == "--url" || option == "--api-key")) {
    return begin + ": it works on a directory";
  }
  std::vector<std::string> takers;
  for (const CliCommandSpec& other : CliCommands()) {
    if (Takes(other, option)) takers.emplace_back(other.name);
  }
  if (takers.size() > 3) return begin;
  return absl::StrCat(View(option), " goes with ", absl::StrJoin(takers, " and "), " only");
}

absl::Status NumberIn(const Words& words, const char* option, double least, double most, bool whole,
                      absl::string_view wanted, std::optional<double>* value) {
  const auto given = words.options.find(option);
  if (given == words.options.end()) return absl::OkStatus();
  double number = 0;
  std::uint64_t integer = 0;
  const bool read =
      whole ? absl::SimpleAtoi(given->second, &integer) : absl::SimpleAtod(given->second, &number);
  if (whole) number = static_cast<double>(integer);
  if (!read || !(number >= least && number <= most)) {
    return Usage(absl::StrCat(option, " is ", wanted));
  }
  *value = number;
  return absl::OkStatus();
}

absl::Status TakeNumbers(const Words& words, CliArguments* arguments) {
  constexpr double kMostMib = 1u << 30;
  std::optional<double> min_free_mib;
  std::optional<double> limit;
  absl::Status status = NumberIn(words, "--disk-gib", 0.1, 1u << 20, false,
                                 "a number from 0.1 to 1048576", &arguments->disk_gib);
  status.Update(NumberIn(words, "--ram-mib", 0, kMostMib, false, "a number from 0 to 1073741824",
                         &arguments->ram_mib));
  status.Update(NumberIn(words, "--disk-min-free-mib", 0, kMostMib, true,
                         "a whole number up to 1073741824", &min_free_mib));
  const bool of_lookups = words.command->command == CliCommand::kLookups;
  status.Update(
      NumberIn(words, "--limit", 1, of_lookups ? 1000 : 1e9, true,
               of_lookups ? "a whole number from 1 to 1000" : "a whole number from 1 to 1000000000",
               &limit));
  if (min_free_mib.has_value()) {
    arguments->disk_min_free_mib = static_cast<std::uint64_t>(*min_free_mib);
  }
  if (limit.has_value()) arguments->limit = static_cast<std::uint32_t>(*limit);
  return status;
}

absl::Status TakeTexts(const Words& words, CliArguments* arguments) {
  const auto text = [&words](const char* option, std::string* to) {
    const auto given = words.options.find(option);
    if (given != words.options.end()) *to = given->second;
  };
  text("--url", &arguments->url);
  text("--api-key", &arguments->api_key);
  text("--disk", &arguments->disk);
  text("--key-file", &arguments->key_file);
  text("--file-key", &arguments->file_key_file);
  text("--by", &arguments->by);
  if (words.options.contains("--name")) arguments->name = words.options.at("--name");
  arguments->json = words.options.contains("--json");
  arguments->why = words.options.contains("--why");
  arguments->repair = words.options.contains("--repair");
  arguments->force = words.options.contains("--force");
  for (const CliOption& option : words.command->options) {
    const auto given = words.options.find(std::string(option.name));
    if (option.value != CliValue::kChoice || given == words.options.end()) continue;
    if (std::find(option.choices.begin(), option.choices.end(), given->second) ==
        option.choices.end()) {
      const std::vector<std::string> choices(option.choices.begin(), option.choices.end());
      return Usage(absl::StrCat(given->first, " is one of ", absl::StrJoin(choices, ", ")));
    }
  }
  if (arguments->url.rfind("http://", 0) != 0 && arguments->url.rfind("https://", 0) != 0) {
    return Usage("--url begins with http:// or https://");
  }
  while (arguments->url.back() == '/') arguments->url.pop_back();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Ids(const std::vector<std::string>& operands) {
  std::vector<std::string> ids;
  for (const std::string& operand : operands) {
    const bool hexadecimal = std::all_of(operand.begin(), operand.end(), [](char c) {
      return absl::ascii_isxdigit(static_cast<unsigned char>(c));
    });
    if (!hexadecimal || operand.size() < kLeastIdDigits || operand.size() > kIdDigits) {
      return Usage(absl::StrCat("'", operand, "' is no id: ", kLeastIdDigits, " to ", kIdDigits,
                                " hexadecimal digits"));
    }
    ids.push_back(absl::AsciiStrToLower(operand));
  }
  return ids;
}

absl::Status TakeOperands(const Words& words, CliArguments* arguments) {
  const CliCommandSpec& command = *words.command;
  const std::vector<std::string>& operands = words.operands;
  if (operands.size() < command.least) {
    return Usage(absl::StrCat(View(command.name), " needs ", View(command.needs)));
  }
  if (operands.size() > command.most) {
    return Usage(absl::StrCat("'", operands[command.most], "' is one argument too many"));
  }
  if (std::any_of(operands.begin(), operands.end(), [](const auto& o) { return o.empty(); })) {
    return Usage("an argument is empty");
  }
  if (command.command == CliCommand::kHelp) {
    if (operands.empty()) return absl::OkStatus();
    arguments->topic = operands[0];
    if (FindCliCommand(operands[0]) != nullptr) return absl::OkStatus();
    return Usage(absl::StrCat("unknown command '", operands[0], "'"));
  }
  if (command.command == CliCommand::kCompletion) {
    const std::vector<std::string_view>& shells = command.operands[0].choices;
    arguments->shell = operands[0];
    if (std::find(shells.begin(), shells.end(), operands[0]) != shells.end()) {
      return absl::OkStatus();
    }
    return Usage(absl::StrCat("'", operands[0], "' is not ", View(command.needs)));
  }
  if (command.command == CliCommand::kExport) arguments->id_or_name = operands[0];
  if (command.command == CliCommand::kExport || command.command == CliCommand::kImport) {
    arguments->file = operands.back();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> ids = Ids(operands);
  if (!ids.ok()) return ids.status();
  arguments->ids = *std::move(ids);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CliArguments> ParseCliArguments(int argc, const char* const* argv) {
  const absl::StatusOr<Words> words = Split(argc, argv);
  if (!words.ok()) return words.status();
  CliArguments arguments;
  if (words->help) {
    if (words->command != nullptr) arguments.topic = std::string(words->command->name);
    return arguments;
  }
  if (words->command == nullptr) return Usage("name a command");
  const CliCommandSpec& command = *words->command;
  arguments.command = command.command;
  if (absl::Status s = TakeOperands(*words, &arguments); !s.ok()) return s;
  if (command.place == CliPlace::kDisk && !words->options.contains("--disk")) {
    return Usage(absl::StrCat(View(command.name), " needs --disk PATH"));
  }
  if (words->options.contains("--key-file") && !words->options.contains("--disk")) {
    return Usage("--key-file goes with --disk PATH");
  }
  for (const auto& [option, value] : words->options) {
    if (!Takes(command, option)) return Usage(WrongPlace(option, command));
  }
  if (absl::Status s = TakeNumbers(*words, &arguments); !s.ok()) return s;
  if (absl::Status s = TakeTexts(*words, &arguments); !s.ok()) return s;
  return arguments;
}

}  // namespace parkade
