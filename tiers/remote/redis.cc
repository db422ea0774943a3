#include "tiers/remote/redis.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tiers/remote/cluster.h"
#include "tiers/remote/node.h"
#include "tiers/remote/pipeline.h"
#include "tiers/remote/tls.h"
#include "tiers/remote/verdict.h"

namespace parkade::remote {
namespace {

// One line, as it may be shown: a server's text is its own.
absl::Status Refusal(const std::string& error) {
  const bool full = error.rfind("OOM", 0) == 0;
  return full ? absl::ResourceExhaustedError(error) : absl::FailedPreconditionError(error);
}

// One GET at one node. Nothing: the value is there; else the reply.
absl::StatusOr<std::optional<Reply>> GetFrom(const std::shared_ptr<Node>& node, bool asking,
                                             std::string_view key, const ValueTarget& target) {
  absl::StatusOr<Node::Lease> lease = node->Acquire(target.first_byte);
  if (!lease.ok()) return lease.status();
  Connection* const connection = &**lease;
  if (asking) {
    Request request;
    request.Add({"ASKING"});
    connection->Start(std::move(request), 1);
    const absl::Status status =
        Connection::Finish(absl::MakeConstSpan(&connection, 1), target.first_byte)[0];
    if (!status.ok()) return node->Named(status);
  }
  Request request;
  request.Add({"GET", key});
  connection->Start(std::move(request), 1);
  absl::StatusOr<std::optional<Reply>> reply = connection->FinishValue(target);
  if (!reply.ok()) return node->Named(reply.status());
  return reply;
}

}  // namespace

Redis::Redis(const RemoteUrl& url)
    : settings_(std::make_unique<NodeSettings>()),
      cluster_(std::make_unique<Cluster>(url.seeds, settings_.get())) {}

Redis::~Redis() = default;

absl::StatusOr<std::unique_ptr<Redis>> Redis::Create(const RemoteUrl& url,
                                                     const RedisOptions& options) {
  if (url.seeds.empty()) return absl::InvalidArgumentError("no server is named");
  if (!url.password_file.empty() && url.password.empty()) {
    return absl::InvalidArgumentError("the password file is empty or was not read");
  }
  if (options.connections_per_node < 1) {
    return absl::InvalidArgumentError("connections_per_node must be 1 or more");
  }
  std::unique_ptr<Redis> redis(new Redis(url));
  NodeSettings& settings = *redis->settings_;
  settings.connect_timeout = options.connect_timeout;
  settings.most_connections = options.connections_per_node;
  settings.user = url.user;
  settings.password = url.password;
  if (url.tls) {
    absl::StatusOr<std::unique_ptr<TlsTrust>> trust = TlsTrust::Create(options.tls_ca_file);
    if (!trust.ok()) return trust.status();
    settings.trust = *std::move(trust);
  }
  return redis;
}

absl::StatusOr<std::vector<Reply>> Redis::Run(absl::Span<const Command> commands,
                                              absl::Time deadline) {
  return Pipeline(cluster_.get(), commands, deadline).Run();
}

absl::Status Redis::Get(std::string_view key, absl::Time first_byte,
                        const std::function<char*(std::size_t size)>& allocate,
                        const std::function<absl::Time(std::size_t size)>& deadline_after) {
  bool begun = false;
  const ValueTarget target = {first_byte,
                              [&](std::size_t size) {
                                begun = true;
                                return allocate(size);
                              },
                              deadline_after};
  Pauses pauses(first_byte);
  std::shared_ptr<Node> node;
  bool asking = false;
  while (true) {
    if (absl::Now() >= first_byte) return absl::DeadlineExceededError("no answer in time");
    absl::Status status = cluster_->Learn(first_byte);
    if (!status.ok()) return status;
    if (node == nullptr) node = cluster_->NodeOf(key);
    const absl::StatusOr<std::optional<Reply>> reply = GetFrom(node, asking, key, target);
    if (absl::IsResourceExhausted(reply.status())) return reply.status();  // the caller's wish
    if (!reply.ok()) {
      cluster_->NoteFailure(node);
      const bool again = !begun && absl::IsUnavailable(reply.status());
      if (!again || !cluster_->Replaced(node, first_byte)) return reply.status();
      node = nullptr;
      asking = false;
      continue;
    }
    if (!reply->has_value()) return absl::OkStatus();
    if ((*reply)->kind == Reply::Kind::kNil) return absl::NotFoundError("no such key");
    const Verdict verdict = Judge(**reply, node, cluster_.get(), first_byte);
    const std::string& text = (*reply)->bytes;
    if (verdict.kind == Verdict::Kind::kDenied) {
      return node->Named(absl::PermissionDeniedError(text));
    }
    if (verdict.kind == Verdict::Kind::kFinal) return node->Named(Refusal(text));
    const bool redirected = verdict.kind == Verdict::Kind::kRedirect;
    status = pauses.Before(redirected, absl::StrCat(node->address(), ": ", text));
    if (!status.ok()) return status;
    node = verdict.to;
    asking = verdict.asking;
  }
}

absl::Status Redis::Set(std::string_view key, absl::Span<const char> value, std::int64_t ttl_ms,
                        absl::Time deadline) {
  Command command;
  command.key = key;
  const std::string_view bytes(value.data(), value.size());
  const std::string ttl = absl::StrCat(ttl_ms);
  if (ttl_ms > 0) {
    // The value comes last: a server takes a large one by itself, and reads again for what follows.
    command.words = {"PSETEX", key, ttl, bytes};
  } else {
    command.words = {"SET", key, bytes};
  }
  const absl::StatusOr<std::vector<Reply>> replies =
      Run(absl::MakeConstSpan(&command, 1), deadline);
  if (!replies.ok()) return replies.status();
  const Reply& reply = (*replies)[0];
  return reply.kind == Reply::Kind::kError ? Refusal(reply.bytes) : absl::OkStatus();
}

std::vector<NodeInfo> Redis::nodes() const {
  std::vector<NodeInfo> infos;
  for (const std::shared_ptr<Node>& node : cluster_->nodes()) {
    infos.push_back({node->address(), node->traffic().bytes_in.load(std::memory_order_relaxed),
                     node->traffic().bytes_out.load(std::memory_order_relaxed), node->connected()});
  }
  return infos;
}

}  // namespace parkade::remote
