#include "tiers/disk/catalogue_gate.h"

#include "absl/time/time.h"

namespace parkade::disk {
namespace {

// Opening a database takes far less. A caller that entered twice would wait for itself.
constexpr absl::Duration kLongestWait = absl::Seconds(10);

}  // namespace

absl::StatusOr<CatalogueGate::Use> CatalogueGate::Enter() {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(this, &CatalogueGate::Open), kLongestWait);
  if (replacing_ || db_ == nullptr) {
    return absl::UnavailableError("the catalogue is closed until its disk has recovered");
  }
  ++users_;
  return Use(this, db_.get());
}

void CatalogueGate::Leave() {
  absl::MutexLock lock(&mutex_);
  --users_;
}

absl::Status CatalogueGate::Replace(
    const std::function<absl::StatusOr<std::unique_ptr<CatalogueDb>>()>& open) {
  std::unique_ptr<CatalogueDb> closing;
  {
    absl::MutexLock lock(&mutex_);
    replacing_ = true;
    mutex_.Await(absl::Condition(this, &CatalogueGate::NoUsers));
    closing = std::move(db_);
  }
  closing.reset();
  absl::StatusOr<std::unique_ptr<CatalogueDb>> opened = open();
  absl::MutexLock lock(&mutex_);
  replacing_ = false;
  if (!opened.ok()) return opened.status();
  db_ = std::move(opened).value();
  return absl::OkStatus();
}

}  // namespace parkade::disk
