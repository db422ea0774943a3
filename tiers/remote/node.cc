#include "tiers/remote/node.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace parkade::remote {
namespace {

absl::Status Authenticate(Connection* connection, const NodeSettings& settings,
                          absl::Time deadline) {
  if (settings.password.empty()) return absl::OkStatus();
  std::vector<std::string_view> words = {"AUTH"};
  if (!settings.user.empty()) words.push_back(settings.user);
  words.push_back(settings.password);
  Request request;
  request.Add(words);
  connection->Start(std::move(request), 1);
  const absl::Status status = Connection::Finish(absl::MakeConstSpan(&connection, 1), deadline)[0];
  if (!status.ok()) return status;
  const std::vector<Reply> replies = connection->TakeReplies();
  if (replies[0].kind != Reply::Kind::kError) return absl::OkStatus();
  // A server that is full says that in place of any answer.
  const bool full = replies[0].bytes.rfind("ERR max number of clients", 0) == 0;
  return full ? absl::UnavailableError(replies[0].bytes)
              : absl::PermissionDeniedError(replies[0].bytes);
}

}  // namespace

Node::Lease::~Lease() {
  if (connection_ != nullptr) node_->Return(std::move(connection_));
}

absl::Status Node::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(address_, ": ", status.message()));
}

bool Node::connected() const {
  absl::MutexLock lock(&mutex_);
  return open_ > making_;
}

void Node::Return(std::unique_ptr<Connection> connection) {
  if (!connection->usable()) connection.reset();
  absl::MutexLock lock(&mutex_);
  if (connection != nullptr) {
    idle_.push_back(std::move(connection));
  } else {
    --open_;
  }
}

absl::StatusOr<Node::Lease> Node::Acquire(absl::Time deadline) {
  while (true) {
    std::unique_ptr<Connection> connection;
    {
      absl::MutexLock lock(&mutex_);
      if (!mutex_.AwaitWithDeadline(absl::Condition(this, &Node::CanAcquire), deadline)) {
        return Named(absl::DeadlineExceededError("all connections are in use"));
      }
      if (idle_.empty()) {
        ++open_;
        ++making_;
      } else {
        connection = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (connection == nullptr) break;
    if (connection->Quiet()) return Lease(shared_from_this(), std::move(connection));
    // The server ended it while it lay idle.
    connection.reset();
    absl::MutexLock lock(&mutex_);
    --open_;
  }
  absl::StatusOr<std::unique_ptr<Connection>> made = Connect(deadline);
  absl::MutexLock lock(&mutex_);
  --making_;
  if (made.ok()) return Lease(shared_from_this(), *std::move(made));
  --open_;
  return Named(made.status());
}

absl::StatusOr<std::unique_ptr<Connection>> Node::Connect(absl::Time deadline) {
  const absl::Time own = absl::Now() + settings_->connect_timeout;
  const absl::Time until = std::min(own, deadline);
  absl::StatusOr<std::unique_ptr<Stream>> stream =
      Stream::Connect(endpoint_, settings_->resolver, settings_->trust.get(), until);
  absl::Status status = stream.status();
  if (status.ok()) {
    auto connection = std::make_unique<Connection>(*std::move(stream), &traffic_);
    status = Authenticate(connection.get(), *settings_, until);
    if (status.ok()) return connection;
  }
  if (absl::IsDeadlineExceeded(status) && own < deadline) {
    return absl::UnavailableError(
        absl::StrCat("no connection within ", absl::FormatDuration(settings_->connect_timeout)));
  }
  return status;
}

}  // namespace parkade::remote
