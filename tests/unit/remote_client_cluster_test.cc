// The client on a real cluster: many nodes at once, and nodes that fail.
#include <set>
#include <thread>

#include "tests/unit/remote_client_fixture.h"
#include "tiers/remote/slots.h"

namespace parkade::remote {
namespace {

using test::RedisCluster;
using test::TcpProxy;
using test::WaitUntil;
using RemoteClusterTest = RemoteClientTest;

// A key of the master's, the `number`th of them.
std::string KeyAt(int master, int number = 0) {
  for (int i = 0;; ++i) {
    const std::string key = absl::StrCat("key:", i);
    if (RedisCluster::MasterOf(SlotOf(key)) == master && number-- == 0) return key;
  }
}

int MapsRead(RedisCluster& cluster) {
  int reads = 0;
  for (int i = 0; i < cluster.size(); ++i) {
    if (!cluster.node(i).running()) continue;
    const std::string line = cluster.node(i).Info("commandstats", "cmdstat_cluster|slots");
    if (!line.empty()) reads += std::stoi(line.substr(line.find("calls=") + 6));
  }
  return reads;
}

TEST_F(RemoteClusterTest, SpreadsCommandsAndKeepsTheirOrder) {
  RedisCluster cluster(0);
  const auto redis = MakeRedis(Url(cluster.node(1).port()));
  std::vector<std::string> keys, values;
  std::vector<Command> sets, gets;
  for (int i = 0; i < 300; ++i) keys.push_back(absl::StrCat("key:", i));
  for (int i = 0; i < 300; ++i) values.push_back(absl::StrCat("value ", i));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    sets.push_back({{"SET", keys[i], values[i]}, keys[i]});
    gets.push_back({{"GET", keys[i]}, keys[i]});
  }
  gets.push_back({{"PING"}, ""});
  ASSERT_TRUE(redis->Run(sets, Ample()).ok());
  const auto replies = redis->Run(gets, Ample());
  ASSERT_TRUE(replies.ok()) << replies.status();
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(replies->at(i).bytes, values[i]);
  EXPECT_EQ(replies->at(keys.size()).bytes, "PONG");
  for (int i = 0; i < RedisCluster::kMasters; ++i) {
    EXPECT_GT(std::stoi(cluster.node(i).Ask({"DBSIZE"})), 60);
    EXPECT_EQ(*GetValue(*redis, KeyAt(i)), values[std::stoul(KeyAt(i).substr(4))]);
  }
  EXPECT_EQ(MapsRead(cluster), 1);
  EXPECT_EQ(redis->nodes().size(), 3u);
  // No command was sent to a node that does not have the key.
  for (int i = 0; i < RedisCluster::kMasters; ++i) {
    EXPECT_EQ(cluster.node(i).Info("errorstats", "errorstat_MOVED"), "");
  }
}

TEST_F(RemoteClusterTest, AsksAllNodesAtOnce) {
  RedisCluster cluster(0);
  std::vector<std::unique_ptr<TcpProxy>> proxies;
  for (int i = 0; i < RedisCluster::kMasters; ++i) {
    proxies.push_back(std::make_unique<TcpProxy>(cluster.node(i).port()));
    cluster.Announce(i, proxies.back()->port());
  }
  const auto redis = MakeRedis(Url(proxies[0]->port()));
  std::vector<std::string> keys;
  std::vector<Command> commands;
  for (int i = 0; i < 300; ++i) keys.push_back(absl::StrCat("key:", i));
  for (const std::string& key : keys) commands.push_back({{"GET", key}, key});
  ASSERT_TRUE(redis->Run(commands, Ample()).ok());
  for (auto& proxy : proxies) proxy->SetLatency(absl::Milliseconds(150));
  for (auto& proxy : proxies) proxy->ResetCounts();
  const absl::Time start = absl::Now();
  ASSERT_TRUE(redis->Run(commands, Ample()).ok());
  // 300 ms each, 900 ms one after the other.
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(800));
  for (auto& proxy : proxies) {
    EXPECT_EQ(proxy->counts().round_trips, 1u);
    EXPECT_EQ(proxy->counts().connections, 0u);
  }
}

TEST_F(RemoteClusterTest, ServesThreadsThatNeedAllNodesWithOneConnectionEach) {
  RedisCluster cluster(0);
  RedisOptions options;
  options.connections_per_node = 1;
  const auto redis = MakeRedis(Url(cluster.node(0).port()), options);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 20; ++i) {
        std::vector<std::string> keys;
        for (int k = 0; k < 6; ++k) keys.push_back(absl::StrCat(thread, ":", i, ":", k));
        std::vector<Command> commands;
        for (const std::string& key : keys) commands.push_back({{"SET", key, key}, key});
        for (const std::string& key : keys) commands.push_back({{"GET", key}, key});
        const auto replies = redis->Run(commands, Ample());
        ASSERT_TRUE(replies.ok()) << replies.status();
        for (std::size_t k = 0; k < 6; ++k) EXPECT_EQ(replies->at(6 + k).bytes, keys[k]);
        EXPECT_EQ(*GetValue(*redis, keys[0]), keys[0]);
      }
    });
  }
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(MapsRead(cluster), 1);
}

