#include "src/cli/progress.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "src/cli/tables.h"

namespace parkade {
namespace {

constexpr auto kFirstShown = std::chrono::seconds(1);
constexpr auto kShownEvery = std::chrono::milliseconds(100);
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

std::atomic<bool> stopped = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

void Stop(int) { stopped = true; }

}  // namespace

ProgressBar::ProgressBar()
    : terminal_(isatty(STDERR_FILENO) == 1), next_(Clock::now() + kFirstShown) {}

ProgressBar::~ProgressBar() {
  if (shown_) std::fprintf(stderr, "\r%78s\r", "");
}

void ProgressBar::Show(std::uint64_t done_bytes, std::uint64_t all_bytes) {
  constexpr int kWidth = 40;
  if (!terminal_ || Clock::now() < next_) return;
  next_ = Clock::now() + kShownEvery;
  shown_ = true;
  const double share =
      all_bytes > 0 ? static_cast<double>(done_bytes) / static_cast<double>(all_bytes) : 1;
  const int filled = static_cast<int>(share * kWidth);
  std::fprintf(stderr, "\r[%s%s] %3.0f %%  %s of %s ", std::string(filled, '=').c_str(),
               std::string(kWidth - filled, ' ').c_str(), share * 100,
               FormatBytes(static_cast<double>(done_bytes)).c_str(),
               FormatBytes(static_cast<double>(all_bytes)).c_str());
}

StopOnSignal::StopOnSignal() {
  stopped = false;
  struct sigaction action = {};
  action.sa_handler = Stop;
  for (const int number : kSignals) sigaction(number, &action, nullptr);
}

StopOnSignal::~StopOnSignal() {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (const int number : kSignals) sigaction(number, &action, nullptr);
}

absl::Status StopOnSignal::Check() const {
  return stopped ? absl::CancelledError("stopped by a signal") : absl::OkStatus();
}

}  // namespace parkade
