#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "src/cli/arguments.h"

namespace parkade {
namespace {

const char kId[] = "0123456789abcdef0123456789abcdef";

absl::StatusOr<CliArguments> Parse(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"parkade"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return ParseCliArguments(static_cast<int>(argv.size()), argv.data());
}

std::string ErrorOf(const std::vector<std::string>& words) {
  const auto arguments = Parse(words);
  return arguments.ok() ? "OK" : std::string(arguments.status().message());
}

TEST(CliArguments, Commands) {
  EXPECT_EQ(Parse({"ls"})->command, CliCommand::kList);
  EXPECT_EQ(Parse({"lookups"})->command, CliCommand::kLookups);
  EXPECT_EQ(Parse({"stats"})->command, CliCommand::kStats);
  EXPECT_EQ(Parse({"help"})->command, CliCommand::kHelp);
  EXPECT_EQ(Parse({"ls", "--what", "--help"}).ok(), false);
  EXPECT_EQ(Parse({"ls", "--help", "--what"})->command, CliCommand::kHelp);
  const auto show = Parse({"--url", "https://h:1//", "show", kId, "--api-key=k=1", "--json"});
  ASSERT_TRUE(show.ok()) << show.status();
  EXPECT_EQ(show->command, CliCommand::kShow);
  EXPECT_EQ(show->ids, std::vector<std::string>{kId});
  EXPECT_EQ(show->url, "https://h:1");
  EXPECT_EQ(show->api_key, "k=1");
  EXPECT_TRUE(show->json);
  const auto verify = Parse({"verify", "--disk=/a b", "--repair"});
  ASSERT_TRUE(verify.ok()) << verify.status();
  EXPECT_EQ(verify->command, CliCommand::kVerify);
  EXPECT_EQ(verify->disk, "/a b");
  EXPECT_TRUE(verify->repair);
  EXPECT_EQ(Parse({"ls"})->url, "http://127.0.0.1:8080");
}

TEST(CliArguments, CommandsThatChangeSomething) {
  const auto forget = Parse({"rm", kId, kId, "--disk", "d"});
  ASSERT_TRUE(forget.ok()) << forget.status();
  EXPECT_EQ(forget->command, CliCommand::kForget);
  EXPECT_EQ(forget->ids.size(), 2u);
  EXPECT_EQ(forget->disk, "d");
  EXPECT_EQ(Parse({"pin", kId})->command, CliCommand::kPin);
  EXPECT_EQ(Parse({"unpin", kId})->command, CliCommand::kUnpin);
  const auto exported = Parse({"export", "my chat", "f", "--disk=d", "--force"});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->command, CliCommand::kExport);
  EXPECT_EQ(exported->id_or_name, "my chat");
  EXPECT_EQ(exported->file, "f");
  EXPECT_TRUE(exported->force);
  const auto imported =
      Parse({"import", "f", "--disk=d", "--disk-gib=1.5", "--disk-min-free-mib", "0"});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->command, CliCommand::kImport);
  EXPECT_EQ(imported->file, "f");
  EXPECT_EQ(imported->disk_gib, 1.5);
  EXPECT_EQ(imported->disk_min_free_mib, 0u);
  EXPECT_EQ(Parse({"import", "f", "--disk=d"})->disk_min_free_mib, 4096u);
  // A name may look like an option.
  EXPECT_EQ(Parse({"export", "--disk=d", "--", "--force", "-f"})->id_or_name, "--force");
}

