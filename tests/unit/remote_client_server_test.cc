// The client on one real server that does nothing wrong.
#include <thread>

#include "tests/unit/remote_client_fixture.h"

namespace parkade::remote {
namespace {

using test::RedisServer;
using test::TcpProxy;
using RemoteServerTest = RemoteClientTest;

TEST_F(RemoteServerTest, RunsCommandsInOrder) {
  RedisServer server;
  const auto redis = MakeRedis(Url(server.port()));
  EXPECT_FALSE(redis->nodes()[0].connected);
  const std::vector<Command> commands = {
      {{"SET", "a", "1"}, "a"}, {{"INCR", "a"}, "a"},        {{"GET", "a"}, "a"},
      {{"GET", "b"}, "b"},      {{"LPUSH", "l", "x"}, "l"},  {{"INCR", "l"}, "l"},
      {{"PING"}, ""},           {{"MGET", "a", "none"}, "a"}};
  const auto replies = redis->Run(commands, Ample());
  ASSERT_TRUE(replies.ok()) << replies.status();
  ASSERT_EQ(replies->size(), 8u);
  EXPECT_EQ(replies->at(0).bytes, "OK");
  EXPECT_EQ(replies->at(1).integer, 2);
  EXPECT_EQ(replies->at(2).bytes, "2");
  EXPECT_EQ(replies->at(3).kind, Reply::Kind::kNil);
  EXPECT_EQ(replies->at(4).integer, 1);
  // A command's error is its reply and hurts no other.
  EXPECT_EQ(replies->at(5).kind, Reply::Kind::kError);
  EXPECT_EQ(replies->at(5).bytes.rfind("WRONGTYPE", 0), 0u);
  EXPECT_EQ(replies->at(6).bytes, "PONG");
  ASSERT_EQ(replies->at(7).elements.size(), 2u);
  EXPECT_EQ(replies->at(7).elements[0].bytes, "2");
  EXPECT_EQ(replies->at(7).elements[1].kind, Reply::Kind::kNil);
  const std::vector<NodeInfo> nodes = redis->nodes();
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].address, server.address());
  EXPECT_TRUE(nodes[0].connected);
  EXPECT_GT(nodes[0].bytes_in, 50u);
  EXPECT_GT(nodes[0].bytes_out, 150u);
  EXPECT_TRUE(redis->Run({}, Ample())->empty());
}

TEST_F(RemoteServerTest, KeepsValuesOfAnySizeAndContent) {
  RedisServer server;
  const auto redis = MakeRedis(Url(server.port()));
  for (const std::size_t size : {0u, 1u, 2u, 7u, 16383u, 16384u, 16385u, 100000u, 4u << 20}) {
    const std::string value = Bytes(size, size + 1);
    const std::string key("k\r\n\0\xff", 5);
    ASSERT_EQ(SetValue(*redis, key, value), absl::OkStatus());
    EXPECT_TRUE(Same(GetValue(*redis, key), value));
    EXPECT_TRUE(Same(RunOne(*redis, {"GET", key}), value));
  }
  EXPECT_EQ(GetValue(*redis, "none").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(RunOne(*redis, {"LPUSH", "list", "x"}).ok());
  EXPECT_EQ(GetValue(*redis, "list").status().code(), absl::StatusCode::kFailedPrecondition);
  // All over one connection: the control's own are closed by now.
  EXPECT_EQ(server.Info("clients", "connected_clients"), "2");
}

TEST_F(RemoteServerTest, ReceivesIntoTheMemoryItIsGiven) {
  RedisServer server;
  const auto redis = MakeRedis(Url(server.port()));
  const std::string value = Bytes(1 << 20);
  ASSERT_EQ(SetValue(*redis, "k", value), absl::OkStatus());
  std::vector<char> memory(value.size() + 2, '#');
  std::vector<std::size_t> asked;
  ASSERT_EQ(redis->Get(
                "k", Ample(),
                [&](std::size_t size) {
                  asked.push_back(size);
                  return memory.data() + 1;
                },
                [&](std::size_t size) {
                  asked.push_back(size);
                  return Ample();
                }),
            absl::OkStatus());
  EXPECT_EQ(asked, (std::vector<std::size_t>{value.size(), value.size()}));
  EXPECT_TRUE(Same(std::string(memory.data() + 1, value.size()), value));
  EXPECT_EQ(memory.front(), '#');
  EXPECT_EQ(memory.back(), '#');
  // What is not wanted is not received.
  EXPECT_EQ(redis
                ->Get(
                    "k", Ample(), [](std::size_t) { return nullptr; },
                    [](std::size_t) { return Ample(); })
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Same(GetValue(*redis, "k"), value));
}

TEST_F(RemoteServerTest, SetsTimeToLive) {
  RedisServer server;
  const auto redis = MakeRedis(Url(server.port()));
  ASSERT_EQ(SetValue(*redis, "with", "v", 50000), absl::OkStatus());
  ASSERT_EQ(SetValue(*redis, "without", "v"), absl::OkStatus());
  const std::int64_t left_ms = RunOne(*redis, {"PTTL", "with"})->integer;
  EXPECT_GT(left_ms, 0);
  EXPECT_LE(left_ms, 50000);
  EXPECT_EQ(RunOne(*redis, {"PTTL", "without"})->integer, -1);
}

TEST_F(RemoteServerTest, AsksFiveHundredInOneRoundTrip) {
  RedisServer server;
  TcpProxy proxy(server.port());
  const auto redis = MakeRedis(Url(proxy.port()));
  std::vector<std::string> keys;
  for (int i = 0; i < 500; ++i) keys.push_back(absl::StrCat("key:", i));
  ASSERT_EQ(SetValue(*redis, keys[7], "seven"), absl::OkStatus());
  proxy.SetLatency(absl::Milliseconds(20));
  proxy.ResetCounts();
  std::vector<Command> commands;
  for (const std::string& key : keys) commands.push_back({{"GET", key}, key});
  const auto replies = redis->Run(commands, Ample());
  ASSERT_TRUE(replies.ok()) << replies.status();
  ASSERT_EQ(replies->size(), 500u);
  for (std::size_t i = 0; i < 500; ++i) {
    EXPECT_EQ(replies->at(i).bytes, i == 7 ? "seven" : "");
  }
  EXPECT_EQ(proxy.counts().round_trips, 1u);
  EXPECT_EQ(proxy.counts().connections, 0u);
  // The proxy does count what goes there and back.
  ASSERT_TRUE(RunOne(*redis, {"GET", "x"}).ok());
  EXPECT_EQ(proxy.counts().round_trips, 2u);
  EXPECT_EQ(GetValue(*redis, keys[7]).value(), "seven");
  EXPECT_EQ(proxy.counts().round_trips, 3u);
}

TEST_F(RemoteServerTest, ServesThreadsOverItsConnections) {
  RedisServer server;
  TcpProxy proxy(server.port());
  RedisOptions options;
  options.connections_per_node = 3;
  const auto redis = MakeRedis(Url(proxy.port()), options);
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::size_t i = 0; i < 30; ++i) {
        const std::string key = absl::StrCat("k", thread);
        const std::string value = Bytes(1000 + 20000 * (i % 3), thread * 100 + i);
        ASSERT_EQ(SetValue(*redis, key, value), absl::OkStatus());
        EXPECT_TRUE(Same(GetValue(*redis, key), value));
        EXPECT_TRUE(Same(RunOne(*redis, {"GET", key}), value));
      }
    });
  }
  for (std::thread& one : threads) one.join();
  EXPECT_GE(proxy.counts().connections, 2u);
  EXPECT_LE(proxy.counts().connections, 3u);
}

