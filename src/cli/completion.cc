#include "src/cli/completion.h"

#include <algorithm>
#include <vector>

#include "src/cli/command_table.h"

namespace parkade {
namespace {

std::string Joined(const std::vector<std::string_view>& words, std::string_view between) {
  std::string out;
  for (const std::string_view word : words) {
    if (!out.empty()) out.append(between);
    out.append(word);
  }
  return out;
}

// Every option of any command once.
std::vector<CliOption> AllOptions() {
  std::vector<CliOption> options = CliSharedOptions();
  for (const CliCommandSpec& command : CliCommands()) {
    for (const CliOption& option : command.options) {
      const bool known = std::any_of(options.begin(), options.end(), [&](const CliOption& other) {
        return other.name == option.name;
      });
      if (!known) options.push_back(option);
    }
  }
  return options;
}

std::vector<std::string_view> Names(const std::vector<CliOption>& options) {
  std::vector<std::string_view> names;
  for (const CliOption& option : options) names.push_back(option.name);
  return names;
}

std::vector<std::string_view> CommandNames() {
  std::vector<std::string_view> names;
  for (const CliCommandSpec& command : CliCommands()) names.push_back(command.name);
  return names;
}

// Text within single quotes of a shell.
std::string Quoted(std::string_view text, std::string_view escape_too = "") {
  std::string out = "'";
  for (const char c : text) {
    if (escape_too.find(c) != std::string_view::npos) out.push_back('\\');
    if (c == '\'') {
      out.append("'\\''");
    } else {
      out.push_back(c);
    }
  }
  return out + "'";
}

// ---- bash ----

// The line that offers what a value or an operand can be; empty: nothing is known.
std::string BashOffer(CliValue value, const std::vector<std::string_view>& choices) {
  switch (value) {
    case CliValue::kFile:
      return "_parkade_paths -f";
    case CliValue::kFolder:
      return "_parkade_paths -d";
    case CliValue::kChoice:
      return "_parkade_words " + Quoted(Joined(choices, " "));
    case CliValue::kCommand:
      return "_parkade_words " + Quoted(Joined(CommandNames(), " "));
    case CliValue::kAny:
      break;
  }
  return "";
}

constexpr char kBashHead[] = R"(# Completion of parkade for bash.
_parkade_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_parkade_paths() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
}
_parkade() {
  local cur=${COMP_WORDS[COMP_CWORD]} word command= option= plain= operands=0 i
  COMPREPLY=()
  # "--disk=PATH" comes as three words, "http://host" too.
  [[ $cur == = ]] && cur=
  [[ $cur == : || ${COMP_WORDS[COMP_CWORD - 1]} == : ]] && return
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    [[ $word == : ]] && ((i++)) && continue
    if [[ -n $option ]]; then
      [[ $word == = ]] || option=
      continue
    fi
    [[ $word == -- ]] && plain=1 && continue
    if [[ -z $plain && $word == -* ]]; then
      case $word in
        )";

constexpr char kBashMiddle[] = R"() option=$word ;;
      esac
    elif [[ -z $command ]]; then
      command=$word
    else
      ((operands++))
    fi
  done
  case $option in
)";

std::string BashOperands(const CliCommandSpec& command) {
  std::string out;
  for (std::size_t i = 0; i < command.operands.size(); ++i) {
    const std::string offer = BashOffer(command.operands[i].value, command.operands[i].choices);
    if (offer.empty()) continue;
    out.append("    " + std::string(command.name) + "/" + std::to_string(i) + ") " + offer +
               " ;;\n");
  }
  return out;
}

std::string Bash() {
  std::vector<std::string_view> with_value;
  std::string values;
  for (const CliOption& option : AllOptions()) {
    if (option.argument.empty()) continue;
    with_value.push_back(option.name);
    const std::string offer = BashOffer(option.value, option.choices);
    values.append("    " + std::string(option.name) + ") " + (offer.empty() ? "" : offer + "; ") +
                  "return ;;\n");
  }
  std::string options;
  std::string operands;
  for (const CliCommandSpec& command : CliCommands()) {
    options.append("      " + std::string(command.name) + ") _parkade_words " +
                   Quoted(Joined(Names(CliOptionsOf(command)), " ")) + " ;;\n");
    operands.append(BashOperands(command));
  }
  return kBashHead + Joined(with_value, " | ") + kBashMiddle + values + "  esac\n" +
         "  if [[ -z $plain && $cur == -* ]]; then\n    case $command in\n" + options +
         "      *) _parkade_words " + Quoted(Joined(Names(CliSharedOptions()), " ")) +
         " ;;\n    esac\n    return\n  fi\n"
         "  if [[ -z $command ]]; then\n    _parkade_words " +
         Quoted(Joined(CommandNames(), " ")) +
         "\n    return\n  fi\n  case $command/$operands in\n" + operands +
         "  esac\n}\ncomplete -F _parkade parkade\n";
}

// ---- zsh ----

constexpr char kZshSpecial[] = "[]:\\";

