// Whether the store is asked at all. One failure that cost time opens it; only a probe in the
// background closes it again, so no request pays twice for a store that does not answer.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace parkade::remote {

inline constexpr absl::Duration kFirstProbeAfter = absl::Seconds(1);
inline constexpr absl::Duration kLastProbeAfter = absl::Seconds(30);

// Thread safe.
class Breaker {
 public:
  bool closed() const;
  // Why it is open, one line; empty: it is not.
  std::string reason() const;
  // What became of a call: Unavailable, DeadlineExceeded and PermissionDenied open it. Other errors
  // are answers, too, and change nothing.
  void Note(const absl::Status& status, absl::Time now);
  // True: the caller probes now, and tells Probed the result. The time to the next probe doubles.
  bool ProbeDue(absl::Time now);
  // OK closes it. The time to the first probe after the next failure stays as long as it has
  // become: a store that answers probes and nothing else is not waited for every second.
  void Probed(const absl::Status& status);
  // A whole lookup was answered in time: the store is as good as new.
  void Trust();

 private:
  mutable absl::Mutex mu_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  std::string reason_ ABSL_GUARDED_BY(mu_);
  absl::Duration wait_ ABSL_GUARDED_BY(mu_) = kFirstProbeAfter;
  absl::Time next_probe_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parkade::remote
