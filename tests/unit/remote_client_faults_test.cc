// One real server that stands still, dies, refuses or is reached over a bad line.
#include <algorithm>
#include <thread>

#include "tests/unit/remote_client_fixture.h"

namespace parkade::remote {
namespace {

using test::RedisServer;
using test::TcpProxy;
using test::WaitUntil;
using RemoteFaultsTest = RemoteClientTest;

constexpr absl::Duration kDeadline = absl::Milliseconds(200);

// `call` gets a deadline of 200 ms and must fail with `code` no earlier and, on a machine that is
// not too busy to tell, at most 50 ms later.
void ExpectInTime(const std::function<absl::Status(absl::Time)>& call, absl::StatusCode code) {
  absl::Duration late = absl::InfiniteDuration();
  for (int attempt = 0; attempt < 5 && late > absl::Milliseconds(50); ++attempt) {
    const absl::Time deadline = absl::Now() + kDeadline;
    const absl::Status status = call(deadline);
    const absl::Duration after = absl::Now() - deadline;
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_GE(after, absl::ZeroDuration());
    late = std::min(late, after);
  }
  EXPECT_LE(late, absl::Milliseconds(50));
}

TEST_F(RemoteFaultsTest, KeepsTheDeadlineOfAServerThatStandsStill) {
  RedisServer server;
  const auto redis = MakeRedis(Url(server.port()));
  const std::string value = Bytes(1 << 20);
  ASSERT_EQ(SetValue(*redis, "k", value), absl::OkStatus());
  server.Pause();
  const auto late = absl::StatusCode::kDeadlineExceeded;
  ExpectInTime([&](absl::Time by) { return RunOne(*redis, {"GET", "k"}, by).status(); }, late);
  ExpectInTime([&](absl::Time by) { return GetValue(*redis, "k", by).status(); }, late);
  // More than the system's buffers take.
  const std::string large = Bytes(32 << 20);
  ExpectInTime([&](absl::Time by) { return SetValue(*redis, "l", large, 0, by); }, late);
  // The system connects for it, and nobody answers.
  const auto fresh = MakeRedis(Url(server.port()));
  ExpectInTime([&](absl::Time by) { return RunOne(*fresh, {"PING"}, by).status(); }, late);
  server.Resume();
  EXPECT_TRUE(Same(GetValue(*redis, "k"), value));
  EXPECT_EQ(RunOne(*fresh, {"PING"})->bytes, "PONG");
}

TEST_F(RemoteFaultsTest, BoundsMakingAConnection) {
  RedisServer server({"--requirepass", "secret"});
  RedisOptions options;
  options.connect_timeout = absl::Milliseconds(50);
  const auto redis = MakeRedis("redis://:secret@" + server.address(), options);
  server.Pause();
  const absl::Status status = RunOne(*redis, {"PING"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(status.message(), server.address() + ": no connection within 50ms");
  server.Resume();
  EXPECT_TRUE(WaitUntil([&] { return RunOne(*redis, {"PING"}).ok(); }));
}

TEST_F(RemoteFaultsTest, EndsAValueThatDoesNotComeWithItsOwnDeadline) {
  RedisServer server;
  TcpProxy proxy(server.port());
  const auto redis = MakeRedis(Url(proxy.port()));
  const std::string value = Bytes(4 << 20);
  ASSERT_EQ(SetValue(*redis, "k", value), absl::OkStatus());
  proxy.SetBytesPerSecond(1 << 20);
  std::string memory;
  absl::Time deadline;
  const absl::Status status = redis->Get(
      "k", Ample(),
      [&](std::size_t size) {
        memory.assign(size, '#');
        return memory.data();
      },
      [&](std::size_t) { return deadline = absl::Now() + absl::Milliseconds(300); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_GE(absl::Now(), deadline);
  // It was in the middle.
  EXPECT_TRUE(Same(memory.substr(0, 1000), value.substr(0, 1000)));
  EXPECT_FALSE(memory == value);
  proxy.SetBytesPerSecond(0);
  EXPECT_TRUE(Same(GetValue(*redis, "k"), value));
  EXPECT_EQ(proxy.counts().connections, 2u);
}

TEST_F(RemoteFaultsTest, NeverUsesAConnectionAgainThatWasCutInAValue) {
  RedisServer server;
  TcpProxy proxy(server.port());
  const auto redis = MakeRedis(Url(proxy.port()));
  const std::string value = Bytes(1 << 20);
  ASSERT_EQ(SetValue(*redis, "k", value), absl::OkStatus());
  ASSERT_EQ(SetValue(*redis, "other", "o"), absl::OkStatus());
  // In the length, right after it, in the value, and before the value's own end.
  std::uint64_t connections = 1;
  for (const std::uint64_t bytes : {3ull, 10ull, 500000ull, 10ull + (1 << 20), 11ull + (1 << 20)}) {
    proxy.CutAfter(bytes);
    const absl::Status status = GetValue(*redis, "k").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << bytes << ": " << status;
    EXPECT_EQ(*GetValue(*redis, "other"), "o");
    EXPECT_EQ(proxy.counts().connections, ++connections);
  }
  proxy.CutAfter(100000);
  EXPECT_EQ(RunOne(*redis, {"GET", "k"}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Same(GetValue(*redis, "k"), value));
}

TEST_F(RemoteFaultsTest, SurvivesACutWhileItSends) {
  RedisServer server;
  TcpProxy proxy(server.port());
  const auto redis = MakeRedis(Url(proxy.port()));
  ASSERT_TRUE(RunOne(*redis, {"PING"}).ok());
  // More than the system's buffers take.
  const std::string value = Bytes(32 << 20);
  proxy.Stop(true);
  std::thread cutter([&] {
    EXPECT_TRUE(WaitUntil([&] { return redis->nodes()[0].bytes_out > 100000; }));
    proxy.Cut();
  });
  const absl::Status status = SetValue(*redis, "k", value);
  cutter.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  proxy.Stop(false);
  EXPECT_EQ(GetValue(*redis, "k").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RemoteFaultsTest, NoticesThatAServerWentAwayAndCameBack) {
  RedisServer server;
  RedisOptions options;
  options.connections_per_node = 2;
  const auto redis = MakeRedis(Url(server.port()), options);
  ASSERT_EQ(SetValue(*redis, "k", "v"), absl::OkStatus());
  server.Kill();
  const absl::Status status = RunOne(*redis, {"PING"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), server.address() + ": Connection refused");
  EXPECT_FALSE(redis->nodes()[0].connected);
  server.Start();
  EXPECT_EQ(GetValue(*redis, "k").status().code(), absl::StatusCode::kNotFound);
  // Nobody asked while it was away.
  server.Kill();
  server.Start();
  EXPECT_EQ(SetValue(*redis, "k", "w"), absl::OkStatus());
  EXPECT_EQ(*GetValue(*redis, "k"), "w");
}

TEST_F(RemoteFaultsTest, WaitsForAServerThatPausesItsClients) {
  RedisServer server;
  const auto redis = MakeRedis(Url(server.port()));
  ASSERT_TRUE(RunOne(*redis, {"PING"}).ok());
  ASSERT_EQ(server.Ask({"CLIENT", "PAUSE", "1500", "ALL"}), "OK");
  ExpectInTime([&](absl::Time by) { return RunOne(*redis, {"PING"}, by).status(); },
               absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(RunOne(*redis, {"PING"})->bytes, "PONG");
}

TEST_F(RemoteFaultsTest, TellsAServerWithTooManyClients) {
  RedisServer server({"--maxclients", "1"});
  const auto first = MakeRedis(Url(server.port()));
  ASSERT_TRUE(WaitUntil([&] { return RunOne(*first, {"PING"}).ok(); }));
  const auto second = MakeRedis(Url(server.port()));
  const absl::Status status = RunOne(*second, {"PING"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(RunOne(*first, {"PING"})->bytes, "PONG");
}

TEST_F(RemoteFaultsTest, WaitsForAConnectionAtMostUntilTheDeadline) {
  RedisServer server;
  TcpProxy proxy(server.port());
  RedisOptions options;
  options.connections_per_node = 1;
  const auto redis = MakeRedis(Url(proxy.port()), options);
  ASSERT_EQ(SetValue(*redis, "k", Bytes(1 << 20)), absl::OkStatus());
  proxy.Stop(true);
  const std::uint64_t before = redis->nodes()[0].bytes_out;
  std::thread holder([&] { EXPECT_TRUE(GetValue(*redis, "k").ok()); });
  EXPECT_TRUE(WaitUntil([&] { return redis->nodes()[0].bytes_out > before; }));
  const absl::Status status = RunOne(*redis, {"PING"}, absl::Now() + kDeadline).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(),
            absl::StrCat("127.0.0.1:", proxy.port(), ": all connections are in use"));
  proxy.Stop(false);
  holder.join();
  EXPECT_EQ(RunOne(*redis, {"PING"})->bytes, "PONG");
  EXPECT_EQ(proxy.counts().connections, 1u);
}

TEST_F(RemoteFaultsTest, TakesTheNextServerWhenOneFails) {
  RedisServer a, b;
  const auto redis = MakeRedis(absl::StrCat("redis://", a.address(), ",", b.address()));
  ASSERT_EQ(SetValue(*redis, "k", "v"), absl::OkStatus());
  EXPECT_EQ(a.Ask({"GET", "k"}), "v");
  a.Kill();
  EXPECT_EQ(GetValue(*redis, "k").status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(SetValue(*redis, "k", "w"), absl::OkStatus());
  EXPECT_EQ(b.Ask({"GET", "k"}), "w");
  EXPECT_EQ(redis->nodes()[0].address, b.address());
  // Both gone: an error, at once.
  b.Kill();
  EXPECT_EQ(RunOne(*redis, {"GET", "k"}).status().code(), absl::StatusCode::kUnavailable);
  a.Start();
  EXPECT_EQ(GetValue(*redis, "k").status().code(), absl::StatusCode::kNotFound);
  // The first one is dead from the start.
  a.Kill();
  b.Start();
  const auto late = MakeRedis(absl::StrCat("redis://", a.address(), ",", b.address()));
  EXPECT_EQ(SetValue(*late, "k", "x"), absl::OkStatus());
}

TEST_F(RemoteFaultsTest, LeavesAReplicaForItsMaster) {
  RedisServer master;
  RedisServer replica({"--replicaof", absl::StrCat("127.0.0.1 ", master.port())});
  const auto redis = MakeRedis(absl::StrCat("redis://", replica.address(), ",", master.address()));
  ASSERT_EQ(RunOne(*redis, {"PING"})->bytes, "PONG");
  EXPECT_EQ(redis->nodes()[0].address, replica.address());
  EXPECT_EQ(SetValue(*redis, "k", "v"), absl::OkStatus());
  EXPECT_EQ(master.Ask({"GET", "k"}), "v");
  EXPECT_EQ(redis->nodes()[0].address, master.address());
  // Alone it refuses until the deadline, in its own words.
  const auto alone = MakeRedis(Url(replica.port()));
  const absl::Status status = SetValue(*alone, "k", "w", 0, absl::Now() + kDeadline);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(status.message()).rfind(replica.address() + ": READONLY", 0), 0u) << status;
}

}  // namespace
}  // namespace parkade::remote
