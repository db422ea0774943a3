#include "src/manager/recent_uses.h"

namespace parkade {

void RecentUses::Note(const ParkKey& park, absl::Time now) {
  absl::MutexLock lock(&mu_);
  last_[park] = now;
  if (last_.size() <= kMost) return;
  std::erase_if(last_, [now](const auto& item) { return now - item.second > kShortWhile; });
  // More than that in so short a while: each is rare among them.
  if (last_.size() > kMost) last_.clear();
}

bool RecentUses::UsedLately(const ParkKey& park, absl::Time now) const {
  absl::MutexLock lock(&mu_);
  const auto found = last_.find(park);
  return found != last_.end() && now - found->second <= kShortWhile;
}

}  // namespace parkade
