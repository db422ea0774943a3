#include "src/server/router.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace parkade {
namespace {

constexpr char kRouterPort[] = "LLAMA_SERVER_ROUTER_PORT";

class RouterTest : public testing::Test {
 protected:
  RouterTest() {
    char name[] = "/tmp/parkade_router_XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~RouterTest() override {
    unsetenv(kRouterPort);
    unsetenv(kRouterOptionsVariable);
    std::filesystem::remove_all(folder_);
  }

  std::string WriteFile(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }

  // What a child takes from the file that its environment names.
  ParsedFlags Child(const std::string& path) {
    setenv(kRouterPort, "8080", 1);
    setenv(kRouterOptionsVariable, path.c_str(), 1);
    EXPECT_TRUE(StartedByRouter());
    const char* argv[] = {"parkade-server", "--cache-ram", "0", "-m", "x.gguf"};
    absl::StatusOr<ParsedFlags> flags = ParseChildFlags(5, argv);
    EXPECT_TRUE(flags.ok()) << flags.status();
    EXPECT_EQ(getenv(kRouterOptionsVariable), nullptr);
    EXPECT_FALSE(StartedByRouter());
    EXPECT_EQ(flags->rest, (std::vector<std::string>{"parkade-server", "-m", "x.gguf"}));
    return *flags;
  }

  void ExpectIgnored(const std::string& path, const std::string& why) {
    const ParsedFlags flags = Child(path);
    ASSERT_EQ(flags.notices.size(), 1u) << path;
    EXPECT_EQ(flags.notices[0].rfind("warning: the router's options can't be read", 0), 0u);
    EXPECT_NE(flags.notices[0].find(why), std::string::npos) << flags.notices[0];
    EXPECT_EQ(flags.cache.ram_budget_bytes, 8192ull << 20);
    EXPECT_EQ(flags.disk.directory, "");
  }

