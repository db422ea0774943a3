#include "tiers/disk/readahead.h"

#include <utility>

namespace parkade::disk {

Readahead::Readahead(std::function<void(const ParkKey&)> advise)
    : advise_(std::move(advise)), thread_([this] { Work(); }) {}

Readahead::~Readahead() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void Readahead::Add(absl::Span<const ParkKey> keys) {
  absl::MutexLock lock(&mutex_);
  for (const ParkKey& key : keys) {
    if (waiting_.size() < kMostWaiting) waiting_.push_back(key);
  }
}

void Readahead::Work() {
  while (true) {
    ParkKey key;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Readahead::Due));
      if (stop_) return;
      key = waiting_.front();
      waiting_.pop_front();
    }
    advise_(key);
  }
}

}  // namespace parkade::disk
