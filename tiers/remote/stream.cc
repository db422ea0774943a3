#include "tiers/remote/stream.h"

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace parkade::remote {
namespace {

// A peer that vanished without a word is noticed within a minute.
constexpr int kKeepAliveIdleSeconds = 30;

absl::Status Errno(int error) { return absl::UnavailableError(std::strerror(error)); }

// Connects one address. The result is a non-blocking socket that the caller closes.
absl::StatusOr<int> ConnectAddress(const SocketAddress& address, absl::Time deadline) {
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Errno(errno);
  absl::Cleanup close = [fd] { ::close(fd); };
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address.address), address.size) != 0) {
    if (errno != EINPROGRESS) return Errno(errno);
    const absl::Status status = WaitFor(fd, POLLOUT, deadline);
    if (!status.ok()) return status;
    int error = 0;
    socklen_t size = sizeof(error);
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return Errno(errno);
    if (error != 0) return Errno(error);
  }
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kKeepAliveIdleSeconds,
               sizeof(kKeepAliveIdleSeconds));
  std::move(close).Cancel();
  return fd;
}

absl::StatusOr<int> ConnectAny(const std::vector<SocketAddress>& addresses, absl::Time deadline) {
  absl::Status first;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    // A silent address leaves time for those after it.
    const absl::Time now = absl::Now();
    const auto left = static_cast<std::int64_t>(addresses.size() - i);
    absl::StatusOr<int> fd = ConnectAddress(addresses[i], now + (deadline - now) / left);
    if (fd.ok()) return fd;
    if (first.ok()) first = fd.status();
  }
  return first;
}

}  // namespace

absl::Status WaitFor(int fd, short events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    pollfd one = {fd, events, 0};
    const timespec timeout = absl::ToTimespec(std::min(left, absl::Hours(1)));
    const int ready = ::ppoll(&one, 1, &timeout, nullptr);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Errno(errno);
  }
}

void Stream::Free::operator()(redisContext* context) const { redisFree(context); }

Stream::Stream(int fd) : fd_(fd) {
  redisOptions options = {};
  options.type = REDIS_CONN_USERFD;
  options.options = REDIS_OPT_NONBLOCK;
  options.endpoint.fd = fd;
  context_.reset(redisConnectWithOptions(&options));
  if (context_ == nullptr) ::close(fd);
}

Stream::~Stream() {
  const NoPipeSignal no_signal(tls());
  context_.reset();
}

absl::StatusOr<std::unique_ptr<Stream>> Stream::Connect(const Endpoint& endpoint,
                                                        Resolver& resolver, const TlsTrust* trust,
                                                        absl::Time deadline) {
  absl::StatusOr<std::vector<SocketAddress>> addresses = resolver.Resolve(endpoint, deadline);
  if (!addresses.ok()) return addresses.status();
  const absl::StatusOr<int> fd = ConnectAny(*addresses, deadline);
  if (!fd.ok()) return fd.status();
  std::unique_ptr<Stream> stream(new Stream(*fd));
  if (stream->context_ == nullptr || stream->context_->err != 0) {
    return absl::UnavailableError("no memory for a connection");
  }
  if (trust != nullptr) {
    const absl::Status status = stream->StartTls(*trust, endpoint.host, deadline);
    if (!status.ok()) return status;
  }
  return stream;
}

absl::Status Stream::StartTls(const TlsTrust& trust, const std::string& host, absl::Time deadline) {
  const NoPipeSignal no_signal(true);
  SSL* const session = trust.NewSession(host);
  if (session == nullptr) return absl::UnavailableError("no memory for TLS");
  ::ERR_clear_error();
  if (redisInitiateSSL(context_.get(), session) != REDIS_OK) {
    const absl::Status status = HandshakeError(session);
    ::SSL_free(session);
    return status;
  }
  session_ = session;
  while (true) {
    ::ERR_clear_error();
    const int done = ::SSL_do_handshake(session);
    if (done == 1) return absl::OkStatus();
    const int error = ::SSL_get_error(session, done);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      return HandshakeError(session);
    }
    const absl::Status status =
        WaitFor(fd_, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline);
    if (!status.ok()) return status;
  }
}

absl::StatusOr<std::size_t> Stream::Read(char* to, std::size_t size) {
  if (tls()) {
    // Whatever another session of this thread left would be taken for this one's.
    ::ERR_clear_error();
    size = std::min<std::size_t>(size, INT_MAX);
  }
  const ssize_t got = context_->funcs->read(context_.get(), to, size);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got == 0) {
    read_must_write_ = tls() && SSL_want_write(session_);
    return 0;
  }
  if (context_->err == REDIS_ERR_EOF) {
    return absl::UnavailableError("the server closed the connection");
  }
  return absl::UnavailableError(
      absl::StrCat("the connection broke: ", absl::string_view(context_->errstr)));
}

absl::StatusOr<std::size_t> Stream::Write(const iovec* pieces, std::size_t count) {
  if (count == 0) return 0;
  if (!tls()) {
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(pieces);
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
    return absl::UnavailableError(absl::StrCat("the connection broke: ", std::strerror(errno)));
  }
  ::ERR_clear_error();
  const int size = static_cast<int>(std::min<std::size_t>(pieces[0].iov_len, INT_MAX));
  const int sent = ::SSL_write(session_, pieces[0].iov_base, size);
  if (sent > 0) return static_cast<std::size_t>(sent);
  const int error = ::SSL_get_error(session_, sent);
  write_must_read_ = error == SSL_ERROR_WANT_READ;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return 0;
  return absl::UnavailableError("the TLS connection broke");
}

bool Stream::Quiet() {
  pollfd one = {fd_, POLLIN, 0};
  if (::poll(&one, 1, 0) == 0) return true;
  if (!tls()) return false;
  // A server may send tickets for later sessions at any time.
  const NoPipeSignal no_signal(true);
  ::ERR_clear_error();
  char byte;
  const int got = ::SSL_peek(session_, &byte, 1);
  return got <= 0 && ::SSL_get_error(session_, got) == SSL_ERROR_WANT_READ;
}

short Stream::read_events() const { return read_must_write_ ? POLLOUT : POLLIN; }
short Stream::write_events() const { return write_must_read_ ? POLLIN : POLLOUT; }

void Stream::WakeAt(std::size_t bytes) {
  // TLS reads whole records, which may be shorter.
  if (tls() || bytes == wake_at_) return;
  const int value = static_cast<int>(std::min<std::size_t>(bytes, INT_MAX));
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value));
  wake_at_ = bytes;
}

}  // namespace parkade::remote