  std::string folder_;
};

ParsedFlags Given() {
  ParsedFlags flags;
  flags.cache.ram_budget_bytes = 77ull << 20;
  flags.cache.ram_slots = 5;
  flags.cache.ram_min_free_bytes = 6ull << 20;
  flags.cache.min_tokens = 7;
  flags.disk.directory = "/a b#c = d";
  flags.disk.budget_bytes = 107374183;  // 0.1 GiB and a byte
  flags.disk.min_free_bytes = 9ull << 20;
  flags.disk.codec = CodecChoice::kZstd;
  return flags;
}

TEST_F(RouterTest, OptionsReachTheChild) {
  const std::string folder = folder_ + "/new/parkade";
  std::string path;
  {
    RouterOptions options(folder);
    path = options.path();
    EXPECT_EQ(getenv(kRouterOptionsVariable), path);
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/new"));
    ASSERT_TRUE(options.Write(Given()).ok());
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u);
    ASSERT_EQ(stat(folder.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);

    const ParsedFlags child = Child(path);
    const ParsedFlags given = Given();
    EXPECT_EQ(child.cache.ram_budget_bytes, given.cache.ram_budget_bytes);
    EXPECT_EQ(child.cache.ram_slots, given.cache.ram_slots);
    EXPECT_EQ(child.cache.ram_min_free_bytes, given.cache.ram_min_free_bytes);
    EXPECT_EQ(child.cache.min_tokens, given.cache.min_tokens);
    EXPECT_EQ(child.disk.directory, given.disk.directory);
    EXPECT_EQ(child.disk.budget_bytes, given.disk.budget_bytes);
    EXPECT_EQ(child.disk.min_free_bytes, given.disk.min_free_bytes);
    EXPECT_EQ(child.disk.codec, given.disk.codec);
    EXPECT_TRUE(child.notices.empty());
    EXPECT_FALSE(child.any_given);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(RouterTest, TheLeastBudgetReachesTheChild) {
  const char* argv[] = {"parkade-server", "--conversation-cache-disk", "/d",
                        "--conversation-cache-disk-gib", "0.1"};
  const absl::StatusOr<ParsedFlags> given = ParseFlags(5, argv);
  ASSERT_TRUE(given.ok()) << given.status();
  RouterOptions options(folder_);
  ASSERT_TRUE(options.Write(*given).ok());
  const ParsedFlags child = Child(options.path());
  EXPECT_TRUE(child.notices.empty());
  EXPECT_EQ(child.disk.directory, "/d");
  EXPECT_EQ(child.disk.budget_bytes, given->disk.budget_bytes);
}

TEST_F(RouterTest, EveryFlagIsInTheText) {
  const absl::StatusOr<std::string> text = FlagsText(ParsedFlags());
  ASSERT_TRUE(text.ok());
  std::size_t in_file = 0;
  for (const FlagSpec& flag : FlagTable()) {
    if (!flag.in_file) continue;
    ++in_file;
    const std::string line = std::string(flag.name) + " = " + std::string(flag.default_text) + "\n";
    EXPECT_NE(text->find(line), std::string::npos) << line << *text;
  }
  EXPECT_EQ(static_cast<std::size_t>(std::count(text->begin(), text->end(), '\n')), in_file);
}

TEST_F(RouterTest, DirectoriesThatTheFileCannotHoldAreRefused) {
  for (const char* directory : {" a", "a ", "a\nb", "a\t", "off"}) {
    ParsedFlags flags = Given();
    flags.disk.directory = directory;
    RouterOptions options(folder_);
    EXPECT_EQ(options.Write(flags).code(), absl::StatusCode::kInvalidArgument) << directory;
    EXPECT_FALSE(std::filesystem::exists(options.path()));
  }
}

TEST_F(RouterTest, AFileThatIsThereIsNotTaken) {
  RouterOptions options(folder_);
  std::ofstream(options.path()) << "mine";
  EXPECT_FALSE(options.Write(Given()).ok());
  std::ifstream file(options.path());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "mine");
}

TEST_F(RouterTest, FilesThatProveNothingAreIgnored) {
  const std::string text = *FlagsText(Given());
  const std::string good = WriteFile("good", text, 0600);
  EXPECT_EQ(Child(good).cache.ram_budget_bytes, 77ull << 20);
  ExpectIgnored(folder_ + "/missing", "missing");
  ExpectIgnored(WriteFile("readable", text, 0640), "is open to other users");
  ExpectIgnored(WriteFile("writable", text, 0602), "is open to other users");
  ExpectIgnored(folder_, "is not a plain file");
  ASSERT_EQ(symlink(good.c_str(), (folder_ + "/link").c_str()), 0);
  ExpectIgnored(folder_ + "/link", "link");
  ASSERT_EQ(mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  ExpectIgnored(folder_ + "/pipe", "is not a plain file");
  ExpectIgnored(WriteFile("wrong", "conversation-cache-mib = x\n", 0600), "wrong:1: ");
}

TEST_F(RouterTest, AnotherUsersFileIsIgnored) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const std::string path = WriteFile("foreign", *FlagsText(Given()), 0600);
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  ExpectIgnored(path, "belongs to another user");
}

TEST_F(RouterTest, OnlyBothVariablesMakeAChild) {
  EXPECT_FALSE(StartedByRouter());
  setenv(kRouterPort, "0", 1);
  EXPECT_FALSE(StartedByRouter());
  unsetenv(kRouterPort);
  setenv(kRouterOptionsVariable, "x", 1);
  EXPECT_FALSE(StartedByRouter());
}

TEST_F(RouterTest, DirectoryHoldsOnlyModels) {
  const std::string directory = folder_ + "/tiers";
  EXPECT_TRUE(CheckRouterDirectory(directory).ok());
  EXPECT_FALSE(std::filesystem::exists(directory));
  std::filesystem::create_directories(directory + "/0123456789abcdef0123456789abcdef");
  std::filesystem::create_directory(directory + "/lost+found");
  EXPECT_TRUE(CheckRouterDirectory(directory).ok());
  std::ofstream(directory + "/VERSION") << "x";
  const absl::Status foreign = CheckRouterDirectory(directory);
  EXPECT_EQ(foreign.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(foreign.message().find("VERSION"), absl::string_view::npos) << foreign;

  EXPECT_NE(CheckRouterDirectory(directory + "/VERSION").message().find("is not a directory"),
            absl::string_view::npos);
  ASSERT_EQ(symlink(folder_.c_str(), (folder_ + "/link").c_str()), 0);
  EXPECT_NE(CheckRouterDirectory(folder_ + "/link").message().find("symbolic link"),
            absl::string_view::npos);
}

TEST_F(RouterTest, CacheFolderIsWhereTheUserSaysAndPrivate) {
  const std::string before = getenv("HOME") == nullptr ? "" : getenv("HOME");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(CacheFolder(), "/x/parkade");
  setenv("XDG_CACHE_HOME", "", 1);
  setenv("HOME", "/h", 1);
  EXPECT_EQ(CacheFolder(), "/h/.cache/parkade");
  unsetenv("HOME");
  EXPECT_EQ(CacheFolder(), "");
  setenv("HOME", before.c_str(), 1);
  setenv("TMPDIR", folder_.c_str(), 1);
  EXPECT_EQ(RouterOptions("").path().rfind(folder_ + "/router-", 0), 0u);
  unsetenv("TMPDIR");
  EXPECT_TRUE(MakeFolder(folder_ + "/a/b").ok());
  EXPECT_TRUE(MakeFolder(folder_ + "/a/b").ok());
  struct stat info {};
  ASSERT_EQ(stat((folder_ + "/a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  EXPECT_FALSE(MakeFolder("/proc/parkade/x").ok());
}

}  // namespace
}  // namespace parkade