std::string ZshAction(CliValue value, const std::vector<std::string_view>& choices) {
  switch (value) {
    case CliValue::kFile:
      return "_files";
    case CliValue::kFolder:
      return "_files -/";
    case CliValue::kChoice:
      return "(" + Joined(choices, " ") + ")";
    case CliValue::kCommand:
      return "(" + Joined(CommandNames(), " ") + ")";
    case CliValue::kAny:
      break;
  }
  return " ";
}

// One specification of _arguments, in single quotes.
std::string ZshOption(const CliOption& option) {
  const std::string about = Quoted(option.about, kZshSpecial);
  const std::string begin =
      option.name == "--help" ? "'(-h --help)'{-h,--help}'[" : "'" + std::string(option.name) + "[";
  std::string out = begin + about.substr(1, about.size() - 2) + "]";
  if (!option.argument.empty()) {
    out.append(":" + std::string(option.argument) + ":" + ZshAction(option.value, option.choices));
  }
  return out + "'";
}

std::string ZshOperands(const CliCommandSpec& command) {
  std::string out;
  for (std::size_t i = 0; i < command.operands.size(); ++i) {
    const CliOperand& operand = command.operands[i];
    const bool repeats = i + 1 == command.operands.size() && command.most > i + 1;
    const std::string position = repeats ? "*" : std::to_string(i + 1);
    const std::string name = Quoted(operand.name, kZshSpecial);
    out.append(" \\\n        '" + position + ":" + name.substr(1, name.size() - 2) + ":" +
               ZshAction(operand.value, operand.choices) + "'");
  }
  return out;
}

std::string Zsh() {
  std::string out =
      "#compdef parkade\n# Completion of parkade for zsh.\n_parkade() {\n"
      "  local curcontext=$curcontext state line\n  typeset -A opt_args\n"
      "  local -a commands\n  commands=(\n";
  for (const CliCommandSpec& command : CliCommands()) {
    const std::string about = Quoted(command.about, kZshSpecial);
    out.append("    '" + std::string(command.name) + ":" + about.substr(1) + "\n");
  }
  out.append("  )\n  _arguments -C");
  for (const CliOption& option : CliSharedOptions()) out.append(" \\\n    " + ZshOption(option));
  out.append(
      " \\\n    '1: :->command' \\\n    '*:: :->rest'\n  case $state in\n"
      "    command) _describe command commands ;;\n    rest)\n      case $words[1] in\n");
  for (const CliCommandSpec& command : CliCommands()) {
    out.append("      " + std::string(command.name) + ")\n        _arguments");
    for (const CliOption& option : CliOptionsOf(command)) {
      out.append(" \\\n        " + ZshOption(option));
    }
    out.append(ZshOperands(command) + " ;;\n");
  }
  // Called as a file of $fpath it runs; sourced, it registers.
  return out +
         "      esac ;;\n  esac\n}\n"
         "if [[ $funcstack[1] == _parkade ]]; then\n  _parkade \"$@\"\nelse\n"
         "  compdef _parkade parkade\nfi\n";
}

// ---- fish ----

std::string FishValue(CliValue value, const std::vector<std::string_view>& choices) {
  switch (value) {
    case CliValue::kFile:
      return " -r -F";
    case CliValue::kFolder:
      return " -x -a '(__fish_complete_directories)'";
    case CliValue::kChoice:
      return " -x -a " + Quoted(Joined(choices, " "));
    case CliValue::kCommand:
      return " -x -a " + Quoted(Joined(CommandNames(), " "));
    case CliValue::kAny:
      break;
  }
  return " -x";
}

std::string FishOption(const std::string& condition, const CliOption& option) {
  std::string out =
      "complete -c parkade -n " + Quoted(condition) + " -l " + std::string(option.name.substr(2));
  if (option.name == "--help") out.append(" -s h");
  if (!option.argument.empty()) out.append(FishValue(option.value, option.choices));
  return out + " -d " + Quoted(option.about) + "\n";
}

std::string Fish() {
  std::string out = "# Completion of parkade for fish.\ncomplete -c parkade -f\n";
  for (const CliOption& option : CliSharedOptions()) {
    out.append(FishOption("__fish_use_subcommand", option));
  }
  for (const CliCommandSpec& command : CliCommands()) {
    const std::string name(command.name);
    const std::string condition = "__fish_seen_subcommand_from " + name;
    out.append("complete -c parkade -n __fish_use_subcommand -a " + name + " -d " +
               Quoted(command.about) + "\n");
    for (const CliOption& option : CliOptionsOf(command)) {
      out.append(FishOption(condition, option));
    }
    for (const CliOperand& operand : command.operands) {
      if (operand.value == CliValue::kAny) continue;
      const std::string what = operand.value == CliValue::kFile
                                   ? " -F"
                                   : FishValue(operand.value, operand.choices).substr(3);
      out.append("complete -c parkade -n " + Quoted(condition) + what + "\n");
    }
  }
  return out;
}

}  // namespace

std::string CliCompletion(std::string_view shell) {
  if (shell == "bash") return Bash();
  if (shell == "zsh") return Zsh();
  if (shell == "fish") return Fish();
  return "";
}

}  // namespace parkade
