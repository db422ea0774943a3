#include "src/manager/shared_reads.h"

namespace parkade {
namespace {

// Entries whose bytes are gone are swept when this many are kept.
constexpr std::size_t kEntriesKept = 4096;

}  // namespace

ExtentBytes SharedReads::Join(const Key& key) {
  absl::MutexLock lock(&mu_);
  auto idle = [this, &key]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto entry = entries_.find(key);
    return entry == entries_.end() || !entry->second.reading;
  };
  mu_.Await(absl::Condition(&idle));
  Entry& entry = entries_[key];
  ExtentBytes bytes = entry.bytes.lock();
  if (bytes == nullptr) entry.reading = true;
  return bytes;
}

void SharedReads::Finish(const Key& key, const ExtentBytes& bytes) {
  absl::MutexLock lock(&mu_);
  if (bytes == nullptr) {
    entries_.erase(key);
    return;
  }
  Entry& entry = entries_[key];
  entry.reading = false;
  entry.bytes = bytes;
  if (entries_.size() > kEntriesKept) Prune();
}

void SharedReads::Prune() {
  std::erase_if(entries_, [](const auto& item) {
    return !item.second.reading && item.second.bytes.expired();
  });
}

}  // namespace parkade
