#include "src/manager/recent_uses.h"

namespace parkade {

bool RecentUses::UsedAgain(const ParkKey& park, absl::Time now) {
  absl::MutexLock lock(&mu_);
  const auto [entry, first] = last_.try_emplace(park, now);
  const bool again = !first && now - entry->second <= kShortWhile;
  entry->second = now;
  if (last_.size() <= kMost) return again;
  std::erase_if(last_, [now](const auto& item) { return now - item.second > kShortWhile; });
  // More than that in so short a while: each is rare among them.
  if (last_.size() > kMost) last_.clear();
  return again;
}

}  // namespace parkade
