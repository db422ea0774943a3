#include "src/cli/command_table.h"

#include <iterator>
#include <utility>

namespace parkade {
namespace {

constexpr std::size_t kMany = 1u << 20;

std::vector<CliCommandSpec> CommandsThatLook() {
  return {
      {.command = CliCommand::kList,
       .name = "ls",
       .place = CliPlace::kServerOrDisk,
       .about = "the conversations, the last used first",
       .options = {{.name = "--by",
                    .argument = "ORDER",
                    .about = "used, rank, size, tokens, hits or id (default: used)",
                    .value = CliValue::kChoice,
                    .choices = {"used", "rank", "size", "tokens", "hits", "id"}},
                   {.name = "--limit", .argument = "N", .about = "only the first N of them"}},
       .details = {"RANK says what is evicted next: 0 goes first, pinned ones come last. With "
                   "--by rank they stand in that order.",
                   "Where the table is wider than the terminal, ids are shortened, then columns "
                   "are left out. A shortened id will do wherever an id is asked for."}},
      {.command = CliCommand::kShow,
       .name = "show",
       .place = CliPlace::kServerOrDisk,
       .least = 1,
       .most = 1,
       .operands = {{.name = "ID"}},
       .needs = "one conversation id",
       .about = "one conversation: stages, checkpoints, parks"},
      {.command = CliCommand::kStats,
       .name = "stats",
       .place = CliPlace::kServerOrDisk,
       .about = "tiers against their budgets; what the cache saved, and from which tier",
       .details = {"STATE of a tier: up (it reads and writes), read_only (it gives what it holds "
                   "and stores nothing until there is space again) or down (neither, until it can "
                   "be opened again). The reason follows."}},
      {.command = CliCommand::kLookups,
       .name = "lookups",
       .place = CliPlace::kServer,
       .about = "the last lookups, newest first: what was reused, why not more",
       .options = {{.name = "--limit",
                    .argument = "N",
                    .about = "so many of them, 1 to 1000 (default: 50, with --why 5)"},
                   {.name = "--why",
                    .about = "says in sentences what was read again, why, and what helps"}},
       .details = {"parkade lookups --why --limit 1 says why the last prompt was read again."}},
  };
}

std::vector<CliCommandSpec> CommandsThatChange() {
  return {
      {.command = CliCommand::kBudgets,
       .name = "budgets",
       .place = CliPlace::kServer,
       .about = "the tiers' budgets; with options, new ones at once",
       .options = {{.name = "--ram-mib",
                    .argument = "N",
                    .about = "of RAM, buffers and index included; 0: no images there"},
                   {.name = "--disk-gib", .argument = "N", .about = "of the disk tier"}},
       .details = {"A smaller budget evicts what is not in use. What is set here holds until the "
                   "server ends."}},
      {.command = CliCommand::kForget,
       .name = "rm",
       .place = CliPlace::kServerOrDisk,
       .least = 1,
       .most = kMany,
       .operands = {{.name = "ID"}},
       .needs = "at least one conversation id",
       .about = "forgets conversations, in every tier",
       .details = {"What a fork stands on stays, hidden, until the fork goes."}},
      {.command = CliCommand::kPin,
       .name = "pin",
       .place = CliPlace::kServerOrDisk,
       .least = 1,
       .most = 1,
       .operands = {{.name = "ID"}},
       .needs = "one conversation id",
       .about = "keeps a conversation whatever the budgets",
       .options = {{.name = "--name",
                    .argument = "NAME",
                    .about = "and gives it this name; empty: takes its name away",
                    .may_be_empty = true}}},
      {.command = CliCommand::kUnpin,
       .name = "unpin",
       .place = CliPlace::kServerOrDisk,
       .least = 1,
       .most = 1,
       .operands = {{.name = "ID"}},
       .needs = "one conversation id",
       .about = "lets a conversation go when its turn comes"},
  };
}

std::vector<CliCommandSpec> CommandsOnFiles() {
  return {
      {.command = CliCommand::kVerify,
       .name = "verify",
       .place = CliPlace::kDisk,
       .about = "reads and checks every byte of a disk tier",
       .options = {{.name = "--repair",
                    .about = "and removes what is damaged, rebuilds a lost catalogue"}},
       .details = {"Ends with 1 when it found something, repaired or not."}},
      {.command = CliCommand::kExport,
       .name = "export",
       .place = CliPlace::kDisk,
       .least = 2,
       .most = 2,
       .operands = {{.name = "ID|NAME"}, {.name = "FILE", .value = CliValue::kFile}},
       .needs = "an id or name, and a file",
       .about = "writes one conversation, all its stages, into a file",
       .options = {{.name = "--force", .about = "also over a file of that name"},
                   {.name = "--file-key",
                    .argument = "FILE",
                    .about = "encrypts the file with this key (default: --key-file)",
                    .value = CliValue::kFile}}},
      {.command = CliCommand::kImport,
       .name = "import",
       .place = CliPlace::kDisk,
       .least = 1,
       .most = 1,
       .operands = {{.name = "FILE", .value = CliValue::kFile}},
       .needs = "a file",
       .about = "checks such a file and stores its conversation",
       .options = {{.name = "--disk-gib",
                    .argument = "N",
                    .about = "the tier's budget, as given to the server (default: no limit)"},
                   {.name = "--disk-min-free-mib",
                    .argument = "N",
                    .about = "free space to leave (default: 4096)"},
                   {.name = "--file-key",
                    .argument = "FILE",
                    .about = "the key of an encrypted file (default: --key-file)",
                    .value = CliValue::kFile}}},
  };
}

std::vector<CliCommandSpec> CommandsAboutItself() {
  return {
      {.command = CliCommand::kCompletion,
       .name = "completion",
       .least = 1,
       .most = 1,
       .operands = {{.name = "bash|zsh|fish",
                     .value = CliValue::kChoice,
                     .choices = {"bash", "zsh", "fish"}}},
       .needs = "bash, zsh or fish",
       .about = "a script that completes this tool's words in a shell",
       .details = {"bash: eval \"$(parkade completion bash)\"",
                   "zsh: parkade completion zsh > _parkade, in a folder of $fpath",
                   "fish: parkade completion fish | source"}},
      {.command = CliCommand::kManual,
       .name = "man",
       .about = "the manual page: parkade man | man -l -"},
      {.command = CliCommand::kHelp,
       .name = "help",
       .most = 1,
       .operands = {{.name = "[COMMAND]", .value = CliValue::kCommand}},
       .about = "all commands, or one of them"},
  };
}

}  // namespace

const std::vector<CliCommandSpec>& CliCommands() {
  static const auto& commands = *[] {
    auto* all = new std::vector<CliCommandSpec>;
    for (auto part : {CommandsThatLook, CommandsThatChange, CommandsOnFiles, CommandsAboutItself}) {
      std::vector<CliCommandSpec> some = part();
      all->insert(all->end(), std::make_move_iterator(some.begin()),
                  std::make_move_iterator(some.end()));
    }
    return all;
  }();
  return commands;
}

const CliCommandSpec* FindCliCommand(std::string_view name) {
  for (const CliCommandSpec& command : CliCommands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

const std::vector<CliOption>& CliSharedOptions() {
  static const auto& options = *new std::vector<CliOption>{
      {.name = "--url",
       .argument = "URL",
       .about = "the server (default: http://127.0.0.1:8080); no proxy is used"},
      {.name = "--api-key", .argument = "KEY", .about = "as given to the server"},
      {.name = "--disk",
       .argument = "PATH",
       .about = "the directory of a disk tier, which no server may hold",
       .value = CliValue::kFolder},
      {.name = "--key-file",
       .argument = "FILE",
       .about = "the key of an encrypted directory, as given to the server",
       .value = CliValue::kFile},
      {.name = "--json", .about = "one JSON value in place of tables"},
      {.name = "--help", .about = "what the command does and takes"}};
  return options;
}

std::vector<CliOption> CliOptionsOf(const CliCommandSpec& command) {
  std::vector<CliOption> options = command.options;
  for (const CliOption& shared : CliSharedOptions()) {
    const bool of_server = shared.name == "--url" || shared.name == "--api-key";
    bool taken = true;
    if (of_server) {
      taken = command.place == CliPlace::kServer || command.place == CliPlace::kServerOrDisk;
    } else if (shared.name == "--disk" || shared.name == "--key-file") {
      taken = command.place == CliPlace::kDisk || command.place == CliPlace::kServerOrDisk;
    } else if (shared.name == "--json") {
      taken = command.place != CliPlace::kNowhere;
    }
    if (taken) options.push_back(shared);
  }
  return options;
}

std::string CliSynopsis(const CliCommandSpec& command) {
  std::string out(command.name);
  for (const CliOperand& operand : command.operands) out.append(" ").append(operand.name);
  if (command.most > command.operands.size()) out.append("...");
  if (command.place == CliPlace::kDisk) out.append(" --disk PATH");
  return out;
}

std::string CliSynopsis(const CliOption& option) {
  std::string out(option.name);
  if (!option.argument.empty()) out.append(" ").append(option.argument);
  return out;
}

}  // namespace parkade
