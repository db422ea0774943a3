#include "tests/bench/remote_reference.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/format/checksum.h"
#include "tests/bench/measure.h"
#include "tests/support/redis_server.h"
#include "tiers/remote/slots.h"

namespace parkade::bench {
namespace {

constexpr std::size_t kWakeBytes = 1 << 20;

int Connect(int port) {
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

iovec Piece(const std::string& text) { return {const_cast<char*>(text.data()), text.size()}; }

std::string Name(std::size_t i) { return absl::StrFormat("raw:%06d", i); }

}  // namespace

RawConnection::RawConnection(int port) : fd_(Connect(port)) {}

RawConnection::~RawConnection() {
  if (fd_ >= 0) ::close(fd_);
}

bool RawConnection::SendAll(std::vector<iovec> pieces) {
  std::size_t first = 0;
  while (first < pieces.size()) {
    const ssize_t sent = ::writev(fd_, &pieces[first], static_cast<int>(pieces.size() - first));
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    std::size_t left = static_cast<std::size_t>(sent);
    while (first < pieces.size() && left >= pieces[first].iov_len) left -= pieces[first++].iov_len;
    if (left == 0) continue;
    pieces[first].iov_base = static_cast<char*>(pieces[first].iov_base) + left;
    pieces[first].iov_len -= left;
  }
  return true;
}

// How many bytes wake a reader; one value alone is there in half the time when it is not woken for
// each of its packets.
void RawConnection::WakeAt(std::size_t bytes) {
  const int value = static_cast<int>(bytes);
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value));
}

bool RawConnection::ReceiveValue(char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(fd_, to, size, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return false;
    if (got > 0) {
      to += got;
      size -= static_cast<std::size_t>(got);
      continue;
    }
    WakeAt(std::min(size, kWakeBytes));
    pollfd one = {fd_, POLLIN, 0};
    ::poll(&one, 1, -1);
  }
  WakeAt(1);
  return true;
}

