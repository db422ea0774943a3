// What parkade_open makes of a remote tier and of a key: two engines with one Redis.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/redis_server.h"
#include "tests/support/test_root.h"
#include "tests/unit/capi_engine.h"

namespace parkade::test {
namespace {

class CapiRemoteTest : public ::testing::Test {
 protected:
  CapiRemoteTest() : folder_(DiskTestRoot() + "/parkade-capi-XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~CapiRemoteTest() override { std::filesystem::remove_all(folder_); }

  std::string WriteFile(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    return path;
  }

  static parkade_cache_options Options() {
    parkade_cache_options options;
    parkade_cache_options_init(&options, sizeof(options));
    options.ram_mib = 128;
    options.ram_min_free_mib = 0;
    options.disk_mib = 256;
    options.disk_min_free_mib = 0;
    return options;
  }

  static parkade_cache* Open(const parkade_cache_options& options) {
    parkade_cache* cache = nullptr;
    EXPECT_EQ(parkade_open(&options, &cache), PARKADE_OK) << parkade_last_error();
    return cache;
  }

  std::string folder_;
};

TEST_F(CapiRemoteTest, AnotherMachineGoesOn) {
  if (!RedisMissing().empty()) GTEST_SKIP() << RedisMissing();
  RedisServer redis({"--requirepass", "secret"});
  const std::string password = WriteFile("password", "secret\n");
  const std::string url = "redis://@file:" + password + "@" + redis.address() + "/engines";
  parkade_cache_options options = Options();
  options.remote_url = url.c_str();
  const std::string key = WriteFile("key", std::string(64, 'a'));
  options.key_file = key.c_str();
  const auto tokens = CTokens(1, 700);
  std::string id;
  {
    parkade_cache* cache = Open(options);
    {
      CEngine engine(cache, {.model = MakeCModel(2, 1, 1), .stages = {{0, 1}, {2, 3}}});
      engine.Decode(tokens);
      id = engine.ParkAll(tokens);
    }
    EXPECT_EQ(parkade_drain(cache, 30000), PARKADE_OK) << parkade_last_error();
    parkade_close(cache);
  }
  parkade_cache* cache = Open(options);
  {
    CEngine engine(cache, {MakeCModel(2, 1, 1)});
    auto prompt = tokens;
    prompt.push_back(7);
    const parkade_lookup_result result = engine.Restore(prompt);
    EXPECT_EQ(result.hit_tokens[PARKADE_REMOTE], 700u);
    EXPECT_STREQ(result.miss_reason, "new");
    parkade_stats stats = {};
    stats.struct_size = sizeof(stats);
    EXPECT_EQ(parkade_get_stats(cache, &stats), PARKADE_OK);
    EXPECT_EQ(stats.hit_tokens[PARKADE_REMOTE], 700u);
    EXPECT_EQ(stats.budget_bytes[PARKADE_REMOTE], 0u);
  }
  parkade_close(cache);
  // Who has no key reads nothing.
  options.key_file = nullptr;
  cache = Open(options);
  {
    CEngine engine(cache, {MakeCModel(2, 1, 1)});
    auto prompt = tokens;
    prompt.push_back(7);
    EXPECT_EQ(engine.Restore(prompt).reused_tokens, 0u);
  }
  parkade_close(cache);
}

TEST_F(CapiRemoteTest, DirectoryKeepsItsKey) {
  const std::string disk = folder_ + "/disk";
  const std::string first = WriteFile("first", std::string(64, 'a'));
  const std::string second = WriteFile("second", std::string(64, 'b'));
  parkade_cache_options options = Options();
  options.disk_directory = disk.c_str();
  options.key_file = first.c_str();
  const auto tokens = CTokens(1, 300);
  auto prompt = tokens;
  prompt.push_back(7);
  parkade_cache* cache = Open(options);
  {
    CEngine engine(cache, {MakeCModel(2)});
    engine.Decode(tokens);
    engine.ParkAll(tokens);
  }
  parkade_close(std::exchange(cache, nullptr));
  for (const char* wrong : {second.c_str(), ""}) {
    options.key_file = wrong;
    EXPECT_EQ(parkade_open(&options, &cache), PARKADE_FAILED_PRECONDITION);
    EXPECT_NE(std::string(parkade_last_error()).find(disk), std::string::npos);
  }
  options.key_file = first.c_str();
  cache = Open(options);
  {
    CEngine engine(cache, {MakeCModel(2)});
    EXPECT_EQ(engine.Restore(prompt).hit_tokens[PARKADE_DISK], 300u);
  }
  parkade_close(cache);
}

}  // namespace
}  // namespace parkade::test
