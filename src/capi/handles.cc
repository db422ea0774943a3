#include "src/capi/handles.h"

#include <utility>

namespace parkade::capi {
namespace {

constexpr std::int64_t kCloseDrainMs = 5000;

}  // namespace

absl::StatusOr<ConversationCache*> CacheBody::cache() const {
  if (cache_ == nullptr) return absl::FailedPreconditionError("the cache is closed");
  return cache_.get();
}

void CacheBody::Add(parkade_restore* restore) {
  absl::MutexLock lock(&mu_);
  restores_.insert(restore);
}

void CacheBody::Drop(parkade_restore* restore) {
  absl::MutexLock lock(&mu_);
  restores_.erase(restore);
}

void CacheBody::Close() {
  std::set<parkade_restore*> open;
  {
    absl::MutexLock lock(&mu_);
    open.swap(restores_);
  }
  for (parkade_restore* restore : open) {
    restore->restore.reset();
    restore->LeaveRows();
  }
  if (cache_ != nullptr) cache_->Drain(kCloseDrainMs);
  cache_.reset();
}

absl::StatusOr<Digest128> ModelBody::Register() const {
  absl::StatusOr<ConversationCache*> open = cache->cache();
  if (!open.ok()) return open.status();
  return (*open)->RegisterIdentity(identity, layout);
}

}  // namespace parkade::capi