TEST_F(RemoteClusterTest, FollowsAFailover) {
  RedisCluster cluster(1);
  const auto redis = MakeRedis(Url(cluster.node(0).port()));
  const std::string key = KeyAt(0);
  ASSERT_EQ(SetValue(*redis, key, "v"), absl::OkStatus());
  ASSERT_TRUE(WaitUntil([&] { return cluster.node(3).Ask({"DBSIZE"}) == "1"; }));
  cluster.node(0).Kill();
  // The node that answered first, and the only seed, is gone.
  int failed = 0;
  const bool back = WaitUntil([&] {
    const absl::Time deadline = absl::Now() + absl::Milliseconds(300);
    const auto value = GetValue(*redis, key, deadline);
    EXPECT_LT(absl::Now(), deadline + absl::Milliseconds(500));
    if (value.ok()) return *value == "v";
    EXPECT_TRUE(absl::IsUnavailable(value.status()) || absl::IsDeadlineExceeded(value.status()))
        << value.status();
    ++failed;
    return false;
  });
  EXPECT_TRUE(back);
  EXPECT_GT(failed, 0);
  EXPECT_EQ(SetValue(*redis, key, "w"), absl::OkStatus());
  EXPECT_EQ(cluster.node(3).Ask({"GET", key}), "w");
  std::set<std::string> addresses;
  for (const NodeInfo& node : redis->nodes()) addresses.insert(node.address);
  EXPECT_EQ(addresses, (std::set<std::string>{cluster.node(1).address(), cluster.node(2).address(),
                                              cluster.node(3).address()}));
  // As a replica it serves no reads, so it is not asked.
  cluster.node(0).Start();
  EXPECT_EQ(*GetValue(*redis, key), "w");
}

TEST_F(RemoteClusterTest, LeavesANodeThatStandsStill) {
  RedisCluster cluster(1);
  const auto redis =
      MakeRedis(absl::StrCat(Url(cluster.node(2).port()), ",127.0.0.1:", cluster.node(0).port()));
  const std::string key = KeyAt(2);
  const std::string other = KeyAt(0);
  ASSERT_EQ(SetValue(*redis, key, "v"), absl::OkStatus());
  ASSERT_EQ(SetValue(*redis, other, "o"), absl::OkStatus());
  ASSERT_TRUE(WaitUntil([&] { return cluster.node(5).Ask({"DBSIZE"}) == "1"; }));
  cluster.node(2).Pause();
  const absl::Time deadline = absl::Now() + absl::Milliseconds(200);
  EXPECT_EQ(GetValue(*redis, key, deadline).status().code(), absl::StatusCode::kDeadlineExceeded);
  // The cluster goes on without it.
  EXPECT_TRUE(WaitUntil([&] {
    return GetValue(*redis, key, absl::Now() + absl::Milliseconds(300)).value_or("") == "v" &&
           GetValue(*redis, other, absl::Now() + absl::Milliseconds(300)).value_or("") == "o";
  }));
  EXPECT_EQ(SetValue(*redis, key, "w"), absl::OkStatus());
  EXPECT_EQ(cluster.node(5).Ask({"GET", key}), "w");
  cluster.node(2).Resume();
  EXPECT_EQ(*GetValue(*redis, key), "w");
}

TEST_F(RemoteClusterTest, KeepsTheDeadlineWhenAllStandStill) {
  RedisCluster cluster(0);
  const auto redis = MakeRedis(Url(cluster.node(0).port()));
  const std::vector<std::string> keys = {KeyAt(0), KeyAt(1), KeyAt(2)};
  std::vector<Command> commands;
  for (const std::string& key : keys) commands.push_back({{"GET", key}, key});
  ASSERT_TRUE(redis->Run(commands, Ample()).ok());
  for (int i = 0; i < 3; ++i) cluster.node(i).Pause();
  for (int i = 0; i < 3; ++i) {
    const absl::Time deadline = absl::Now() + absl::Milliseconds(200);
    EXPECT_EQ(redis->Run(commands, deadline).status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_LT(absl::Now(), deadline + absl::Milliseconds(500));
  }
  for (int i = 0; i < 3; ++i) cluster.node(i).Resume();
  EXPECT_TRUE(WaitUntil([&] { return redis->Run(commands, Ample()).ok(); }));
}

TEST_F(RemoteClusterTest, TellsOneNodeThatFailsAndKeepsTheOthersConnections) {
  RedisCluster cluster(0, {"--cluster-require-full-coverage", "no"});
  const auto redis = MakeRedis(Url(cluster.node(0).port()));
  const std::vector<std::string> keys = {KeyAt(0), KeyAt(1), KeyAt(2)};
  std::vector<Command> commands;
  for (const std::string& key : keys) commands.push_back({{"GET", key}, key});
  ASSERT_TRUE(redis->Run(commands, Ample()).ok());
  cluster.node(1).Kill();
  const absl::Status status = redis->Run(commands, Ample()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), cluster.node(1).address() + ": Connection refused");
  EXPECT_EQ(GetValue(*redis, keys[2]).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(RunOne(*redis, {"PING"})->bytes, "PONG");
  for (const int i : {0, 2}) {
    EXPECT_EQ(cluster.node(i).Info("clients", "connected_clients"), "2");
  }
}

}  // namespace
}  // namespace parkade::remote
