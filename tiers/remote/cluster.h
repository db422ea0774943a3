// Which node has which key: one server, or a cluster's slots, learned from the nodes themselves.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tiers/remote/node.h"
#include "tiers/remote/slots.h"
#include "tiers/remote/url.h"

namespace parkade::remote {

// Thread safe. No lock is held over I/O; callers hold no lease of a node while they ask it to
// learn.
//
// A cluster's map is read when it is not known yet, when a node failed, and after MOVED, then at
// most once a second (each MOVED by itself corrects its slot). Whoever needs a map waits for the
// one read that is running. Sources are all known nodes and the seeds, those that failed lately
// last.
//
// Without a cluster the first seed that answers is the server; the next ones are asked when it
// fails.
class Cluster {
 public:
  Cluster(std::vector<Endpoint> seeds, NodeSettings* settings);

  // OK: some map is known, an older one if no newer could be had. Else why not: Unavailable,
  // PermissionDenied, DeadlineExceeded.
  absl::Status Learn(absl::Time deadline);
  // Requires that Learn said OK once. An empty key: any node.
  std::shared_ptr<Node> NodeOf(std::string_view key);
  std::shared_ptr<Node> NodeAt(const Endpoint& endpoint);

  // A node said that the slot is elsewhere. What it costs is I/O, within the deadline, if the whole
  // map is due.
  void NoteMoved(const Redirect& redirect, absl::Time deadline);
  // It could not be used, or refused as it is no master (any more).
  void NoteFailure(const std::shared_ptr<Node>& node);
  // Whether another one has taken this node's place, for which the map is read again.
  bool Replaced(const std::shared_ptr<Node>& node, absl::Time deadline);

  // Those that have keys; the seeds as long as nothing is known.
  std::vector<std::shared_ptr<Node>> nodes() const;

 private:
  enum class Kind { kUnknown, kSingle, kCluster };

  absl::Status Refresh(std::uint64_t seen_version, absl::Time deadline);
  absl::Status AskEach(const std::vector<std::shared_ptr<Node>>& sources, absl::Time deadline);
  absl::Status Ask(const std::shared_ptr<Node>& source, absl::Time deadline);
  void InstallSingle(const std::shared_ptr<Node>& server);
  void InstallMap(const SlotMap& map);
  std::vector<std::shared_ptr<Node>> Sources() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Node> NodeAtLocked(const Endpoint& endpoint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool NotRefreshing() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !refreshing_; }

  const std::vector<Endpoint> seeds_;
  NodeSettings* const settings_;

  mutable absl::Mutex mutex_;
  Kind kind_ ABSL_GUARDED_BY(mutex_) = Kind::kUnknown;
  std::map<std::string, std::shared_ptr<Node>> known_ ABSL_GUARDED_BY(mutex_);  // by address
  // The server, or those that have slots.
  std::vector<std::shared_ptr<Node>> masters_ ABSL_GUARDED_BY(mutex_);
  std::vector<Endpoint> replicas_ ABSL_GUARDED_BY(mutex_);
  std::array<std::uint16_t, kSlotCount> owner_ ABSL_GUARDED_BY(mutex_);  // index into masters_
  std::uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;                    // how often a map was read
  // When it was last read because of a MOVED.
  absl::Time followed_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool stale_ ABSL_GUARDED_BY(mutex_) = true;
  bool refreshing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status refreshed_ ABSL_GUARDED_BY(mutex_);  // how the last read went
};

}  // namespace parkade::remote
