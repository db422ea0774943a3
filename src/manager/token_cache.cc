#include "src/manager/token_cache.h"

#include <utility>

namespace parkade {

std::uint64_t TokenCache::Cost(const Entry& entry) {
  return entry.tokens->size() * sizeof(Token) + 160;  // 160: list node, map node, vector header
}

SharedTokens TokenCache::Find(const ParkKey& key) {
  absl::MutexLock lock(&mu_);
  auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  order_.splice(order_.begin(), order_, it->second);
  return it->second->tokens;
}

void TokenCache::Insert(const ParkKey& key, SharedTokens tokens) {
  absl::MutexLock lock(&mu_);
  auto it = entries_.find(key);
  if (it != entries_.end()) {
    used_ -= Cost(*it->second);
    order_.erase(it->second);
    entries_.erase(it);
  }
  order_.push_front(Entry{key, std::move(tokens)});
  entries_[key] = order_.begin();
  used_ += Cost(order_.front());
  while (used_ > budget_bytes_ && order_.size() > 1) {
    used_ -= Cost(order_.back());
    entries_.erase(order_.back().key);
    order_.pop_back();
  }
}

void TokenCache::Erase(const ParkKey& key) {
  absl::MutexLock lock(&mu_);
  auto it = entries_.find(key);
  if (it == entries_.end()) return;
  used_ -= Cost(*it->second);
  order_.erase(it->second);
  entries_.erase(it);
}

std::uint64_t TokenCache::memory_bytes() const {
  absl::MutexLock lock(&mu_);
  return used_;
}

}  // namespace parkade
