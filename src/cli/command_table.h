// Everything that `parkade` understands. Parsing, help, completion and the manual page come from
// this table alone, so that none of them can say something else than another.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace parkade {

enum class CliCommand {
  kHelp,
  kList,
  kShow,
  kLookups,
  kStats,
  kBudgets,
  kForget,
  kPin,
  kUnpin,
  kVerify,
  kExport,
  kImport,
  kCompletion,
  kManual,
};

// What a shell may offer for a word.
enum class CliValue { kAny, kFile, kFolder, kChoice, kCommand };

struct CliOption {
  std::string_view name = "";      // with its dashes
  std::string_view argument = "";  // what its value is called; empty: it has none
  std::string_view about = "";     // one line
  CliValue value = CliValue::kAny;
  std::vector<std::string_view> choices = {};  // of kChoice
  bool may_be_empty = false;                   // its value
};

struct CliOperand {
  std::string_view name = "";
  CliValue value = CliValue::kAny;
  std::vector<std::string_view> choices = {};
};

// What a command works on.
enum class CliPlace {
  kNowhere,
  kServer,
  kServerOrDisk,
  kDisk,
};

struct CliCommandSpec {
  CliCommand command = CliCommand::kHelp;
  std::string_view name = "";
  CliPlace place = CliPlace::kNowhere;
  std::size_t least = 0;                       // operands
  std::size_t most = 0;                        // more than there are names: the last one repeats
  std::vector<CliOperand> operands = {};       // by position
  std::string_view needs = "";                 // what is missing when there are fewer than `least`
  std::string_view about = "";                 // one line
  std::vector<CliOption> options = {};         // its own; see CliOptionsOf
  std::vector<std::string_view> details = {};  // paragraphs for help on it and the manual page
};

// In the order in which people read them.
const std::vector<CliCommandSpec>& CliCommands();
// Null: there is none of this name.
const CliCommandSpec* FindCliCommand(std::string_view name);

// Options that more than one command takes, --help the last.
const std::vector<CliOption>& CliSharedOptions();
// All that the command takes: its own, then shared ones.
std::vector<CliOption> CliOptionsOf(const CliCommandSpec& command);

// "export ID|NAME FILE --disk PATH"
std::string CliSynopsis(const CliCommandSpec& command);
// "--disk PATH"
std::string CliSynopsis(const CliOption& option);

}  // namespace parkade