bool RawConnection::Receive(char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(fd_, to, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool RawConnection::ReceiveOk() {
  char reply[5];
  return Receive(reply, sizeof(reply)) && std::memcmp(reply, "+OK\r\n", sizeof(reply)) == 0;
}

bool RawConnection::Set(const std::string& name, absl::Span<const char> value) {
  const std::string head =
      absl::StrFormat("*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n", name.size(), name, value.size());
  const std::string end = "\r\n";
  return SendAll({Piece(head), {const_cast<char*>(value.data()), value.size()}, Piece(end)}) &&
         ReceiveOk();
}

bool RawConnection::Get(const std::string& name, char* to, std::size_t size) {
  const std::string get = absl::StrFormat("*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", name.size(), name);
  const std::string line = absl::StrFormat("$%d\r\n", size);
  std::string head(line.size(), 0);
  char end[2];
  return SendAll({Piece(get)}) && Receive(head.data(), head.size()) && head == line &&
         ReceiveValue(to, size) && Receive(end, sizeof(end));
}

bool RawConnection::FlushAll() {
  const std::string flush = "*1\r\n$8\r\nFLUSHALL\r\n";
  return SendAll({Piece(flush)}) && ReceiveOk();
}

RawValues::RawValues(std::vector<int> ports, std::size_t values, TouchedMemory& data,
                     TouchedMemory& received)
    : ports_(std::move(ports)), values_(values), data_(data), received_(received) {}

std::size_t RawValues::MasterOf(const std::string& name) const {
  if (ports_.size() == 1) return 0;
  return static_cast<std::size_t>(test::RedisCluster::MasterOf(remote::SlotOf(name)));
}

// kInFlight workers share the values; each has one command on its way, as the tier's readers.
absl::StatusOr<double> RawValues::EachValue(
    const std::function<bool(RawConnection&, std::size_t, int)>& work) {
  std::vector<std::vector<std::unique_ptr<RawConnection>>> connections(kInFlight);
  for (auto& own : connections) {
    for (const int port : ports_) own.push_back(std::make_unique<RawConnection>(port));
  }
  std::atomic<std::size_t> next{0};
  std::atomic<bool> sound{true};
  const double begin = NowSeconds();
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kInFlight; ++worker) {
    threads.emplace_back([&, worker] {
      const auto& own = connections[static_cast<std::size_t>(worker)];
      for (std::size_t i = next++; i < values_ && sound; i = next++) {
        if (!work(*own[MasterOf(Name(i))], i, worker)) sound = false;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = NowSeconds() - begin;
  if (!sound) return absl::InternalError("the reference got another answer than it should");
  return seconds;
}

absl::StatusOr<double> RawValues::Sets() {
  return EachValue([this](RawConnection& connection, std::size_t i, int) {
    return connection.Set(Name(i), {data_.data(), kValueBytes});
  });
}

absl::StatusOr<double> RawValues::Gets() {
  return EachValue([this](RawConnection& connection, std::size_t i, int worker) {
    char* const to = received_.data() + static_cast<std::size_t>(worker) * kValueBytes;
    return connection.Get(Name(i), to, kValueBytes);
  });
}

absl::Status RawValues::Empty() {
  for (const int port : ports_) {
    if (!RawConnection(port).FlushAll()) return absl::InternalError("FLUSHALL was refused");
  }
  return absl::OkStatus();
}

MadeUpChats::MadeUpChats(std::uint32_t row_bytes, absl::Span<const char> data) : data_(data) {
  Plane plane;
  plane.row_bytes = row_bytes;
  layout_.planes.push_back(plane);
  stages_.stages = {Stage{"CPU", {0}}};
}

std::vector<ExtentInfo> MadeUpChats::Extents(const TokenRange& tokens) const {
  std::vector<ExtentInfo> extents = CutIntoExtents(layout_, stages_, RowGroup::kFull, tokens);
  for (ExtentInfo& extent : extents) {
    extent.checksum = Checksum(data_.subspan(0, extent.raw_bytes));
  }
  return extents;
}

PublishRequest MadeUpChats::Make(std::uint32_t tokens, std::uint32_t park_tokens,
                                 std::uint64_t seed) const {
  PublishRequest way;
  way.identity = {1, 2};
  const ConversationId id = RandomDigest();
  std::mt19937_64 random(seed);
  for (std::uint32_t i = 0; i < tokens; ++i) {
    way.tokens.push_back(static_cast<Token>(random() % 50000));
  }
  // Whoever publishes has its extents' checksums already.
  std::vector<std::vector<ExtentInfo>> extents;
  for (std::uint32_t begin = 0; begin < tokens; begin += park_tokens) {
    const std::uint32_t end = std::min(begin + park_tokens, tokens);
    way.steps.push_back({{id, static_cast<std::uint32_t>(way.steps.size())}, {begin, end}, end});
    extents.push_back(Extents({begin, end}));
  }
  way.read = [this, all = way.tokens, extents = std::move(extents)](const PublishStep& step) {
    PublishPayload payload;
    ParkSummary& summary = payload.record.summary;
    summary.key = step.key;
    summary.identity = {1, 2};
    summary.first_token = step.tokens.begin;
    summary.token_count = step.tokens.size();
    summary.stages = stages_;
    summary.page_hashes.resize(step.tokens.end / kPageTokens - step.tokens.begin / kPageTokens);
    payload.record.tokens.assign(all.begin() + step.tokens.begin, all.begin() + step.tokens.end);
    payload.record.extents = extents[step.key.park];
    for (const ExtentInfo& extent : payload.record.extents) {
      summary.payload_bytes += extent.raw_bytes;
      // Nobody writes to what is published.
      payload.extents.push_back(
          std::make_shared<const View>(const_cast<char*>(data_.data()), extent.raw_bytes));
    }
    return absl::StatusOr<PublishPayload>(std::move(payload));
  };
  return way;
}

void FillRandom(TouchedMemory& memory, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i + 8 <= memory.size(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(memory.data() + i, &word, 8);
  }
}

}  // namespace parkade::bench
