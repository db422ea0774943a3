// Servers that do not answer as they should, played by the test.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>

#include "absl/strings/str_replace.h"
#include "tests/unit/remote_client_fixture.h"
#include "tiers/remote/resolver.h"
#include "tiers/remote/stream.h"
#include "tiers/remote/tls.h"

namespace parkade::remote {
namespace {

constexpr char kNoCluster[] = "-ERR This instance has cluster support disabled\r\n";

// Listens on a port of 127.0.0.1, which it puts into `port`.
int Listen(int* port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(listener, 8), 0);
  EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  *port = ntohs(address.sin_port);
  return listener;
}

// Answers by a word in what it is sent ("GET"), the same for each connection; several answers come
// one after the other, the last one again and again. An empty one: it hangs up. "{port}" is its
// own.
class PlayedServer {
 public:
  using Answers = std::map<std::string, std::vector<std::string>>;
  explicit PlayedServer(Answers answers) : answers_(std::move(answers)) {
    answers_.insert({"CLUSTER", {kNoCluster}});
    listener_ = Listen(&port_);
    thread_ = std::thread([this] { Work(); });
  }
  ~PlayedServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int connections() const { return connections_; }
  int asked(const std::string& word) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return asked_[word];
  }

 private:
  void Work() {
    std::vector<pollfd> files = {{listener_, POLLIN, 0}};
    while (::poll(files.data(), files.size(), -1) > 0) {
      std::vector<pollfd> next = {{listener_, POLLIN, 0}};
      for (std::size_t i = 1; i < files.size(); ++i) {
        if (files[i].revents == 0 || Serve(files[i].fd)) {
          next.push_back({files[i].fd, POLLIN, 0});
        } else {
          ::close(files[i].fd);
        }
      }
      if (files[0].revents != 0) {
        const int connection = ::accept(listener_, nullptr, nullptr);
        if (connection < 0) {
          for (std::size_t i = 1; i < next.size(); ++i) ::close(next[i].fd);
          return;
        }
        ++connections_;
        next.push_back({connection, POLLIN, 0});
      }
      files = next;
    }
  }

  bool Serve(int connection) {
    char bytes[4096];
    const ssize_t got = ::recv(connection, bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    const std::string text(bytes, static_cast<std::size_t>(got));
    for (auto& [word, answers] : answers_) {
      if (text.find("\r\n" + word + "\r\n") == std::string::npos) continue;
      std::size_t number;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        number = static_cast<std::size_t>(asked_[word]++);
      }
      const std::string answer = absl::StrReplaceAll(answers[std::min(number, answers.size() - 1)],
                                                     {{"{port}", absl::StrCat(port_)}});
      if (answer.empty()) return false;
      EXPECT_EQ(::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(answer.size()));
      return true;
    }
    return true;
  }

  Answers answers_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> connections_{0};
  std::mutex mutex_;
  std::map<std::string, int> asked_;
  std::thread thread_;
};

TEST(RemoteProtocol, RefusesValuesThatAreNone) {
  for (const char* const wrong :
       {"HTTP/1.1 400 Bad Request\r\n\r\n", "$x\r\nabc\r\n", "$-2\r\nabc\r\n", "$3\r\nabcd\r\n",
        "$3\r\nabc\n\r", "$3\r\nabc\r\n+OK\r\n", "$99999999999999999999\r\nabc\r\n",
        "$000000000000000000000000000000000000000", "$\r\nabc\r\n"}) {
    PlayedServer server(PlayedServer::Answers{{"GET", {wrong, "$3\r\nabc\r\n"}}});
    const auto redis = MakeRedis(Url(server.port()));
    const absl::Status status = GetValue(*redis, "k").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << wrong << ": " << status;
    // What came is not the next one's answer.
    EXPECT_EQ(*GetValue(*redis, "k"), "abc") << wrong;
    EXPECT_EQ(server.connections(), 2) << wrong;
  }
}

