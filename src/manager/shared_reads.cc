#include "src/manager/shared_reads.h"

namespace parkade {
namespace {

// Entries whose bytes are gone are swept when this many are kept.
constexpr std::size_t kEntriesKept = 4096;

}  // namespace

SharedReads::Shared SharedReads::Join(const Key& key) {
  absl::MutexLock lock(&mu_);
  auto idle = [this, &key]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    auto entry = entries_.find(key);
    return entry == entries_.end() || !entry->second.reading;
  };
  mu_.Await(absl::Condition(&idle));
  Entry& entry = entries_[key];
  Shared found{entry.bytes.lock(), entry.lasting};
  if (found.bytes == nullptr) entry.reading = true;
  return found;
}

void SharedReads::Finish(const Key& key, const Shared& read) {
  absl::MutexLock lock(&mu_);
  if (read.bytes == nullptr) {
    entries_.erase(key);
    return;
  }
  entries_[key] = Entry{false, read.lasting, read.bytes};
  if (entries_.size() > kEntriesKept) Prune();
}

void SharedReads::Replace(const Key& key, const ExtentBytes& copy) {
  absl::MutexLock lock(&mu_);
  Entry& entry = entries_[key];
  // Another one reads, or has made a lasting copy meanwhile: that one is shared.
  if (entry.reading || (entry.lasting && !entry.bytes.expired())) return;
  entry.lasting = true;
  entry.bytes = copy;
}

void SharedReads::Prune() {
  std::erase_if(entries_, [](const auto& item) {
    return !item.second.reading && item.second.bytes.expired();
  });
}

}  // namespace parkade