TEST(CliArguments, WhatIsAskedOfAServer) {
  const auto budgets = Parse({"budgets", "--ram-mib", "0", "--disk-gib=2.5"});
  ASSERT_TRUE(budgets.ok()) << budgets.status();
  EXPECT_EQ(budgets->command, CliCommand::kBudgets);
  EXPECT_EQ(budgets->ram_mib, 0);
  EXPECT_EQ(budgets->disk_gib, 2.5);
  EXPECT_EQ(Parse({"budgets"})->ram_mib, std::nullopt);
  const auto pin = Parse({"pin", kId, "--name", "my chat"});
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ(pin->name, "my chat");
  EXPECT_EQ(Parse({"pin", kId, "--name="})->name, "");
  EXPECT_EQ(Parse({"pin", kId})->name, std::nullopt);
  const auto lookups = Parse({"lookups", "--why", "--limit", "3"});
  ASSERT_TRUE(lookups.ok()) << lookups.status();
  EXPECT_TRUE(lookups->why);
  EXPECT_EQ(lookups->limit, 3u);
  EXPECT_EQ(Parse({"ls", "--by", "rank"})->by, "rank");
  EXPECT_EQ(Parse({"ls"})->by, "used");
  EXPECT_EQ(Parse({"help", "ls"})->topic, "ls");
  EXPECT_EQ(Parse({"ls", "-h"})->topic, "ls");
  EXPECT_EQ(Parse({"completion", "zsh"})->shell, "zsh");
  EXPECT_EQ(Parse({"man"})->command, CliCommand::kManual);
}

TEST(CliArguments, UsageErrors) {
  const std::string see = "; see parkade --help";
  EXPECT_EQ(ErrorOf({}), "name a command" + see);
  EXPECT_EQ(ErrorOf({"lss"}), "unknown command 'lss'" + see);
  EXPECT_EQ(ErrorOf({"ls", "-x"}), "unknown option '-x'" + see);
  EXPECT_EQ(ErrorOf({"ls", "--url"}), "--url needs a value" + see);
  EXPECT_EQ(ErrorOf({"ls", "--url="}), "--url needs a value" + see);
  EXPECT_EQ(ErrorOf({"ls", "--url", "h:1"}), "--url begins with http:// or https://" + see);
  EXPECT_EQ(ErrorOf({"ls", "more"}), "'more' is one argument too many" + see);
  EXPECT_EQ(ErrorOf({"show"}), "show needs one conversation id" + see);
  EXPECT_EQ(ErrorOf({"show", "123"}), "'123' is no id: 4 to 32 hexadecimal digits" + see);
  EXPECT_EQ(ErrorOf({"show", "12345g"}), "'12345g' is no id: 4 to 32 hexadecimal digits" + see);
  EXPECT_EQ(ErrorOf({"show", kId + std::string("0")}),
            "'" + std::string(kId) + "0' is no id: 4 to 32 hexadecimal digits" + see);
  EXPECT_EQ(ErrorOf({"verify"}), "verify needs --disk PATH" + see);
  EXPECT_EQ(ErrorOf({"rm"}), "rm needs at least one conversation id" + see);
  EXPECT_EQ(ErrorOf({"rm", kId, "12"}), "'12' is no id: 4 to 32 hexadecimal digits" + see);
  EXPECT_EQ(ErrorOf({"pin", kId, kId}),
            "'" + std::string(kId) + "' is one argument too many" + see);
  EXPECT_EQ(ErrorOf({"export", "x", "--disk=d"}), "export needs an id or name, and a file" + see);
  EXPECT_EQ(ErrorOf({"export", "x", "f"}), "export needs --disk PATH" + see);
  EXPECT_EQ(ErrorOf({"export", "", "f", "--disk=d"}), "an argument is empty" + see);
  EXPECT_EQ(ErrorOf({"import", "--disk=d"}), "import needs a file" + see);
  EXPECT_EQ(ErrorOf({"import", "f"}), "import needs --disk PATH" + see);
  EXPECT_EQ(ErrorOf({"import", "f", "--disk=d", "--force"}), "--force goes with export only" + see);
  for (const char* gib : {"0", "0.09", "nan", "-1", "x", "1e9"}) {
    EXPECT_EQ(ErrorOf({"import", "f", "--disk=d", "--disk-gib", gib}),
              "--disk-gib is a number from 0.1 to 1048576" + see);
  }
  EXPECT_EQ(ErrorOf({"import", "f", "--disk=d", "--disk-min-free-mib", "-1"}),
            "--disk-min-free-mib is a whole number up to 1073741824" + see);
  EXPECT_EQ(ErrorOf({"ls", "--disk-gib", "1"}),
            "--disk-gib goes with budgets and import only" + see);
  EXPECT_EQ(ErrorOf({"budgets", "--disk-min-free-mib", "1"}),
            "--disk-min-free-mib goes with import only" + see);
  EXPECT_EQ(ErrorOf({"budgets", "--ram-mib", "-1"}),
            "--ram-mib is a number from 0 to 1073741824" + see);
  for (const char* limit : {"0", "1001", "x", "1.5", "-1"}) {
    EXPECT_EQ(ErrorOf({"lookups", "--limit", limit}),
              "--limit is a whole number from 1 to 1000" + see);
  }
  EXPECT_EQ(ErrorOf({"ls", "--by", "age"}),
            "--by is one of used, rank, size, tokens, hits, id" + see);
  EXPECT_EQ(ErrorOf({"ls", "--json=yes"}), "--json takes no value" + see);
  EXPECT_EQ(ErrorOf({"verify", "--disk", "d", "--url", "http://h"}),
            "--url does not go with verify: it works on a directory" + see);
  EXPECT_EQ(ErrorOf({"man", "--json"}), "--json does not go with man" + see);
  EXPECT_EQ(ErrorOf({"completion"}), "completion needs bash, zsh or fish" + see);
  EXPECT_EQ(ErrorOf({"completion", "sh"}), "'sh' is not bash, zsh or fish" + see);
  EXPECT_EQ(ErrorOf({"help", "lss"}), "unknown command 'lss'" + see);
  EXPECT_EQ(ErrorOf({"lookups", "--disk", "x"}),
            "--disk does not go with lookups: only a server knows" + see);
  EXPECT_EQ(ErrorOf({"stats", "--repair"}), "--repair goes with verify only" + see);
}