TEST(RemoteProtocol, RefusesRepliesThatAreNone) {
  for (const char* const wrong : {"HTTP/1.1 400 Bad Request\r\n\r\n", "+OK\r\n+OK\r\n",
                                  "+OK\r\n$3\r\nab", "*2147483648\r\n"}) {
    PlayedServer server(PlayedServer::Answers{{"GET", {wrong, "+fine\r\n"}}});
    const auto redis = MakeRedis(Url(server.port()));
    const absl::Status status = RunOne(*redis, {"GET", "k"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << wrong << ": " << status;
    EXPECT_EQ(RunOne(*redis, {"GET", "k"})->bytes, "fine") << wrong;
    EXPECT_EQ(server.connections(), 2) << wrong;
  }
}

TEST(RemoteProtocol, AllocatesOnlyWhatTheCallerAllows) {
  PlayedServer server(PlayedServer::Answers{{"GET", {"$9000000000000000000\r\nabc"}}});
  const auto redis = MakeRedis(Url(server.port()));
  std::size_t asked = 0;
  const absl::Status status = redis->Get(
      "k", Ample(),
      [&](std::size_t size) {
        asked = size;
        return nullptr;
      },
      [](std::size_t) { return Ample(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(asked, 9000000000000000000u);
}

TEST(RemoteProtocol, AsksAgainWhileAServerLoads) {
  const std::string loading = "-LOADING Redis is loading the dataset in memory\r\n";
  PlayedServer server(
      PlayedServer::Answers{{"GET", {loading, loading, "$1\r\nv\r\n"}}, {"SET", {loading}}});
  const auto redis = MakeRedis(Url(server.port()));
  EXPECT_EQ(*GetValue(*redis, "k"), "v");
  EXPECT_EQ(server.asked("GET"), 3);
  const absl::Time deadline = absl::Now() + absl::Milliseconds(300);
  const absl::Status status = SetValue(*redis, "k", "v", 0, deadline);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            server.address() + ": LOADING Redis is loading the dataset in memory");
  EXPECT_LE(absl::Now(), deadline + absl::Seconds(1));
  // With pauses between.
  EXPECT_GE(server.asked("SET"), 3);
  EXPECT_LE(server.asked("SET"), 10);
  EXPECT_EQ(server.connections(), 1);
}

TEST(RemoteProtocol, IsNotSentInCircles) {
  PlayedServer server(PlayedServer::Answers{{"GET", {"-MOVED 1 127.0.0.1:{port}\r\n"}},
                                            {"INCR", {"-ASK 1 127.0.0.1:{port}\r\n"}},
                                            {"ASKING", {"+OK\r\n-ASK 1 127.0.0.1:{port}\r\n"}}});
  const auto redis = MakeRedis(Url(server.port()));
  const auto soon = [] { return absl::Now() + absl::Milliseconds(300); };
  const std::string reason = absl::StrCat(server.address(), ": MOVED 1 ", server.address());
  absl::Status status = GetValue(*redis, "k", soon()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), reason);
  const int asked = server.asked("GET");
  EXPECT_GE(asked, 6);
  EXPECT_LE(asked, 15);
  status = RunOne(*redis, {"GET", "k"}, soon()).status();
  EXPECT_EQ(status.message(), reason);
  EXPECT_LE(server.asked("GET"), asked + 15);
  status = RunOne(*redis, {"INCR", "k"}, soon()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_LE(server.asked("ASKING"), 15);
}

TEST(RemoteProtocol, TellsTheServersWordsWhenItHangsUp) {
  PlayedServer server(PlayedServer::Answers{{"AUTH", {"-ERR max number of clients reached\r\n"}}});
  const auto redis = MakeRedis("redis://:secret@" + server.address());
  const absl::Status status = RunOne(*redis, {"GET", "k"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), server.address() + ": ERR max number of clients reached");
}

TEST(RemoteProtocol, SendsNothingTwiceThatMayHaveBeenDone) {
  // Closed without an answer.
  PlayedServer server(PlayedServer::Answers{{"INCR", {""}}});
  const auto redis = MakeRedis(Url(server.port()));
  const absl::Status status = RunOne(*redis, {"INCR", "k"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), server.address() + ": the server closed the connection");
  EXPECT_EQ(server.asked("INCR"), 1);
}

TEST(RemoteProtocol, TakesAnswersWhileItStillSends) {
  int port = 0;
  const int listener = Listen(&port);
  const std::string value = Bytes(4 << 20);
  constexpr std::size_t kCommands = 12;
  // Reads nothing more as long as its answers are not taken.
  std::thread server([&] {
    const int connection = ::accept(listener, nullptr, nullptr);
    std::string bytes(64, '\0');
    EXPECT_GT(::recv(connection, bytes.data(), bytes.size(), 0), 0);
    std::string answer = kNoCluster;
    const std::string echo = absl::StrCat("$", value.size(), "\r\n", value, "\r\n");
    bytes.resize(std::string("*2\r\n$4\r\nECHO\r\n").size() + echo.size());
    for (std::size_t i = 0; i <= kCommands; ++i) {
      if (::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) break;
      if (i < kCommands && ::recv(connection, bytes.data(), bytes.size(), MSG_WAITALL) <= 0) break;
      answer = echo;
    }
    ::close(connection);
  });
  {
    const auto redis = MakeRedis(Url(port));
    const std::vector<Command> commands(kCommands, Command{{"ECHO", value}, ""});
    const auto replies = redis->Run(commands, Ample());
    EXPECT_TRUE(replies.ok()) << replies.status();
    if (replies.ok()) {
      for (const Reply& reply : *replies) EXPECT_TRUE(Same(reply, value));
    }
  }
  server.join();
  ::close(listener);
}

// After an end and a reset a write raises SIGPIPE, which by default ends the process.
TEST(RemoteStream, WritesToAClosedConnectionWithoutASignal) {
  int port = 0;
  const int listener = Listen(&port);
  Resolver resolver;
  const auto stream = Stream::Connect({"127.0.0.1", port}, resolver, nullptr, Ample());
  ASSERT_TRUE(stream.ok()) << stream.status();
  char byte = 'x';
  const iovec piece = {&byte, 1};
  ASSERT_EQ(*(*stream)->Write(&piece, 1), 1u);
  const int connection = ::accept(listener, nullptr, nullptr);
  ASSERT_EQ(WaitFor(connection, POLLIN, Ample()), absl::OkStatus());
  ::shutdown(connection, SHUT_WR);
  ::close(connection);
  ::close(listener);
  // Whatever is waited for, poll() tells errors.
  ASSERT_EQ(WaitFor((*stream)->fd(), POLLPRI, Ample()), absl::OkStatus());
  EXPECT_EQ((*stream)->Write(&piece, 1).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ((*stream)->Write(&piece, 1).status().code(), absl::StatusCode::kUnavailable);
}

TEST(RemoteStream, HoldsTheSignalThatTlsWouldRaise) {
  int files[2];
  ASSERT_EQ(::pipe2(files, O_CLOEXEC), 0);
  ::close(files[0]);
  sigset_t before, after, pending;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  ASSERT_EQ(::sigismember(&before, SIGPIPE), 0);
  for (int i = 0; i < 2; ++i) {
    const NoPipeSignal outer(true);
    const NoPipeSignal inner(true);
    EXPECT_EQ(::write(files[1], "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
  }
  ::sigpending(&pending);
  EXPECT_EQ(::sigismember(&pending, SIGPIPE), 0);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(::sigismember(&after, SIGPIPE), 0);
  ::close(files[1]);
}

}  // namespace
}  // namespace parkade::remote
