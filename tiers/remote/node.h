// One server and the connections to it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tiers/remote/connection.h"
#include "tiers/remote/resolver.h"
#include "tiers/remote/tls.h"
#include "tiers/remote/url.h"

namespace parkade::remote {

// What connections are made with; the same for all nodes, and outlives them.
struct NodeSettings {
  absl::Duration connect_timeout;  // for one connection, with TLS and authentication
  int most_connections = 4;
  std::unique_ptr<TlsTrust> trust;  // null: no TLS
  std::string user;
  std::string password;
  Resolver resolver;
};

// Thread safe. No lock is held over I/O.
class Node : public std::enable_shared_from_this<Node> {
 public:
  // A connection for one user; the destructor gives it back, or closes it when it is not usable.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    Connection& operator*() const { return *connection_; }
    Connection* operator->() const { return connection_.get(); }

   private:
    friend class Node;
    Lease(std::shared_ptr<Node> node, std::unique_ptr<Connection> connection)
        : node_(std::move(node)), connection_(std::move(connection)) {}
    std::shared_ptr<Node> node_;
    std::unique_ptr<Connection> connection_;
  };

  Node(const Endpoint& endpoint, NodeSettings* settings)
      : endpoint_(endpoint), address_(endpoint.ToString()), settings_(settings) {}

  // Waits for one of `most_connections`, and makes it if there are fewer. Unavailable: no
  // connection; PermissionDenied: certificate, user or password; DeadlineExceeded. Their messages
  // begin with the address.
  absl::StatusOr<Lease> Acquire(absl::Time deadline);

  const Endpoint& endpoint() const { return endpoint_; }
  const std::string& address() const { return address_; }
  const Traffic& traffic() const { return traffic_; }
  // Whether there is a connection that was not found broken yet.
  bool connected() const;
  // The same status, its message beginning with the address.
  absl::Status Named(const absl::Status& status) const;

  // When something last failed here, for those who may choose between nodes.
  void NoteFailure(absl::Time when) { failed_at_.store(absl::ToUnixNanos(when)); }
  bool FailedAfter(absl::Time when) const { return failed_at_.load() > absl::ToUnixNanos(when); }

 private:
  absl::StatusOr<std::unique_ptr<Connection>> Connect(absl::Time deadline);
  void Return(std::unique_ptr<Connection> connection);
  bool CanAcquire() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !idle_.empty() || open_ < settings_->most_connections;
  }

  const Endpoint endpoint_;
  const std::string address_;
  NodeSettings* const settings_;
  Traffic traffic_;
  std::atomic<std::int64_t> failed_at_{0};

  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_ ABSL_GUARDED_BY(mutex_);
  int open_ ABSL_GUARDED_BY(mutex_) = 0;    // idle, in use and being made
  int making_ ABSL_GUARDED_BY(mutex_) = 0;  // of those
};

}  // namespace parkade::remote
