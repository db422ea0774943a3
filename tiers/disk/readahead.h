// Carries out hints on a thread of its own, so that giving one costs nothing.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "parkade/image.h"

namespace parkade::disk {

// Thread safe. The destructor waits for the hint in hand and drops the others.
class Readahead {
 public:
  explicit Readahead(std::function<void(const ParkKey&)> advise);
  ~Readahead();
  // Returns at once; with too many waiting the rest is dropped.
  void Add(absl::Span<const ParkKey> keys);

 private:
  static constexpr std::size_t kMostWaiting = 4096;
  void Work();
  bool Due() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || !waiting_.empty(); }

  const std::function<void(const ParkKey&)> advise_;
  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<ParkKey> waiting_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace parkade::disk
