// The remote tier over a Redis on loopback, against GETs and SETs of the same values in a pipeline.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "src/format/checksum.h"
#include "src/format/heap_buffer.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"
#include "tests/bench/workload.h"
#include "tiers/remote/remote_tier.h"

namespace parkade::bench {
namespace {

constexpr double kMib = 1 << 20;
// As LMCache's `bench l2` has them: its pages of 2,304 KB.
constexpr std::uint32_t kValueBytes = 2304u << 10;
constexpr double kValues = 64;
constexpr int kInFlight = 4;
constexpr std::uint32_t kRowTokens = 256;  // of one value
// A park holds at most 60 MiB.
constexpr std::uint32_t kValuesAPark = 26;

// A server of our own, without persistence.
class RedisProcess {
 public:
  static absl::StatusOr<std::unique_ptr<RedisProcess>> Start(const std::string& folder) {
    std::unique_ptr<RedisProcess> process(new RedisProcess());
    const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    const bool bound = ::bind(probe, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    ::close(probe);
    if (!bound) return absl::UnavailableError("no free port");
    process->port_ = ntohs(address.sin_port);
    const std::string port = absl::StrCat(process->port_);
    process->pid_ = ::fork();
    if (process->pid_ == 0) {
      for (const char* program : {"redis-server", "valkey-server"}) {
        ::execlp(program, program, "--port", port.c_str(), "--bind", "127.0.0.1", "--save", "",
                 "--appendonly", "no", "--dir", folder.c_str(), "--logfile", "redis.log", nullptr);
      }
      ::_exit(127);
    }
    for (int i = 0; i < 500; ++i) {
      const int fd = Connect(process->port_);
      if (fd >= 0) {
        ::close(fd);
        return process;
      }
      if (::waitpid(process->pid_, nullptr, WNOHANG) != 0) break;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return absl::NotFoundError("neither redis-server nor valkey-server could be started");
  }
  ~RedisProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  int port() const { return port_; }

  static int Connect(int port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      ::close(fd);
      return -1;
    }
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
  }

 private:
  RedisProcess() = default;
  pid_t pid_ = -1;
  int port_ = 0;
};

// One connection that speaks just enough for the reference.
class RawConnection {
 public:
  explicit RawConnection(int port) : fd_(RedisProcess::Connect(port)) {}
  ~RawConnection() {
    if (fd_ >= 0) ::close(fd_);
  }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  bool SendAll(std::vector<iovec> pieces) {
    std::size_t first = 0;
    while (first < pieces.size()) {
      const ssize_t sent = ::writev(fd_, &pieces[first], static_cast<int>(pieces.size() - first));
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return false;
      std::size_t left = static_cast<std::size_t>(sent);
      while (first < pieces.size() && left >= pieces[first].iov_len)
        left -= pieces[first++].iov_len;
      if (left == 0) continue;
      pieces[first].iov_base = static_cast<char*>(pieces[first].iov_base) + left;
      pieces[first].iov_len -= left;
    }
    return true;
  }
  bool Receive(char* to, std::size_t size) {
    while (size > 0) {
      const ssize_t got = ::recv(fd_, to, size, MSG_WAITALL);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      to += got;
      size -= static_cast<std::size_t>(got);
    }
    return true;
  }

