// What people see of long work, and how they stop it.
#pragma once

#include <chrono>
#include <cstdint>

#include "src/cli/work_watch.h"

namespace parkade {

// A bar on stderr when that is a terminal and the work takes longer than a second. One thread.
class ProgressBar {
 public:
  ProgressBar();
  // Takes the bar away.
  ~ProgressBar();
  void Show(std::uint64_t done_bytes, std::uint64_t all_bytes);

 private:
  using Clock = std::chrono::steady_clock;
  const bool terminal_;
  Clock::time_point next_;
  bool shown_ = false;
};

// While it lives SIGINT, SIGTERM and SIGHUP end no process: Check() reports them, so that long work
// can take back what it has done. One at a time in a process.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  // Cancelled once a signal came.
  absl::Status Check() const;
};

}  // namespace parkade
