// Shared use of a database that is closed and opened again when its medium has recovered.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tiers/disk/catalogue_db.h"

namespace parkade::disk {

// Thread safe. Using the database is lock free but for the entry and the exit.
class CatalogueGate {
 public:
  // Keeps the database open as long as it lives. Use it briefly.
  class Use {
   public:
    explicit Use(CatalogueGate* gate, CatalogueDb* db) : gate_(gate), db_(db) {}
    Use(Use&& other) noexcept
        : gate_(std::exchange(other.gate_, nullptr)), db_(std::exchange(other.db_, nullptr)) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (gate_ != nullptr) gate_->Leave();
    }
    CatalogueDb* operator->() const { return db_; }
    CatalogueDb& operator*() const { return *db_; }

   private:
    CatalogueGate* gate_;
    CatalogueDb* db_;
  };

  explicit CatalogueGate(std::unique_ptr<CatalogueDb> db) : db_(std::move(db)) {}

  // Waits while the database is being replaced. Unavailable: there is none now.
  absl::StatusOr<Use> Enter();

  // Waits until nobody uses the database, closes it, and puts in place what `open` returns. On an
  // error there is none until a later Replace succeeds. One caller at a time.
  absl::Status Replace(const std::function<absl::StatusOr<std::unique_ptr<CatalogueDb>>()>& open);

 private:
  void Leave();
  bool NoUsers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return users_ == 0; }
  bool Open() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !replacing_; }

  absl::Mutex mutex_;
  int users_ ABSL_GUARDED_BY(mutex_) = 0;
  bool replacing_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<CatalogueDb> db_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace parkade::disk
