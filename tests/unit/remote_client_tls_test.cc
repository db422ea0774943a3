// The same over TLS, and what must not be trusted.
#include <filesystem>
#include <set>
#include <thread>

#include "tests/unit/remote_client_fixture.h"

namespace parkade::remote {
namespace {

using test::MakeCertificates;
using test::RedisCluster;
using test::RedisServer;
using test::TcpProxy;
using test::TlsArguments;
using test::WaitUntil;

class RemoteTlsTest : public RemoteClientTest {
 protected:
  void SetUp() override {
    RemoteClientTest::SetUp();
    if (IsSkipped()) return;
    if (std::system("openssl version >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "there is no program openssl here";
    }
    std::string name = std::filesystem::temp_directory_path().string() + "/parkade-tls-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    MakeCertificates(folder_);
    options_.tls_ca_file = folder_ + "/ca.crt";
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  static std::string TlsUrl(int port, const std::string& host = "127.0.0.1") {
    return absl::StrCat("rediss://", host, ":", port);
  }

  std::string folder_;
  RedisOptions options_;
};

TEST_F(RemoteTlsTest, DoesAllThatItDoesWithout) {
  RedisServer server(TlsArguments(folder_));
  for (const char* const host : {"127.0.0.1", "localhost"}) {
    const auto redis = MakeRedis(TlsUrl(server.tls_port(), host), options_);
    for (const std::size_t size : {0u, 1u, 16384u, 100000u, 4u << 20}) {
      const std::string value = Bytes(size, size);
      ASSERT_EQ(SetValue(*redis, "k", value), absl::OkStatus());
      EXPECT_TRUE(Same(GetValue(*redis, "k"), value));
      EXPECT_TRUE(Same(RunOne(*redis, {"GET", "k"}), value));
    }
    const std::string value = Bytes(1 << 20);
    const std::vector<Command> commands(12, Command{{"ECHO", value}, ""});
    const auto replies = redis->Run(commands, Ample());
    ASSERT_TRUE(replies.ok()) << replies.status();
    for (const Reply& reply : *replies) EXPECT_TRUE(Same(reply, value));
    // Tickets that the server sends by itself don't make it leave a connection.
    EXPECT_EQ(server.Info("clients", "connected_clients"), "2");
  }
}

TEST_F(RemoteTlsTest, ServesThreads) {
  RedisServer server(TlsArguments(folder_));
  const auto redis = MakeRedis(TlsUrl(server.tls_port()), options_);
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::size_t i = 0; i < 10; ++i) {
        const std::string key = absl::StrCat("k", thread);
        const std::string value = Bytes(30000, thread * 100 + i);
        ASSERT_EQ(SetValue(*redis, key, value), absl::OkStatus());
        EXPECT_TRUE(Same(GetValue(*redis, key), value));
      }
    });
  }
  for (std::thread& one : threads) one.join();
}

