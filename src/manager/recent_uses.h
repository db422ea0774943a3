// Which parks were used a short while ago.
#pragma once

#include <cstddef>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "parkade/image.h"

namespace parkade {

// Thread safe. At most kMost parks are known: some 100 kB.
class RecentUses {
 public:
  static constexpr std::size_t kMost = 1024;
  static constexpr absl::Duration kShortWhile = absl::Minutes(10);

  void Note(const ParkKey& park, absl::Time now);
  // Noted at most kShortWhile ago.
  bool UsedLately(const ParkKey& park, absl::Time now) const;

 private:
  mutable absl::Mutex mu_;
  std::map<ParkKey, absl::Time> last_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parkade
