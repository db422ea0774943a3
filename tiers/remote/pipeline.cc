#include "tiers/remote/pipeline.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace parkade::remote {

absl::StatusOr<std::vector<Reply>> Pipeline::Run() {
  replies_.resize(commands_.size());
  for (std::size_t i = 0; i < commands_.size(); ++i) open_.push_back({i, nullptr, false});
  while (!open_.empty()) {
    if (absl::Now() >= deadline_) {
      return absl::DeadlineExceededError("the deadline was over before all was asked");
    }
    absl::Status status = cluster_->Learn(deadline_);
    if (status.ok()) status = Round();
    if (!status.ok()) return status;
    if (open_.empty()) break;
    status = pauses_.Before(only_redirects_, reason_);
    if (!status.ok()) return status;
  }
  return std::move(replies_);
}

absl::Status Pipeline::Round() {
  // In the order of their addresses: two calls that each need connections of the same nodes never
  // wait for each other.
  std::map<std::string, Share> shares;
  for (Open& open : open_) {
    if (open.node == nullptr) open.node = cluster_->NodeOf(commands_[open.index].key);
    Share& share = shares[open.node->address()];
    share.node = open.node;
    share.commands.push_back(open);
  }
  std::vector<std::vector<Reply>> all;
  absl::Status status = Exchange(&shares, &all);
  if (!status.ok()) return status;
  if (all.empty()) {
    // Nothing was sent; who has the keys is another one now.
    for (Open& open : open_) open = {open.index, nullptr, false};
    only_redirects_ = true;
    reason_ = "the cluster's map changes all the time";
    return absl::OkStatus();
  }
  open_.clear();
  only_redirects_ = true;
  std::size_t i = 0;
  for (auto& [address, share] : shares) {
    status = Sort(&share, std::move(all[i++]));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Fills `all` with the replies of each share, or leaves it empty when a node has been replaced.
absl::Status Pipeline::Exchange(std::map<std::string, Share>* shares,
                                std::vector<std::vector<Reply>>* all) {
  std::vector<Node::Lease> leases;
  for (auto& [address, share] : *shares) {
    absl::StatusOr<Node::Lease> lease = share.node->Acquire(deadline_);
    if (lease.ok()) {
      leases.push_back(*std::move(lease));
      continue;
    }
    leases.clear();
    cluster_->NoteFailure(share.node);
    const bool gone = absl::IsUnavailable(lease.status());
    if (gone && cluster_->Replaced(share.node, deadline_)) return absl::OkStatus();
    return lease.status();
  }
  std::vector<Connection*> connections;
  for (auto& [address, share] : *shares) {
    Connection* const connection = &*leases[connections.size()];
    std::size_t replies = 0;
    Request request = MakeRequest(commands_, share, &replies);
    connection->Start(std::move(request), replies);
    connections.push_back(connection);
  }
  const std::vector<absl::Status> statuses = Connection::Finish(connections, deadline_);
  absl::Status first;
  std::size_t i = 0;
  for (auto& [address, share] : *shares) {
    if (statuses[i].ok()) {
      all->push_back(connections[i]->TakeReplies());
    } else {
      cluster_->NoteFailure(share.node);
      if (first.ok()) first = share.node->Named(statuses[i]);
    }
    ++i;
  }
  return first;
}

Request Pipeline::MakeRequest(absl::Span<const Command> commands, const Share& share,
                              std::size_t* replies) {
  Request request;
  *replies = 0;
  for (const Open& open : share.commands) {
    if (open.asking) request.Add({"ASKING"});
    request.Add(commands[open.index].words);
    *replies += open.asking ? 2 : 1;
  }
  return request;
}

absl::Status Pipeline::Sort(Share* share, std::vector<Reply> replies) {
  std::size_t next = 0;
  for (const Open& open : share->commands) {
    if (open.asking) ++next;  // ASKING's own
    Reply& reply = replies[next++];
    const Verdict verdict = Judge(reply, share->node, cluster_, deadline_);
    switch (verdict.kind) {
      case Verdict::Kind::kFinal:
        replies_[open.index] = std::move(reply);
        continue;
      case Verdict::Kind::kDenied:
        return share->node->Named(absl::PermissionDeniedError(reply.bytes));
      case Verdict::Kind::kRedirect:
        break;
      case Verdict::Kind::kLater:
        only_redirects_ = false;
        break;
    }
    reason_ = absl::StrCat(share->node->address(), ": ", reply.bytes);
    open_.push_back({open.index, verdict.to, verdict.asking});
  }
  return absl::OkStatus();
}

}  // namespace parkade::remote
