// Bytes to and from one server, with TLS or without.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tiers/remote/resolver.h"
#include "tiers/remote/tls.h"
#include "tiers/remote/url.h"

struct redisContext;
struct ssl_st;

namespace parkade::remote {

// Waits until poll() tells one of `events` of the file or that it is broken. DeadlineExceeded.
absl::Status WaitFor(int fd, short events, absl::Time deadline);

// Never blocks but in Connect. After any error it is of no more use. One thread at a time.
class Stream {
 public:
  // All of it: name, connection, TLS with the server's certificate checked (`trust` null: no TLS).
  // Unavailable, PermissionDenied (certificate), DeadlineExceeded.
  static absl::StatusOr<std::unique_ptr<Stream>> Connect(const Endpoint& endpoint,
                                                         Resolver& resolver, const TlsTrust* trust,
                                                         absl::Time deadline);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // How many bytes were moved; 0: none now, wait for `read_events()` or `write_events()`.
  // Unavailable: the connection ended or broke. With TLS the caller holds a NoPipeSignal.
  absl::StatusOr<std::size_t> Read(char* to, std::size_t size);
  absl::StatusOr<std::size_t> Write(const iovec* pieces, std::size_t count);

  // False: bytes nobody asked for have come, or the end. Costs a system call.
  bool Quiet();

  int fd() const { return fd_; }
  bool tls() const { return session_ != nullptr; }
  // What poll() must wait for: with TLS a read may have to write first, and the other way.
  short read_events() const;
  short write_events() const;
  // How few bytes wake poll() for reading (a large value needs no waking for every packet); 1: any.
  void WakeAt(std::size_t bytes);

 private:
  explicit Stream(int fd);
  absl::Status StartTls(const TlsTrust& trust, const std::string& host, absl::Time deadline);

  struct Free {
    void operator()(redisContext* context) const;
  };
  const int fd_;  // the context's
  std::unique_ptr<redisContext, Free> context_;
  ssl_st* session_ = nullptr;  // the context's
  bool read_must_write_ = false;
  bool write_must_read_ = false;
  std::size_t wake_at_ = 1;
};

}  // namespace parkade::remote
