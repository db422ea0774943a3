#include "src/cli/manual.h"

#include <string_view>

#include "absl/strings/ascii.h"
#include "src/cli/command_table.h"

namespace parkade {
namespace {

// Words as they are shown. A hyphen is one that can be copied; no line is a request.
std::string Shown(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '-') {
      out.append("\\-");
    } else if (c == '\\') {
      out.append("\\e");
    } else {
      out.push_back(c);
    }
  }
  if (!out.empty() && (out[0] == '.' || out[0] == '\'')) out.insert(0, "\\&");
  return out;
}

// The same as a sentence.
std::string Sentence(std::string_view text) {
  std::string out = Shown(text);
  out[0] = absl::ascii_toupper(static_cast<unsigned char>(out[0]));
  return out + ".\n";
}

// As the argument of a macro.
std::string Argument(std::string_view text) {
  std::string out = "\"";
  for (const char c : Shown(text)) {
    if (c == '"') {
      out.append("\\(dq");
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

std::string OptionEntry(const CliOption& option) {
  std::string out = ".TP\n.B " + Argument(option.name);
  if (option.name == "--help") out = ".TP\n.B " + Argument("-h, --help");
  if (!option.argument.empty()) {
    out = ".TP\n.BI " + Argument(std::string(option.name) + " ") + " " + Argument(option.argument);
  }
  return out + "\n" + Sentence(option.about);
}

std::string CommandEntry(const CliCommandSpec& command) {
  std::string out = ".SS " + Argument("parkade " + CliSynopsis(command)) + "\n";
  out.append(Sentence(command.about));
  for (const std::string_view detail : command.details) {
    out.append(".PP\n").append(Shown(detail)).append("\n");
  }
  for (const CliOption& option : command.options) out.append(OptionEntry(option));
  std::string shared;
  for (const CliOption& option : CliOptionsOf(command)) {
    bool own = false;
    for (const CliOption& other : command.options) own = own || other.name == option.name;
    if (!own) shared.append(shared.empty() ? "" : ", ").append(Shown(option.name));
  }
  return out + ".PP\nAlso takes " + shared + ".\n";
}

}  // namespace

std::string CliManual() {
  std::string out =
      ".TH PARKADE 1 \"\" \"parkade " PARKADE_VERSION
      "\" \"User Commands\"\n"
      ".SH NAME\nparkade \\- looks into the conversation cache of a parkade\\-server\n"
      ".SH SYNOPSIS\n.B parkade\n.I command\n.RI [ options ]\n"
      ".SH DESCRIPTION\n"
      "parkade\\-server keeps the state of conversations in RAM and on disk, so that none is read\n"
      "twice. This tool shows what is kept and why something was read again, and changes it: at a\n"
      "running server, or, where no server holds it, in the directory of a disk tier.\n.PP\n"
      "An ID is the one that\n.B ls\nshows, or so many of its first digits, at least 4, that no\n"
      "other begins with them.\n"
      ".SH COMMANDS\n";
  for (const CliCommandSpec& command : CliCommands()) out.append(CommandEntry(command));
  out.append(".SH OPTIONS\nOf several commands:\n");
  for (const CliOption& option : CliSharedOptions()) out.append(OptionEntry(option));
  out.append(
      ".SH EXIT STATUS\n.TP\n.B 0\nDone.\n.TP\n.B 1\nSomething was found, or failed.\n"
      ".TP\n.B 2\nUsage.\n"
      ".SH ENVIRONMENT\n.TP\n.B COLUMNS\n"
      "Width of tables where the output is no terminal. Unset: no limit.\n"
      ".SH EXAMPLES\n.nf\n"
      "parkade ls \\-\\-by rank \\-\\-limit 10\n"
      "parkade lookups \\-\\-why \\-\\-limit 1\n"
      "parkade pin 6f1c90aa \\-\\-name work\n"
      "parkade stats \\-\\-json | jq .metrics\n"
      "parkade verify \\-\\-disk ~/.cache/parkade/tiers\n.fi\n");
  return out;
}

}  // namespace parkade