TEST_F(RemoteServerTest, AuthenticatesWithAPassword) {
  RedisServer server({"--requirepass", "p@ss/word"});
  const std::string address = server.address();
  const auto redis = MakeRedis("redis://:p%40ss%2Fword@" + address);
  EXPECT_EQ(SetValue(*redis, "k", "v"), absl::OkStatus());
  for (const std::string& url :
       {"redis://:wr0ng@" + address, "redis://nobody:wr0ng@" + address, "redis://" + address}) {
    const auto refused = MakeRedis(url);
    const absl::Status status = RunOne(*refused, {"GET", "k"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_EQ(std::string(status.message()).rfind(address + ": ", 0), 0u) << status;
    EXPECT_EQ(status.message().find("wr0ng"), absl::string_view::npos);
    EXPECT_EQ(GetValue(*refused, "k").status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(SetValue(*refused, "k", "v").code(), absl::StatusCode::kPermissionDenied);
  }
}

TEST_F(RemoteServerTest, ObeysRights) {
  RedisServer server;
  ASSERT_EQ(server.Ask({"ACL", "SETUSER", "me", "on", ">secret", "~mine:*", "+get", "+set"}), "OK");
  const auto redis = MakeRedis("redis://me:secret@" + server.address());
  // CLUSTER is not among the rights: all goes to this server.
  EXPECT_EQ(SetValue(*redis, "mine:k", "v"), absl::OkStatus());
  EXPECT_EQ(*GetValue(*redis, "mine:k"), "v");
  for (const absl::Status& status :
       {GetValue(*redis, "other").status(), SetValue(*redis, "other", "v"),
        RunOne(*redis, {"DEL", "mine:k"}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  }
  EXPECT_EQ(*GetValue(*redis, "mine:k"), "v");
}

TEST_F(RemoteServerTest, TellsAFullServer) {
  RedisServer server({"--maxmemory", "16mb", "--maxmemory-policy", "noeviction"});
  const auto redis = MakeRedis(Url(server.port()));
  const std::string value = Bytes(2 << 20);
  absl::Status status;
  int stored = 0;
  for (; stored < 20 && status.ok(); ++stored) {
    status = SetValue(*redis, absl::StrCat("k", stored), value);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GT(stored, 2);
  EXPECT_TRUE(Same(GetValue(*redis, "k0"), value));
  const auto reply = RunOne(*redis, {"SET", "more", value});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->bytes.rfind("OOM ", 0), 0u);
}

TEST_F(RemoteServerTest, RefusesWhatCannotWork) {
  RemoteUrl url = *ParseRemoteUrl("redis://:@file:/secret@127.0.0.1");
  EXPECT_EQ(Redis::Create(url, {}).status().code(), absl::StatusCode::kInvalidArgument);
  url.password = "read";
  EXPECT_TRUE(Redis::Create(url, {}).ok());
  RedisOptions options;
  options.connections_per_node = 0;
  EXPECT_EQ(Redis::Create(url, options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace parkade::remote
