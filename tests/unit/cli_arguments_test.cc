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
  EXPECT_EQ(show->id, kId);
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
  EXPECT_EQ(ErrorOf({"ls", "--disk", "x"}), "--disk goes with verify only" + see);
  EXPECT_EQ(ErrorOf({"stats", "--repair"}), "--repair goes with verify only" + see);
}

TEST(CliArguments, HelpNamesEveryCommandAndOption) {
  const std::string help = CliHelp();
  for (const char* word : {"ls", "show ID", "lookups", "stats", "verify --disk PATH", "--repair",
                           "--url URL", "--api-key KEY", "--json"}) {
    EXPECT_NE(help.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace parkade
