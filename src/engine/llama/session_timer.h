// Time spent in hooks, by name.
#pragma once

#include <string>

#include "absl/time/clock.h"
#include "src/engine/llama/session.h"

namespace parkade {

class Session::Timer {
 public:
  Timer(Session* session, const char* hook, bool restore = false)
      : session_(session), hook_(hook), restore_(restore), begin_(absl::Now()) {}
  ~Timer() {
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin_);
    absl::MutexLock lock(&session_->mu_);
    ++session_->times_.calls[hook_];
    (restore_ ? session_->times_.restore_seconds : session_->times_.seconds) += seconds;
  }

 private:
  Session* const session_;
  const char* const hook_;
  const bool restore_;
  const absl::Time begin_;
};

}  // namespace parkade
