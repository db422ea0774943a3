#include <string>
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
  EXPECT_EQ(ErrorOf({"show", "12"}), "'12' is not an id of 32 hexadecimal digits" + see);
  EXPECT_EQ(ErrorOf({"verify"}), "verify needs --disk PATH" + see);
  EXPECT_EQ(ErrorOf({"rm"}), "rm needs at least one conversation id" + see);
  EXPECT_EQ(ErrorOf({"rm", kId, "12"}), "'12' is not an id of 32 hexadecimal digits" + see);
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
            "--disk-gib and --disk-min-free-mib go with import only" + see);
  EXPECT_EQ(ErrorOf({"lookups", "--disk", "x"}),
            "--disk does not go with lookups: only a server knows" + see);
  EXPECT_EQ(ErrorOf({"stats", "--repair"}), "--repair goes with verify only" + see);
}

TEST(CliArguments, HelpNamesEveryCommandAndOption) {
  const std::string help = CliHelp();
  for (const char* word :
       {"ls", "show ID", "lookups", "stats", "verify --disk PATH", "--repair", "rm ID", "pin ID",
        "unpin ID", "export ID|NAME FILE --disk PATH", "import FILE --disk PATH", "--force",
        "--disk-gib", "--disk-min-free-mib", "--disk PATH", "--url URL", "--api-key KEY",
        "--json"}) {
    EXPECT_NE(help.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace parkade
