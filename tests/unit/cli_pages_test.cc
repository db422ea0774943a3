// Help, completion and the manual page: each has every command and option of the table, and is what
// the programs that read it take.

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/cli/command_table.h"
#include "src/cli/completion.h"
#include "src/cli/help_text.h"
#include "src/cli/manual.h"

namespace parkade {
namespace {

struct Ran {
  int status = 0;
  std::string out;  // stdout and stderr
};

Ran Shell(const std::string& command) {
  Ran ran;
  std::FILE* pipe = ::popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  char piece[4096];
  for (std::size_t got = 0; (got = std::fread(piece, 1, sizeof(piece), pipe)) > 0;) {
    ran.out.append(piece, got);
  }
  const int status = ::pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

bool Installed(const std::string& program) { return Shell("command -v " + program).status == 0; }

// A file of its own, gone at the end.
class TextFile {
 public:
  explicit TextFile(const std::string& text) {
    const int fd = ::mkstemp(path_);
    EXPECT_GE(fd, 0);
    ::close(fd);
    std::ofstream(path_) << text;
  }
  ~TextFile() { ::unlink(path_); }
  std::string path() const { return path_; }

 private:
  char path_[40] = "/tmp/parkade-pages-XXXXXX";
};

std::set<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  std::set<std::string> words;
  for (std::string word; in >> word;) words.insert(word);
  return words;
}

std::set<std::string> OptionNames(const CliCommandSpec& command) {
  std::set<std::string> names;
  for (const CliOption& option : CliOptionsOf(command)) names.emplace(option.name);
  return names;
}

std::set<std::string> CommandNames() {
  std::set<std::string> names;
  for (const CliCommandSpec& command : CliCommands()) names.emplace(command.name);
  return names;
}

TEST(CliPages, HelpNamesEveryCommandAndOption) {
  const std::string help = CliHelp("");
  for (const CliCommandSpec& command : CliCommands()) {
    EXPECT_NE(help.find("\n  parkade " + CliSynopsis(command)), std::string::npos) << command.name;
    EXPECT_NE(command.about, "");
    const std::string own = CliHelp(command.name);
    EXPECT_EQ(own.rfind("parkade " + CliSynopsis(command) + "\n", 0), 0u) << own;
    for (const CliOption& option : CliOptionsOf(command)) {
      EXPECT_NE(option.about, "");
      for (const std::string& text : {help, own}) {
        EXPECT_NE(text.find(CliSynopsis(option)), std::string::npos) << option.name;
      }
    }
  }
  for (const char* words : {"export ID|NAME FILE --disk PATH", "import FILE --disk PATH",
                            "rm ID...", "help [COMMAND]", "pin ID", "lookups"}) {
    EXPECT_NE(help.find(words), std::string::npos) << words;
  }
}

TEST(CliPages, HelpFitsAHundredColumns) {
  std::vector<std::string> texts = {CliHelp("")};
  for (const CliCommandSpec& command : CliCommands()) texts.push_back(CliHelp(command.name));
  for (const std::string& text : texts) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

// Bash with the script sourced; each line of `words` is one command line, its last word the one
// that is completed, "|" between the words. Returns what is offered for each.
std::vector<std::set<std::string>> CompleteInBash(const std::vector<std::string>& lines) {
  std::string script = CliCompletion("bash");
  for (const std::string& line : lines) {
    // The line's end ends its last word, which may be empty.
    script += "IFS='|' read -ra COMP_WORDS <<< '" + line +
              "|'\n"
              "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _parkade; "
              "printf '%s ' \"${COMPREPLY[@]}\"; echo\n";
  }
  const TextFile file(script);
  const Ran ran = Shell("bash --norc " + file.path());
  EXPECT_EQ(ran.status, 0) << ran.out;
  std::vector<std::set<std::string>> offered;
  std::istringstream in(ran.out);
  for (std::string line; std::getline(in, line);) offered.push_back(Words(line));
  EXPECT_EQ(offered.size(), lines.size()) << ran.out;
  offered.resize(lines.size());
  return offered;
}

TEST(CliPages, BashOffersEveryCommandAndOption) {
  if (!Installed("bash")) GTEST_SKIP() << "bash is not installed";
  std::vector<std::string> lines = {"parkade|"};
  for (const CliCommandSpec& command : CliCommands()) {
    const std::string name(command.name);
    lines.push_back("parkade|" + name + "|--");
    // An option before the command, its value in three words.
    lines.push_back("parkade|--url|http|:|//h|:|1|" + name + "|--");
  }
  const auto offered = CompleteInBash(lines);
  EXPECT_EQ(offered[0], CommandNames());
  std::size_t at = 1;
  for (const CliCommandSpec& command : CliCommands()) {
    EXPECT_EQ(offered[at++], OptionNames(command)) << command.name;
    EXPECT_EQ(offered[at++], OptionNames(command)) << command.name;
  }
}

TEST(CliPages, BashOffersWhatValuesAndOperandsCanBe) {
  if (!Installed("bash")) GTEST_SKIP() << "bash is not installed";
  char folder[] = "/tmp/parkade-pages-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string root = folder;
  ASSERT_EQ(Shell("mkdir " + root + "/tier && touch " + root + "/file").status, 0);
  const std::set<std::string> both = {root + "/tier", root + "/file"};
  const std::set<std::string> tier = {root + "/tier"};
  const std::set<std::string> none;
  const std::vector<std::pair<std::string, std::set<std::string>>> cases = {
      {"parkade|st", {"stats"}},
      {"parkade|ls|--b", {"--by"}},
      {"parkade|ls|--by|", {"used", "rank", "size", "tokens", "hits", "id"}},
      {"parkade|ls|--by|r", {"rank"}},
      {"parkade|ls|--by|=", {"used", "rank", "size", "tokens", "hits", "id"}},
      {"parkade|ls|--by|=|r", {"rank"}},
      {"parkade|ls|--limit|", none},
      {"parkade|ls|--url|http|:", none},
      {"parkade|ls|--url|http|:|//", none},
      {"parkade|help|", CommandNames()},
      {"parkade|completion|", {"bash", "zsh", "fish"}},
      {"parkade|verify|--disk|" + root + "/", tier},
      {"parkade|--disk|" + root + "/", tier},
      {"parkade|import|" + root + "/", both},
      {"parkade|export|" + root + "/", none},
      {"parkade|export|some|" + root + "/", both},
      {"parkade|export|--disk|d|some|" + root + "/", both},
      {"parkade|export|--|--force|" + root + "/", both},
      {"parkade|ls|" + root + "/", none},
  };
  std::vector<std::string> lines;
  for (const auto& [line, wanted] : cases) lines.push_back(line);
  const auto offered = CompleteInBash(lines);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(offered[i], cases[i].second) << cases[i].first;
  }
  EXPECT_EQ(Shell("rm -r " + root).status, 0);
}

TEST(CliPages, ZshAndFishScriptsHaveEverything) {
  const std::string zsh = CliCompletion("zsh");
  const std::string fish = CliCompletion("fish");
  for (const CliCommandSpec& command : CliCommands()) {
    const std::string name(command.name);
    EXPECT_NE(zsh.find("\n    '" + name + ":"), std::string::npos) << name;
    EXPECT_NE(fish.find("__fish_use_subcommand -a " + name + " -d "), std::string::npos) << name;
    const std::size_t begin = zsh.find("\n      " + name + ")\n");
    ASSERT_NE(begin, std::string::npos) << name;
    const std::string branch = zsh.substr(begin, zsh.find(";;", begin) - begin);
    for (const CliOption& option : CliOptionsOf(command)) {
      const std::string word =
          option.name == "--help" ? "{-h,--help}'[" : "'" + std::string(option.name) + "[";
      EXPECT_NE(branch.find(word), std::string::npos) << name << " " << option.name;
      EXPECT_NE(fish.find("'__fish_seen_subcommand_from " + name + "' -l " +
                          std::string(option.name.substr(2)) + " "),
                std::string::npos)
          << name << " " << option.name;
    }
  }
  EXPECT_EQ(CliCompletion("sh"), "");
}

TEST(CliPages, ZshTakesItsScript) {
  if (!Installed("zsh")) GTEST_SKIP() << "zsh is not installed";
  const TextFile file(CliCompletion("zsh"));
  const Ran ran = Shell("zsh -n " + file.path());
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out, "");
}

TEST(CliPages, FishTakesItsScript) {
  if (!Installed("fish")) GTEST_SKIP() << "fish is not installed";
  const TextFile file(CliCompletion("fish"));
  const Ran checked = Shell("fish --no-execute " + file.path());
  EXPECT_EQ(checked.status, 0);
  EXPECT_EQ(checked.out, "");
  std::string asked = "source " + file.path() + "\n";
  for (const CliCommandSpec& command : CliCommands()) {
    asked += "complete -C 'parkade " + std::string(command.name) + " --'\necho END\n";
  }
  const TextFile questions(asked);
  const Ran ran = Shell("fish --no-config " + questions.path());
  std::istringstream in(ran.out);
  for (const CliCommandSpec& command : CliCommands()) {
    std::set<std::string> offered;
    for (std::string line; std::getline(in, line) && line != "END";) {
      offered.insert(line.substr(0, line.find('\t')));
    }
    EXPECT_EQ(offered, OptionNames(command)) << command.name;
  }
}

TEST(CliPages, TheManualHasEverything) {
  const std::string manual = CliManual();
  const auto shown = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('-', at)) != std::string::npos; at += 2) {
      text.replace(at, 1, "\\-");
    }
    return text;
  };
  for (const CliCommandSpec& command : CliCommands()) {
    const std::size_t begin = manual.find(".SS \"parkade " + shown(CliSynopsis(command)) + "\"\n");
    ASSERT_NE(begin, std::string::npos) << command.name;
    const std::string section = manual.substr(begin, manual.find("\n.S", begin) - begin);
    for (const CliOption& option : CliOptionsOf(command)) {
      EXPECT_NE(section.find(shown(std::string(option.name))), std::string::npos)
          << command.name << " " << option.name;
    }
  }
}

TEST(CliPages, TheManualIsSoundRoff) {
  const TextFile file(CliManual());
  bool checked = false;
  if (Installed("groff")) {
    const Ran ran = Shell("groff -ww -man -Tutf8 " + file.path() + " > /dev/null");
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.status, 0);
    checked = true;
  }
  if (Installed("man") &&
      Shell("man -l " + file.path()).out.find("EXIT STATUS") != std::string::npos) {
    const Ran ran = Shell("man -l --warnings " + file.path() + " > /dev/null");
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.status, 0);
    checked = true;
  }
  if (!checked) GTEST_SKIP() << "neither groff nor man is installed";
}

}  // namespace
}  // namespace parkade
