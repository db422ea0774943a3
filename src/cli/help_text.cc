#include "src/cli/help_text.h"

#include <algorithm>

#include "src/cli/command_table.h"

namespace parkade {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kAboutColumn = 36;

// "  what          about", about on lines of its own where `what` is long.
std::string Entry(const std::string& what, std::string_view about) {
  std::string head = what;
  if (head.size() + 2 > kAboutColumn) head.append("\n");
  const std::size_t used = head.back() == '\n' ? 0 : head.size();
  head.append(kAboutColumn - used, ' ');
  const std::string text = CliParagraph(about, std::string(kAboutColumn, ' '), kColumns);
  return head + text.substr(std::min(text.size(), kAboutColumn));
}

std::string OptionEntry(std::string_view indent, const CliOption& option) {
  const std::string alias = option.name == "--help" ? "-h, " : "";
  return Entry(std::string(indent) + alias + CliSynopsis(option), option.about);
}

std::string AllCommands() {
  std::string out =
      "parkade looks into the conversation cache of a parkade-server, and changes it.\n\n";
  for (const CliCommandSpec& command : CliCommands()) {
    out.append(Entry("  parkade " + CliSynopsis(command), command.about));
    for (const CliOption& option : command.options) out.append(OptionEntry("        ", option));
  }
  out.append("\nOf several commands (parkade help COMMAND says of which):\n");
  for (const CliOption& option : CliSharedOptions()) out.append(OptionEntry("  ", option));
  out.append(
      "\nAn ID is the one that ls shows, or so many of its first digits, at least 4, that no other"
      "\nbegins with them."
      "\nExit status: 0 done, 1 something was found or failed, 2 usage.\n");
  return out;
}

std::string OneCommand(const CliCommandSpec& command) {
  std::string out = "parkade " + CliSynopsis(command) + "\n\n";
  out.append(CliParagraph(command.about, "  ", kColumns)).append("\n");
  for (const CliOption& option : CliOptionsOf(command)) out.append(OptionEntry("  ", option));
  for (const std::string_view detail : command.details) {
    out.append("\n").append(CliParagraph(detail, "  ", kColumns));
  }
  return out;
}

}  // namespace

std::string CliParagraph(std::string_view text, std::string_view indent, std::size_t columns) {
  if (columns == 0) columns = kColumns;
  std::string out;
  std::string line(indent);
  while (!text.empty()) {
    const std::size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    text = space == std::string_view::npos ? "" : text.substr(space + 1);
    if (word.empty()) continue;
    if (line.size() > indent.size() && line.size() + 1 + word.size() > columns) {
      out.append(line).append("\n");
      line = indent;
    }
    if (line.size() > indent.size()) line.append(" ");
    line.append(word);
  }
  return out.append(line).append("\n");
}

std::string CliHelp(std::string_view topic) {
  const CliCommandSpec* command = FindCliCommand(topic);
  return command == nullptr ? AllCommands() : OneCommand(*command);
}

}  // namespace parkade