TEST_F(RemoteTlsTest, RefusesACertificateOfAnotherAuthority) {
  RedisServer server(TlsArguments(folder_));
  const std::string other = folder_ + "/other";
  std::filesystem::create_directory(other);
  MakeCertificates(other);
  options_.tls_ca_file = other + "/ca.crt";
  RedisOptions none;
  none.connect_timeout = absl::Seconds(5);
  for (const RedisOptions& options : {options_, none}) {
    const auto redis = MakeRedis(TlsUrl(server.tls_port()), options);
    const absl::Status status = RunOne(*redis, {"SET", "k", "v"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_EQ(std::string(status.message())
                  .rfind(absl::StrCat("127.0.0.1:", server.tls_port(),
                                      ": the server's certificate is not trusted: "),
                         0),
              0u)
        << status;
  }
  EXPECT_EQ(server.Ask({"DBSIZE"}), "0");
}

TEST_F(RemoteTlsTest, RefusesACertificateForAnotherHost) {
  MakeCertificates(folder_, "DNS:other.example,IP:127.0.0.2");
  RedisServer server(TlsArguments(folder_));
  for (const char* const host : {"127.0.0.1", "localhost"}) {
    const auto redis = MakeRedis(TlsUrl(server.tls_port(), host), options_);
    const absl::Status status = RunOne(*redis, {"SET", "k", "v"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_NE(status.message().find("mismatch"), absl::string_view::npos) << status;
  }
  EXPECT_EQ(server.Ask({"DBSIZE"}), "0");
}

TEST_F(RemoteTlsTest, RefusesAFileThatHasNoCertificates) {
  const RemoteUrl url = *ParseRemoteUrl("rediss://127.0.0.1");
  for (const std::string& file : {folder_ + "/none.crt", folder_ + "/ca.key"}) {
    options_.tls_ca_file = file;
    const absl::Status status = Redis::Create(url, options_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), file + " has no certificates that can be read");
  }
}

TEST_F(RemoteTlsTest, TellsThatOnlyOneSideHasTls) {
  RedisServer server(TlsArguments(folder_));
  options_.connect_timeout = absl::Milliseconds(300);
  const absl::Status status =
      RunOne(*MakeRedis(TlsUrl(server.port()), options_), {"PING"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  const absl::Time deadline = absl::Now() + absl::Milliseconds(300);
  EXPECT_FALSE(RunOne(*MakeRedis(Url(server.tls_port())), {"PING"}, deadline).ok());
  EXPECT_LT(absl::Now(), deadline + absl::Milliseconds(500));
}

TEST_F(RemoteTlsTest, KeepsTheDeadlineOfAServerThatStandsStill) {
  RedisServer server(TlsArguments(folder_));
  const auto redis = MakeRedis(TlsUrl(server.tls_port()), options_);
  ASSERT_EQ(SetValue(*redis, "k", Bytes(1 << 20)), absl::OkStatus());
  const auto fresh = MakeRedis(TlsUrl(server.tls_port()), options_);
  server.Pause();
  for (Redis* one : {redis.get(), fresh.get()}) {
    const absl::Time deadline = absl::Now() + absl::Milliseconds(200);
    EXPECT_EQ(GetValue(*one, "k", deadline).status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_GE(absl::Now(), deadline);
    EXPECT_LT(absl::Now(), deadline + absl::Milliseconds(500));
  }
  server.Resume();
  EXPECT_TRUE(Same(GetValue(*redis, "k"), Bytes(1 << 20)));
}

TEST_F(RemoteTlsTest, SurvivesACutWhileItSendsAndReceives) {
  RedisServer server(TlsArguments(folder_));
  TcpProxy proxy(server.tls_port());
  const auto redis = MakeRedis(TlsUrl(proxy.port()), options_);
  const std::string value = Bytes(1 << 20);
  ASSERT_EQ(SetValue(*redis, "k", value), absl::OkStatus());
  proxy.CutAfter(300000);
  EXPECT_EQ(GetValue(*redis, "k").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Same(GetValue(*redis, "k"), value));
  const std::string large = Bytes(32 << 20);
  proxy.Stop(true);
  const std::uint64_t before = redis->nodes()[0].bytes_out;
  std::thread cutter([&] {
    EXPECT_TRUE(WaitUntil([&] { return redis->nodes()[0].bytes_out > before + 100000; }));
    proxy.Cut();
  });
  const absl::Status status = SetValue(*redis, "l", large);
  cutter.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  proxy.Stop(false);
  EXPECT_TRUE(Same(GetValue(*redis, "k"), value));
}

TEST_F(RemoteTlsTest, ServesACluster) {
  std::vector<std::string> arguments = TlsArguments(folder_);
  arguments.insert(arguments.end(), {"--tls-cluster", "yes"});
  RedisCluster cluster(0, arguments);
  const auto redis = MakeRedis(TlsUrl(cluster.node(0).tls_port(), "localhost"), options_);
  std::vector<std::string> keys;
  std::vector<Command> commands;
  for (int i = 0; i < 60; ++i) keys.push_back(absl::StrCat("key:", i));
  for (const std::string& key : keys) commands.push_back({{"SET", key, key}, key});
  for (const std::string& key : keys) commands.push_back({{"GET", key}, key});
  const auto replies = redis->Run(commands, Ample());
  ASSERT_TRUE(replies.ok()) << replies.status();
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(replies->at(60 + i).bytes, keys[i]);
  std::set<std::string> addresses, expected;
  for (const NodeInfo& node : redis->nodes()) addresses.insert(node.address);
  for (int i = 0; i < 3; ++i) {
    expected.insert(absl::StrCat("127.0.0.1:", cluster.node(i).tls_port()));
    EXPECT_GT(std::stoi(cluster.node(i).Ask({"DBSIZE"})), 5);
  }
  EXPECT_EQ(addresses, expected);
}

}  // namespace
}  // namespace parkade::remote
