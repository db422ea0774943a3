#include "tiers/remote/cluster.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace parkade::remote {
namespace {

constexpr absl::Duration kBetweenMoves = absl::Seconds(1);
// How long a node that failed is asked last.
constexpr absl::Duration kAvoided = absl::Seconds(5);

bool Says(const Reply& reply, std::string_view code) {
  return reply.kind == Reply::Kind::kError &&
         std::string_view(reply.bytes).substr(0, code.size()) == code;
}

}  // namespace

Cluster::Cluster(std::vector<Endpoint> seeds, NodeSettings* settings)
    : seeds_(std::move(seeds)), settings_(settings) {
  absl::MutexLock lock(&mutex_);
  owner_.fill(SlotMap::kNobody);
}

std::shared_ptr<Node> Cluster::NodeAtLocked(const Endpoint& endpoint) {
  std::shared_ptr<Node>& node = known_[endpoint.ToString()];
  if (node == nullptr) node = std::make_shared<Node>(endpoint, settings_);
  return node;
}

std::shared_ptr<Node> Cluster::NodeAt(const Endpoint& endpoint) {
  absl::MutexLock lock(&mutex_);
  return NodeAtLocked(endpoint);
}

std::shared_ptr<Node> Cluster::NodeOf(std::string_view key) {
  absl::MutexLock lock(&mutex_);
  if (kind_ == Kind::kCluster && !key.empty()) {
    const std::uint16_t owner = owner_[static_cast<std::size_t>(SlotOf(key))];
    if (owner != SlotMap::kNobody) return masters_[owner];
  }
  const absl::Time recently = absl::Now() - kAvoided;
  for (const std::shared_ptr<Node>& node : masters_) {
    if (!node->FailedAfter(recently)) return node;
  }
  return masters_.empty() ? NodeAtLocked(seeds_[0]) : masters_[0];
}

std::vector<std::shared_ptr<Node>> Cluster::nodes() const {
  absl::MutexLock lock(&mutex_);
  if (kind_ != Kind::kUnknown) return masters_;
  std::vector<std::shared_ptr<Node>> nodes;
  for (const Endpoint& seed : seeds_) {
    const auto it = known_.find(seed.ToString());
    nodes.push_back(it != known_.end() ? it->second : std::make_shared<Node>(seed, settings_));
  }
  return nodes;
}

std::vector<std::shared_ptr<Node>> Cluster::Sources() {
  std::vector<std::shared_ptr<Node>> sources;
  const auto add = [&sources](std::shared_ptr<Node> node) {
    if (std::find(sources.begin(), sources.end(), node) == sources.end()) {
      sources.push_back(std::move(node));
    }
  };
  if (kind_ == Kind::kCluster) {
    for (const std::shared_ptr<Node>& master : masters_) add(master);
  }
  for (const Endpoint& seed : seeds_) add(NodeAtLocked(seed));
  if (kind_ == Kind::kCluster) {
    for (const Endpoint& replica : replicas_) add(NodeAtLocked(replica));
  }
  const absl::Time recently = absl::Now() - kAvoided;
  std::stable_partition(sources.begin(), sources.end(), [&](const std::shared_ptr<Node>& node) {
    return !node->FailedAfter(recently);
  });
  return sources;
}

absl::Status Cluster::Learn(absl::Time deadline) {
  std::uint64_t version;
  {
    absl::MutexLock lock(&mutex_);
    if (kind_ != Kind::kUnknown && !stale_) return absl::OkStatus();
    version = version_;
  }
  const absl::Status status = Refresh(version, deadline);
  absl::MutexLock lock(&mutex_);
  return kind_ != Kind::kUnknown ? absl::OkStatus() : status;
}

absl::Status Cluster::Refresh(std::uint64_t seen_version, absl::Time deadline) {
  std::vector<std::shared_ptr<Node>> sources;
  {
    absl::MutexLock lock(&mutex_);
    if (version_ != seen_version) return absl::OkStatus();
    if (refreshing_) {
      if (!mutex_.AwaitWithDeadline(absl::Condition(this, &Cluster::NotRefreshing), deadline)) {
        return absl::DeadlineExceededError("the cluster's map was not read in time");
      }
      return refreshed_;
    }
    refreshing_ = true;
    sources = Sources();
  }
  const absl::Status status = AskEach(sources, deadline);
  absl::MutexLock lock(&mutex_);
  refreshing_ = false;
  refreshed_ = status;
  return status;
}

