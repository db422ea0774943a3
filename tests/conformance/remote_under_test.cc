#include "tests/conformance/remote_under_test.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/conformance/published_tier.h"
#include "tiers/remote/remote_tier.h"

namespace parkade::test {
namespace {

// The port of an empty store.
int BeginServer() {
  // What earlier tests left would only take memory: no prefix is used twice.
  TheRedisServer().Ask({"FLUSHALL"});
  return TheRedisServer().port();
}

int BeginCluster() {
  for (int i = 0; i < RedisCluster::kMasters; ++i) TheRedisCluster().node(i).Ask({"FLUSHALL"});
  return TheRedisCluster().node(0).port();
}

TierUnderTest RemoteTier(const std::string& name, int (*begin)(), SharedSealKey key,
                         CodecChoice codec) {
  TierUnderTest tier;
  tier.name = name;
  tier.kind = TierKind::kRemote;
  tier.encrypted = key != nullptr;
  tier.has_budget = false;
  tier.lists = false;
  tier.race_steps = 30;
  tier.missing = RedisMissing;
  tier.open = [begin, key, codec](const std::string&, std::uint64_t) -> std::unique_ptr<Tier> {
    static std::atomic<int> opened{0};
    const std::string prefix = absl::StrCat("conformance-", opened.fetch_add(1));
    const int port = begin();
    auto writer = OpenRemote(prefix, key, port, codec);
    auto reader = OpenRemote(prefix, key, port, codec);
    if (writer == nullptr || reader == nullptr) return nullptr;
    return std::make_unique<PublishedTier>(std::move(writer), std::move(reader));
  };
  return tier;
}

}  // namespace

RedisServer& TheRedisServer() {
  static RedisServer server;
  return server;
}

RedisCluster& TheRedisCluster() {
  static RedisCluster cluster(0);
  return cluster;
}

std::unique_ptr<SharedTier> OpenRemote(const std::string& prefix, SharedSealKey key, int port,
                                       CodecChoice codec) {
  RemoteTierOptions options;
  options.url.seeds = {{"127.0.0.1", port}};
  options.url.prefix = prefix;
  // Nothing here is about time, and a busy machine is no fault.
  options.deadline = absl::Seconds(20);
  options.redis.connect_timeout = absl::Seconds(20);
  options.codec = codec;
  options.key = std::move(key);
  auto opened = OpenRemoteTier(options);
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened.ok() ? *std::move(opened) : nullptr;
}

std::vector<TierUnderTest> RemoteTiers() {
  const SharedSealKey key = *SealKey::Parse(std::string(kSealKeyBytes, 'k'));
  return {RemoteTier("Remote", BeginServer, nullptr, CodecChoice::kNone),
          // Packed, then sealed: what the other one does not do.
          RemoteTier("RemoteEncrypted", BeginServer, key, CodecChoice::kLz4)};
}

TierUnderTest RemoteClusterUnderTest() {
  return RemoteTier("RemoteCluster", BeginCluster, nullptr, CodecChoice::kNone);
}

}  // namespace parkade::test
