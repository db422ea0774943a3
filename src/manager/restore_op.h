// One lookup and its restore: plan, extents that are read ahead, import.
//
// A RestoreOp is shared between the serving thread (through RestoreHandle) and reader threads.
// Fields below `mu` belong to it; the rest is written by one thread before it is handed on.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "parkade/conversation_cache.h"
#include "src/manager/catalogue.h"

namespace parkade {

// Index of a tier in the cache's list; kFromQueue: bytes that wait for their tier.
inline constexpr int kFromQueue = -1;

// A park on its way up to the RAM tier.
struct Promotion {
  std::vector<ExtentInfo> extents;
  std::vector<ExtentBytes> payload;  // null: not read yet, or not by the restore
  std::uint32_t missing = 0;         // of those that the restore reads
};

struct PlannedPark {
  Handle conversation = kNoHandle;
  ParkKey key;
  int tier = kFromQueue;
  Source source = Source::kRam;
  TokenRange tokens;  // part of [0, usable) that this park gives
  // Rows from here on belong to another continuation: a fork leaves its parent here.
  std::uint32_t valid_end = 0;
  std::shared_ptr<const StageMap> stages;
  std::shared_ptr<const ParkRecord> queued;  // kFromQueue: the record ...
  std::vector<ExtentBytes> queued_payload;   // ... and its bytes
  std::uint64_t bytes = 0;
  std::uint32_t own_tokens = 0;  // of the whole park
};

struct PlannedExtent {
  std::uint32_t park = 0;     // index in RestorePlan::parks
  std::uint32_t ordinal = 0;  // number within the park
  ExtentInfo info;            // as stored
  std::uint32_t rows = 0;     // how many of its rows are imported
};

struct RestorePlan {
  std::uint32_t boundary = 0;
  std::uint32_t window_begin = 0;
  std::vector<PlannedPark> parks;
  // Those of the draft last: a restore may end without them.
  std::vector<PlannedExtent> extents;
  std::uint32_t draft_begin = 0;
  std::uint64_t bytes = 0;
};

// Why less than the whole prompt is reused; filled while looking up.
struct MatchReport {
  bool looked_up = true;  // false: the engine did not wait for the plan
  Handle conversation = kNoHandle;
  std::vector<ParkKey> path;  // whose tokens were compared; the handle alone may be used again
  ConversationId id;          // as people see it: never a forgotten conversation
  std::uint32_t pages = 0;
  std::uint32_t matched = 0;
  std::uint32_t usable = 0;
  // Matched before a part of it turned out to be damaged or gone; 0: it did not.
  std::uint32_t lost_match = 0;
  bool at_tip = false;  // the best candidate ends where the match ends
  // How the best candidate goes on where the prompt differs, at most kExplainTokens.
  std::vector<Token> stored_next;
  std::optional<Source> failed_tier;
  // Of the match as a whole, from measured speeds; 0: not known.
  double expected_load_seconds = 0;
  double expected_read_seconds = 0;
  // Why less than `matched` is reused, unless the match was not worth a restore.
  MissReason shortfall = MissReason::kCheckpoint;
  std::string detail;
};

// How a prompt began: a change within the first page leaves no match to compare with.
struct PromptFront {
  Digest128 identity;
  std::vector<Token> tokens;
};

// Where parks that a shared tier was found to hold join the catalogue.
struct AdoptSpot {
  Handle conversation = kNoHandle;  // what the parks stand on, up to `begin`
  std::uint32_t begin = 0;
  std::size_t first = 0;  // of the parks that are not there
};

struct RestoreOp {
  LookupRequest request;
  StateLayout layout;
  std::vector<std::uint64_t> hashes;
  MatchReport match;
  RestorePlan plan;
  absl::Time started;
  std::atomic<bool> cancelled{false};
  std::atomic<int> readers{0};  // threads that read for it now
  // Extents that are read and not yet imported.
  std::atomic<int> ahead{0};
  // A part of it comes from a shared tier: the threads for that one read all of it.
  bool far = false;
  // The shared tier was asked; false afterwards: it did not answer, or could not be asked.
  bool asked_shared = false;
  bool shared_answered = true;
  // The plan is made by a thread that may wait for the shared tier.
  bool may_wait = false;
  // Parks from here on can't be read now.
  std::uint32_t most_tokens = UINT32_MAX;

  // Serving thread only.
  bool placed = false;
  std::uint32_t imported = 0;
  std::vector<bool> done;
  std::uint32_t restored = 0;
  double lookup_seconds = 0;
  double restore_seconds = 0;

  mutable absl::Mutex mu;
  Restore::State state ABSL_GUARDED_BY(mu) = Restore::State::kPlanning;
  std::uint32_t next_read ABSL_GUARDED_BY(mu) = 0;
  // Extents from here on are not going to come.
  std::uint32_t read_limit ABSL_GUARDED_BY(mu) = 0;
  MissReason read_failure ABSL_GUARDED_BY(mu) = MissReason::kIncomplete;
  std::vector<std::pair<std::uint32_t, ExtentBytes>> ready ABSL_GUARDED_BY(mu);
  std::vector<std::unique_ptr<Promotion>> promotions ABSL_GUARDED_BY(mu);  // by planned park
  absl::Time progress ABSL_GUARDED_BY(mu);                                 // when bytes last came

  // Planes that a stage's extents hold rows of.
  const StateLayout& LayoutOf(const Stage& stage) const {
    return IsDraft(stage) ? request.draft_layout : layout;
  }
  // Rows of the draft that the engine runs.
  bool WantsDraft(const Stage& stage) const {
    return IsDraft(stage) && !request.draft.layers.empty() &&
           DraftName(stage) == DraftName(request.draft);
  }

  void SetState(Restore::State next) {
    absl::MutexLock lock(&mu);
    state = next;
  }
};

}  // namespace parkade