 private:
  const int fd_;
};

std::string Name(std::size_t i) { return absl::StrFormat("raw:%06d", i); }

iovec Piece(const std::string& text) { return {const_cast<char*>(text.data()), text.size()}; }

// kInFlight connections share the values; each has one command on its way, as the tier's readers.
absl::StatusOr<double> EachValue(int port, std::size_t values,
                                 const std::function<bool(RawConnection&, std::size_t)>& work) {
  std::vector<std::unique_ptr<RawConnection>> connections;
  for (int i = 0; i < kInFlight; ++i) connections.push_back(std::make_unique<RawConnection>(port));
  std::atomic<std::size_t> next{0};
  std::atomic<bool> sound{true};
  const double begin = NowSeconds();
  std::vector<std::thread> threads;
  for (const auto& connection : connections) {
    threads.emplace_back([&, connection = connection.get()] {
      for (std::size_t i = next++; i < values && sound; i = next++) {
        if (!work(*connection, i)) sound = false;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = NowSeconds() - begin;
  if (!sound) return absl::InternalError("the reference got another answer than it should");
  return seconds;
}

absl::StatusOr<double> RawSets(int port, std::size_t values, TouchedMemory& data) {
  return EachValue(port, values, [&data](RawConnection& connection, std::size_t i) {
    const std::string head = absl::StrFormat("*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n",
                                             Name(i).size(), Name(i), kValueBytes);
    const std::string end = "\r\n";
    char reply[5];
    return connection.SendAll({Piece(head), {data.data(), kValueBytes}, Piece(end)}) &&
           connection.Receive(reply, 5) && std::memcmp(reply, "+OK\r\n", 5) == 0;
  });
}

absl::StatusOr<double> RawGets(int port, std::size_t values, TouchedMemory& data) {
  const std::string size = absl::StrFormat("$%d\r\n", kValueBytes);
  return EachValue(port, values, [&](RawConnection& connection, std::size_t i) {
    const std::string get =
        absl::StrFormat("*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", Name(i).size(), Name(i));
    char head[16];
    char* const to = data.data() + (i % kInFlight) * kValueBytes;
    return connection.SendAll({Piece(get)}) && connection.Receive(head, size.size()) &&
           std::memcmp(head, size.data(), size.size()) == 0 &&
           connection.Receive(to, kValueBytes) && connection.Receive(head, 2);
  });
}

class View : public ExtentBuffer {
 public:
  using ExtentBuffer::ExtentBuffer;
};

// Parks of values, published under a new conversation each time.
class Subject {
 public:
  Subject(std::size_t values, TouchedMemory& data, std::uint64_t seed)
      : values_(values), data_(data), seed_(seed) {
    Plane plane;
    plane.row_bytes = kValueBytes / kRowTokens;
    layout_.planes.push_back(plane);
    stages_.stages = {Stage{"CPU", {0}}};
    checksum_ = Checksum({data_.data(), kValueBytes});
  }

  absl::StatusOr<double> Publish(SharedTier& tier) {
    const PublishRequest way = NewWay();
    PublishOutcome outcome;
    const double begin = NowSeconds();
    const absl::Status published = tier.Publish(way, &outcome);
    const double seconds = NowSeconds() - begin;
    if (!published.ok()) return published;
    if (outcome.written_bytes != std::uint64_t{values_} * kValueBytes) {
      return absl::InternalError("not all was published");
    }
    keys_ = outcome.bound;
    return seconds;
  }

  // Reads all of the last published way, kInFlight at a time, and checks every value.
  absl::StatusOr<double> Restore(SharedTier& tier) {
    std::vector<std::pair<ParkKey, std::uint32_t>> extents;
    for (std::size_t i = 0; i < values_; ++i) {
      extents.emplace_back(keys_[i / kValuesAPark], i % kValuesAPark);
    }
    std::atomic<std::size_t> next{0};
    std::atomic<bool> sound{true};
    const double begin = NowSeconds();
    std::vector<std::thread> threads;
    for (int t = 0; t < kInFlight; ++t) {
      threads.emplace_back([&] {
        std::shared_ptr<ExtentBuffer> buffer = MakeHeapBuffer(kValueBytes);
        for (std::size_t i = next++; i < extents.size() && sound; i = next++) {
          const auto bytes = tier.ReadExtent(extents[i].first, extents[i].second,
                                             [&buffer](std::size_t) { return buffer; });
          if (!bytes.ok() || !(Checksum({(*bytes)->data(), (*bytes)->size()}) == checksum_)) {
            sound = false;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const double seconds = NowSeconds() - begin;
    if (!sound) return absl::InternalError("a value did not come back as it was");
    return seconds;
  }

 private:
  PublishRequest NewWay() {
    PublishRequest way;
    way.identity = {1, 2};
    const ConversationId id = RandomDigest();
    std::mt19937_64 random(++seed_);
    for (std::size_t first = 0; first < values_; first += kValuesAPark) {
      const auto begin = static_cast<std::uint32_t>(first) * kRowTokens;
      const auto count =
          static_cast<std::uint32_t>(std::min<std::size_t>(kValuesAPark, values_ - first)) *
          kRowTokens;
      way.steps.push_back({{id, static_cast<std::uint32_t>(way.steps.size())},
                           {begin, begin + count},
                           begin + count});
    }
    for (std::size_t i = 0; i < values_ * kRowTokens; ++i) {
      way.tokens.push_back(static_cast<Token>(random() % 50000));
    }
    way.read = [this, tokens = way.tokens](const PublishStep& step) {
      PublishPayload payload;
      ParkSummary& summary = payload.record.summary;
      summary.key = step.key;
      summary.identity = {1, 2};
      summary.first_token = step.tokens.begin;
      summary.token_count = step.tokens.size();
      summary.stages = stages_;
      summary.page_hashes.resize(step.tokens.end / kPageTokens - step.tokens.begin / kPageTokens);
      payload.record.tokens.assign(tokens.begin() + step.tokens.begin,
                                   tokens.begin() + step.tokens.end);
      payload.record.extents = CutIntoExtents(layout_, stages_, RowGroup::kFull, step.tokens);
      for (ExtentInfo& extent : payload.record.extents) {
        extent.checksum = checksum_;
        summary.payload_bytes += extent.raw_bytes;
        payload.extents.push_back(std::make_shared<const View>(data_.data(), kValueBytes));
      }
      return absl::StatusOr<PublishPayload>(std::move(payload));
    };
    return way;
  }

  const std::size_t values_;
  TouchedMemory& data_;
  std::uint64_t seed_;
  StateLayout layout_;
  StageMap stages_;
  Digest128 checksum_;
  std::vector<ParkKey> keys_;
};

}  // namespace

absl::StatusOr<Outcome> RunRemote(const BenchOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const auto server = RedisProcess::Start(folder->path());
  if (!server.ok()) return server.status();
  const int port = (*server)->port();
  RemoteTierOptions remote;
  remote.url.seeds = {{"127.0.0.1", port}};
  remote.deadline = absl::Seconds(30);
  const auto tier = OpenRemoteTier(remote);
  if (!tier.ok()) return tier.status();
  const auto values = static_cast<std::size_t>(std::max(8.0, kValues * options.scale));
  TouchedMemory data(kInFlight * std::size_t{kValueBytes});
  std::mt19937_64 random(options.seed);
  for (std::size_t i = 0; i + 8 <= data.size(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(data.data() + i, &word, 8);
  }
  TouchedMemory received(data.size());
  Subject subject(values, data, options.seed);
  // What a round leaves is taken away before the next one, or memory would grow with rounds.
  const auto empty = [port] {
    RawConnection connection(port);
    const std::string flush = "*1\r\n$8\r\nFLUSHALL\r\n";
    char reply[5];
    return connection.SendAll({Piece(flush)}) && connection.Receive(reply, 5);
  };
  double publish_seconds = 0;
  double restore_seconds = 0;
  std::vector<double> published, restored, sets, gets;
  for (int round = 0; round <= kRounds; ++round) {
    if (!empty()) return absl::InternalError("FLUSHALL was refused");
    // The store was wiped: the first call finds that out, and stores nothing.
    (void)subject.Publish(**tier);
    for (int part = 0; part < 2; ++part) {
      if ((round + part) % 2 == 0) {
        absl::StatusOr<double> one = subject.Publish(**tier);
        if (!one.ok()) return one.status();
        publish_seconds = *one;
        one = subject.Restore(**tier);
        if (!one.ok()) return one.status();
        restore_seconds = *one;
      } else {
        absl::StatusOr<double> one = RawSets(port, values, data);
        if (!one.ok()) return one.status();
        if (round > 0) sets.push_back(*one);
        one = RawGets(port, values, received);
        if (!one.ok()) return one.status();
        if (round > 0) gets.push_back(*one);
      }
    }
    if (round == 0) continue;  // connects, and finds memory
    published.push_back(publish_seconds);
    restored.push_back(restore_seconds);
  }
  const double mib = static_cast<double>(values) * kValueBytes / kMib;
  Outcome outcome;
  outcome.notes.push_back(absl::StrFormat("%d values of %d KiB, %d in flight, one server", values,
                                          kValueBytes >> 10, kInFlight));
  outcome.Add("restore_vs_gets", Median(gets) / Median(restored));
  outcome.Add("spill_vs_sets", Median(sets) / Median(published));
  outcome.Add("restore_mib_per_s", mib / Median(restored));
  outcome.Add("spill_mib_per_s", mib / Median(published));
  outcome.Add("gets_mib_per_s", mib / Median(gets));
  outcome.Add("sets_mib_per_s", mib / Median(sets));
  return outcome;
}

}  // namespace parkade::bench