TEST(CliArguments, ShortenedIdsAreSmallLetters) {
  EXPECT_EQ(Parse({"show", "0123ABcd"})->ids, std::vector<std::string>{"0123abcd"});
  EXPECT_EQ(Parse({"rm", "0123", kId})->ids, (std::vector<std::string>{"0123", kId}));
}

TEST(CliArguments, AKeyIsOfADirectory) {
  EXPECT_EQ(ErrorOf({"ls", "--key-file", "f"}),
            "--key-file goes with --disk PATH; see parkade --help");
}

TEST(CliArguments, AnOptionIsNoValue) {
  EXPECT_EQ(ErrorOf({"budgets", "--disk-gib", "--url", "http://h"}),
            "--disk-gib needs a value; see parkade --help");
  EXPECT_EQ(ErrorOf({"pin", "--name=--url", kId}), "OK");
}

TEST(CliArguments, EveryOptionOfTheTableIsTaken) {
  const std::map<std::string_view, std::string> values = {
      {"ORDER", "rank"}, {"N", "7"},    {"URL", "http://h"}, {"KEY", "k"},
      {"PATH", "d"},     {"NAME", "n"}, {"FILE", "f"}};
  for (const CliCommandSpec& command : CliCommands()) {
    std::vector<std::string> words = {std::string(command.name)};
    for (std::size_t i = 0; i < command.least; ++i) {
      words.push_back(command.command == CliCommand::kCompletion ? "bash" : kId);
    }
    if (command.place == CliPlace::kDisk) words.insert(words.end(), {"--disk", "d"});
    EXPECT_EQ(ErrorOf(words), "OK") << command.name;
    for (const CliOption& option : CliOptionsOf(command)) {
      std::vector<std::string> more = words;
      more.emplace_back(option.name);
      if (!option.argument.empty()) more.push_back(values.at(option.argument));
      if (option.name == "--key-file") more.insert(more.end(), {"--disk", "d"});
      EXPECT_EQ(ErrorOf(more), "OK") << command.name << " " << option.name;
    }
  }
}

}  // namespace
}  // namespace parkade
