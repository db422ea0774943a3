#include "tiers/remote/breaker.h"

#include <algorithm>

namespace parkade::remote {

bool Breaker::closed() const {
  absl::MutexLock lock(&mu_);
  return !open_;
}

std::string Breaker::reason() const {
  absl::MutexLock lock(&mu_);
  return open_ ? reason_ : std::string();
}

void Breaker::Note(const absl::Status& status, absl::Time now) {
  absl::MutexLock lock(&mu_);
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status) &&
      !absl::IsPermissionDenied(status)) {
    return;
  }
  // Answers that were under way when the first one failed must not put off the probe.
  if (!open_) next_probe_ = now + wait_;
  open_ = true;
  reason_ = std::string(status.message());
}

bool Breaker::ProbeDue(absl::Time now) {
  absl::MutexLock lock(&mu_);
  if (!open_ || now < next_probe_) return false;
  wait_ = std::min(2 * wait_, kLastProbeAfter);
  next_probe_ = now + wait_;
  return true;
}

void Breaker::Probed(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  open_ = !status.ok();
  if (open_) reason_ = std::string(status.message());
}

void Breaker::Trust() {
  absl::MutexLock lock(&mu_);
  if (!open_) wait_ = kFirstProbeAfter;
}

}  // namespace parkade::remote
