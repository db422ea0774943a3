#include "tests/support/tcp_proxy.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/support/fail.h"

namespace parkade::test {
namespace {

constexpr std::size_t kPieceBytes = 64 << 10;
constexpr std::size_t kMostWaitingBytes = 64 << 20;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

void NoDelay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

struct TcpProxy::Way {
  struct Piece {
    absl::Time due;
    std::string bytes;
  };
  int from = -1;
  int to = -1;
  bool to_client = false;
  bool ended = false;    // nothing more is received
  bool blocked = false;  // `to` takes no more for now
  std::deque<Piece> waiting;
  std::size_t waiting_bytes = 0;
  std::size_t sent = 0;  // of the first piece
  absl::Time free_at = absl::InfinitePast();
};

struct TcpProxy::Link {
  Way up;
  Way down;
  bool answered = true;  // the next bytes of the client begin a round trip
  bool broken = false;
};

TcpProxy::TcpProxy(int target_port) : target_port_(target_port) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    ::close(listener_);
    Fail("a proxy gets no port");
  }
  port_ = ntohs(address.sin_port);
  wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  thread_ = std::thread([this] { Work(); });
}

TcpProxy::~TcpProxy() {
  Change([](Settings* settings) { settings->ending = true; });
  thread_.join();
  ::close(listener_);
  ::close(wake_);
}

void TcpProxy::Change(const std::function<void(Settings*)>& change) {
  {
    absl::MutexLock lock(&mutex_);
    change(&settings_);
  }
  const std::uint64_t one = 1;
  if (::write(wake_, &one, sizeof(one)) != sizeof(one)) Fail("a proxy can't be woken");
}

void TcpProxy::SetLatency(absl::Duration latency) {
  Change([&](Settings* settings) { settings->latency = latency; });
}
void TcpProxy::SetBytesPerSecond(std::uint64_t bytes) {
  Change([&](Settings* settings) { settings->bytes_per_second = bytes; });
}
void TcpProxy::Stop(bool stopped) {
  Change([&](Settings* settings) { settings->stopped = stopped; });
}
void TcpProxy::Cut() {
  Change([](Settings* settings) { ++settings->cuts; });
}
void TcpProxy::CutAfter(std::uint64_t bytes_to_client) {
  Change([&](Settings* settings) { settings->cut_after = bytes_to_client; });
}
void TcpProxy::Refuse(bool refused) {
  Change([&](Settings* settings) { settings->refused = refused; });
}

ProxyCounts TcpProxy::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

void TcpProxy::ResetCounts() {
  absl::MutexLock lock(&mutex_);
  counts_ = ProxyCounts();
}

void TcpProxy::Accept(bool refused) {
  const int client = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (client < 0) return;
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(target_port_);
  if (refused ||
      ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    ::close(client);
    ::close(server);
    return;
  }
  NoDelay(client);
  NoDelay(server);
  Link& link = links_.emplace_back();
  link.up.from = link.down.to = client;
  link.up.to = link.down.from = server;
  link.down.to_client = true;
  absl::MutexLock lock(&mutex_);
  ++counts_.connections;
}

void TcpProxy::Receive(Link* link, Way* way, const Settings& settings, absl::Time now) {
  char buffer[kPieceBytes];
  const ssize_t got = ::recv(way->from, buffer, sizeof(buffer), MSG_DONTWAIT);
  if (got < 0) {
    link->broken = link->broken || (errno != EAGAIN && errno != EINTR);
    return;
  }
  if (got == 0) {
    way->ended = true;
    return;
  }
  const auto size = static_cast<std::size_t>(got);
  way->free_at = std::max(way->free_at, now);
  if (settings.bytes_per_second > 0) {
    way->free_at +=
        absl::Seconds(static_cast<double>(size) / static_cast<double>(settings.bytes_per_second));
  }
  way->waiting.push_back({way->free_at + settings.latency, std::string(buffer, size)});
  way->waiting_bytes += size;
  if (way->to_client) return;
  absl::MutexLock lock(&mutex_);
  counts_.bytes_to_server += size;
  if (link->answered) ++counts_.round_trips;
  link->answered = false;
}

void TcpProxy::Deliver(Link* link, Way* way, absl::Time now) {
  way->blocked = false;
  while (!way->waiting.empty() && way->waiting.front().due <= now) {
    const std::string& bytes = way->waiting.front().bytes;
    std::size_t size = bytes.size() - way->sent;
    std::uint64_t cut_after = 0;
    if (way->to_client) {
      absl::MutexLock lock(&mutex_);
      cut_after = settings_.cut_after;
    }
    if (cut_after > 0) size = std::min<std::size_t>(size, cut_after);
    const ssize_t done =
        ::send(way->to, bytes.data() + way->sent, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (done < 0) {
      way->blocked = errno == EAGAIN;
      link->broken = link->broken || (errno != EAGAIN && errno != EINTR);
      return;
    }
    way->sent += static_cast<std::size_t>(done);
    way->waiting_bytes -= static_cast<std::size_t>(done);
    if (way->sent == bytes.size()) {
      way->waiting.pop_front();
      way->sent = 0;
    }
    if (!way->to_client) continue;
    link->answered = true;
    absl::MutexLock lock(&mutex_);
    counts_.bytes_to_client += static_cast<std::uint64_t>(done);
    if (cut_after == 0) continue;
    settings_.cut_after -= static_cast<std::uint64_t>(done);
    link->broken = link->broken || settings_.cut_after == 0;
    if (link->broken) return;
  }
  if (way->ended && way->waiting.empty()) ::shutdown(way->to, SHUT_WR);
}

void TcpProxy::Serve(Link* link, const Settings& settings, absl::Time now) {
  for (Way* way : {&link->up, &link->down}) {
    if (!way->ended && way->waiting_bytes < kMostWaitingBytes) {
      Receive(link, way, settings, now);
    }
    Deliver(link, way, now);
  }
  const bool over =
      link->up.ended && link->down.ended && link->up.waiting.empty() && link->down.waiting.empty();
  link->broken = link->broken || over;
}

void TcpProxy::Work() {
  int cuts = 0;
  while (true) {
    Settings settings;
    {
      absl::MutexLock lock(&mutex_);
      settings = settings_;
    }
    const absl::Time now = absl::Now();
    absl::Time due = absl::InfiniteFuture();
    std::vector<pollfd> files = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
    for (auto link = links_.begin(); link != links_.end();) {
      if (!settings.stopped) Serve(&*link, settings, now);
      if (link->broken || cuts != settings.cuts || settings.ending) {
        ::close(link->up.from);
        ::close(link->up.to);
        link = links_.erase(link);
        continue;
      }
      for (const Way* way : {&link->up, &link->down}) {
        if (settings.stopped) continue;
        if (!way->ended && way->waiting_bytes < kMostWaitingBytes) {
          files.push_back({way->from, POLLIN, 0});
        }
        if (way->blocked) files.push_back({way->to, POLLOUT, 0});
        if (!way->blocked && !way->waiting.empty()) due = std::min(due, way->waiting.front().due);
      }
      ++link;
    }
    cuts = settings.cuts;
    if (settings.ending) return;
    const timespec timeout =
        absl::ToTimespec(std::clamp(due - absl::Now(), absl::ZeroDuration(), absl::Seconds(3600)));
    if (::ppoll(files.data(), files.size(), &timeout, nullptr) < 0) continue;
    std::uint64_t woken;
    if (files[1].revents != 0 && ::read(wake_, &woken, sizeof(woken)) != sizeof(woken)) continue;
    if (files[0].revents != 0) Accept(settings.refused);
  }
}

}  // namespace parkade::test
