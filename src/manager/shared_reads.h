// One read serves all that want the same extent at the same time, and after it as long as somebody
// holds its bytes (an import that waits, the RAM tier that took them up).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "parkade/image.h"

namespace parkade {

// Thread safe. Holds no bytes itself.
class SharedReads {
 public:
  struct Key {
    int tier = 0;
    ParkKey park;
    std::uint32_t extent = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  struct Shared {
    ExtentBytes bytes;
    // They are in a buffer that may stay with its owner, not in one that a restore waits for.
    bool lasting = false;
  };

  // The bytes, when somebody has them or is just reading them (then it waits). Null: the caller
  // reads, and must call Finish.
  Shared Join(const Key& key);
  // Null: the read failed; the next one that waits tries itself.
  void Finish(const Key& key, const Shared& read);
  // A lasting copy of what Join gave: who comes later gets that one, which lives longer.
  void Replace(const Key& key, const ExtentBytes& copy);

 private:
  struct Entry {
    bool reading = false;
    bool lasting = false;
    std::weak_ptr<const ExtentBuffer> bytes;
  };
  void Prune() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parkade
