// Counts the lookups that the cache still holds on to, from outside: each carries a ticket, which
// ends with the last thread that has to do with it.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "parkade/conversation_cache.h"

namespace parkade::test {

// Thread safe. Outlives the cache.
class LiveOperations {
 public:
  void Mark(LookupRequest* request) {
    {
      absl::MutexLock lock(&mu_);
      ++live_;
    }
    const std::shared_ptr<LiveOperations> ticket(this, [](LiveOperations* all) { all->End(); });
    request->name_change = [ticket](auto, auto, auto) { return std::string(); };
  }
  // False: some are left after that time.
  bool WaitForNone(absl::Duration timeout) const {
    absl::MutexLock lock(&mu_);
    auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return live_ == 0; };
    return mu_.AwaitWithTimeout(absl::Condition(&none), timeout);
  }
  int live() const {
    absl::MutexLock lock(&mu_);
    return live_;
  }

 private:
  void End() {
    absl::MutexLock lock(&mu_);
    --live_;
  }

  mutable absl::Mutex mu_;
  int live_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace parkade::test
