// What stands behind the handles of parkade.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "parkade/conversation_cache.h"
#include "parkade/parkade.h"
#include "src/capi/event_counts.h"
#include "src/capi/plane_sequence.h"

namespace parkade::capi {

// A cache, as long as a handle of anything of it is there.
class CacheBody {
 public:
  CacheBody(parkade_log_fn log, void* log_user) : events_(log, log_user) {}

  // Outlives the cache.
  EventCounts& events() { return events_; }
  void Set(std::unique_ptr<ConversationCache> cache) { cache_ = std::move(cache); }
  // FailedPrecondition: it is closed.
  absl::StatusOr<ConversationCache*> cache() const;

  // Of a card and the engine's stream there; all sequences share it. From the first one on buffers
  // are in memory that is page-locked for the card.
  absl::StatusOr<std::shared_ptr<StageCopier>> CopierOf(int card, void* stream);

  void Add(parkade_restore* restore);
  void Drop(parkade_restore* restore);
  void Close();

 private:
  EventCounts events_;
  std::unique_ptr<ConversationCache> cache_;  // null: closed
  absl::Mutex mu_;
  std::set<parkade_restore*> restores_ ABSL_GUARDED_BY(mu_);
  // As long as a sequence has them.
  std::map<std::pair<int, void*>, std::weak_ptr<StageCopier>> copiers_ ABSL_GUARDED_BY(mu_);
};

struct ModelBody {
  std::shared_ptr<CacheBody> cache;
  Identity identity;
  StateLayout layout;
  std::vector<std::size_t> place_of;  // the engine's number of a plane -> that in `layout`

  // Known to the cache from now on, whatever was registered since; its digest.
  absl::StatusOr<Digest128> Register() const;
};

}  // namespace parkade::capi

struct parkade_cache {
  std::shared_ptr<parkade::capi::CacheBody> body;
};

struct parkade_model {
  std::shared_ptr<const parkade::capi::ModelBody> body;
};

struct parkade_sequence {
  std::shared_ptr<const parkade::capi::ModelBody> model;
  std::shared_ptr<parkade::capi::PlaneSequence> rows;
};

struct parkade_restore {
  std::shared_ptr<const parkade::capi::ModelBody> model;
  std::unique_ptr<parkade::Restore> restore;  // null: the cache was closed
  // Where it was begun; null: nowhere.
  std::shared_ptr<parkade::capi::PlaneSequence> rows;
  std::uint32_t window_begin = 0;  // of what was restored

  // What is under way into the sequence ends.
  void LeaveRows() {
    if (rows != nullptr && rows->importing()) rows->Clear();
    rows.reset();
  }
};