absl::Status Cluster::AskEach(const std::vector<std::shared_ptr<Node>>& sources,
                              absl::Time deadline) {
  absl::Status worst = absl::UnavailableError("no server to ask");
  for (std::size_t i = 0; i < sources.size(); ++i) {
    // A silent one leaves time for those after it.
    const absl::Time now = absl::Now();
    const auto left = static_cast<std::int64_t>(sources.size() - i);
    const absl::Status status = Ask(sources[i], now + (deadline - now) / left);
    if (status.ok()) return status;
    NoteFailure(sources[i]);
    // What needs a person is what is told.
    if (i == 0 || absl::IsPermissionDenied(status)) worst = status;
  }
  return worst;
}

absl::Status Cluster::Ask(const std::shared_ptr<Node>& source, absl::Time deadline) {
  Reply reply;
  {
    const absl::StatusOr<Node::Lease> lease = source->Acquire(deadline);
    if (!lease.ok()) return lease.status();
    Request request;
    request.Add({"CLUSTER", "SLOTS"});
    Connection* const connection = &**lease;
    connection->Start(std::move(request), 1);
    const absl::Status status =
        Connection::Finish(absl::MakeConstSpan(&connection, 1), deadline)[0];
    if (!status.ok()) return source->Named(status);
    reply = std::move(connection->TakeReplies()[0]);
  }
  if (Says(reply, "NOAUTH")) {
    return source->Named(absl::PermissionDeniedError(reply.bytes));
  }
  if (Says(reply, "LOADING") || Says(reply, "ERR max number of clients")) {
    return source->Named(absl::UnavailableError(reply.bytes));
  }
  if (reply.kind == Reply::Kind::kError) {
    // No cluster, or a proxy or rights without this command: then all goes to this one server.
    InstallSingle(source);
    return absl::OkStatus();
  }
  const absl::StatusOr<SlotMap> map = ParseSlots(reply, source->endpoint());
  if (!map.ok()) return source->Named(map.status());
  InstallMap(*map);
  return absl::OkStatus();
}

void Cluster::InstallSingle(const std::shared_ptr<Node>& server) {
  absl::MutexLock lock(&mutex_);
  kind_ = Kind::kSingle;
  masters_ = {server};
  replicas_.clear();
  owner_.fill(SlotMap::kNobody);
  ++version_;
  stale_ = false;
}

void Cluster::InstallMap(const SlotMap& map) {
  // Connections of nodes that are no longer known are closed after the lock is given back.
  std::map<std::string, std::shared_ptr<Node>> known;
  absl::MutexLock lock(&mutex_);
  known.swap(known_);
  const auto keep = [&](const Endpoint& endpoint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = known.find(endpoint.ToString());
    if (it != known.end()) known_.insert(*it);
    return NodeAtLocked(endpoint);
  };
  for (const Endpoint& seed : seeds_) keep(seed);
  for (const Endpoint& replica : map.replicas) keep(replica);
  masters_.clear();
  for (const Endpoint& master : map.masters) masters_.push_back(keep(master));
  kind_ = Kind::kCluster;
  replicas_ = map.replicas;
  owner_ = map.owner;
  ++version_;
  stale_ = false;
}

void Cluster::NoteMoved(const Redirect& redirect, absl::Time deadline) {
  std::uint64_t version;
  {
    absl::MutexLock lock(&mutex_);
    if (kind_ == Kind::kCluster) {
      const std::shared_ptr<Node> node = NodeAtLocked(redirect.to);
      auto it = std::find(masters_.begin(), masters_.end(), node);
      if (it == masters_.end()) it = masters_.insert(it, node);
      owner_[static_cast<std::size_t>(redirect.slot)] =
          static_cast<std::uint16_t>(it - masters_.begin());
    }
    const absl::Time now = absl::Now();
    if (refreshing_ || now - followed_at_ < kBetweenMoves) return;
    followed_at_ = now;
    version = version_;
  }
  const absl::Status status = Refresh(version, deadline);
  // swallow: the slot is corrected, and the next MOVED tries again
  static_cast<void>(status);
}

void Cluster::NoteFailure(const std::shared_ptr<Node>& node) {
  node->NoteFailure(absl::Now());
  absl::MutexLock lock(&mutex_);
  // With one server there is nobody else to ask.
  stale_ = stale_ || kind_ == Kind::kCluster || seeds_.size() > 1;
}

bool Cluster::Replaced(const std::shared_ptr<Node>& node, absl::Time deadline) {
  const auto current = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::find(masters_.begin(), masters_.end(), node) != masters_.end();
  };
  {
    absl::MutexLock lock(&mutex_);
    if (!current()) return true;
    if (!stale_) return false;
  }
  const absl::Status status = Learn(deadline);
  absl::MutexLock lock(&mutex_);
  return status.ok() && !current();
}

}  // namespace parkade::remote
