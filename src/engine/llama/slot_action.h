// One POST /slots request on its way from a thread of the HTTP server to the serving thread and
// back.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "parkade/conversation_cache.h"
#include "src/server/slots_api.h"

namespace parkade {

struct SlotAction {
  SlotRequest request;
  SavedSession session;                // kRestore: what is to be restored
  std::atomic<bool> abandoned{false};  // the client went away: nobody waits for the result

  // What the serving thread says.
  struct Result {
    absl::Status status;
    std::uint32_t tokens = 0;     // captured, restored or erased
    std::uint64_t bytes = 0;      // kRestore: read
    ConversationId conversation;  // kSave: what holds the tokens
  };
  absl::Mutex mu;
  bool done ABSL_GUARDED_BY(mu) = false;
  Result result ABSL_GUARDED_BY(mu);

  void Fail(absl::Status status) {
    Result outcome;
    outcome.status = std::move(status);
    Finish(std::move(outcome));
  }
  void Finish(Result outcome) {
    absl::MutexLock lock(&mu);
    if (done) return;
    result = std::move(outcome);
    done = true;
  }
};

}  // namespace parkade
