// Tokens of parks, kept in RAM up to a budget, least recently used first out.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "parkade/image.h"

namespace parkade {

using SharedTokens = std::shared_ptr<const std::vector<Token>>;

// Thread safe; never does I/O.
class TokenCache {
 public:
  explicit TokenCache(std::uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  SharedTokens Find(const ParkKey& key);  // null: not cached
  void Insert(const ParkKey& key, SharedTokens tokens);
  void Erase(const ParkKey& key);
  std::uint64_t memory_bytes() const;

 private:
  struct Hash {
    std::size_t operator()(const ParkKey& key) const {
      return key.conversation.low ^ (key.park * 0x9E3779B97F4A7C15ull);
    }
  };
  struct Entry {
    ParkKey key;
    SharedTokens tokens;
  };
  static std::uint64_t Cost(const Entry& entry);

  const std::uint64_t budget_bytes_;
  mutable absl::Mutex mu_;
  std::uint64_t used_ ABSL_GUARDED_BY(mu_) = 0;
  std::list<Entry> order_ ABSL_GUARDED_BY(mu_);  // most recently used first
  std::unordered_map<ParkKey, std::list<Entry>::iterator, Hash> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parkade
