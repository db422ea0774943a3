#include "src/capi/handles.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/device/cuda_copier.h"
#include "src/device/cuda_memory.h"

namespace parkade::capi {
namespace {

constexpr std::int64_t kCloseDrainMs = 5000;

}  // namespace

absl::StatusOr<ConversationCache*> CacheBody::cache() const {
  if (cache_ == nullptr) return absl::FailedPreconditionError("the cache is closed");
  return cache_.get();
}

absl::StatusOr<std::shared_ptr<StageCopier>> CacheBody::CopierOf(int card, void* stream) {
  const std::pair<int, void*> key(card, stream);
  {
    absl::MutexLock lock(&mu_);
    if (std::shared_ptr<StageCopier> known = copiers_[key].lock()) return known;
  }
  absl::StatusOr<std::unique_ptr<StageCopier>> made = NewCudaCopier(card, stream);
  if (!made.ok()) return made.status();
  absl::StatusOr<std::shared_ptr<HostMemory>> memory = NewCudaHostMemory(card);
  if (memory.ok() && cache_ != nullptr) cache_->UseHostMemory(*std::move(memory));
  if (!memory.ok()) {
    // Slower, and no error: what is not locked is copied once more.
    events_.Log(LogLevel::kWarning,
                absl::StrCat("no page-locked memory: ", memory.status().message()));
  }
  std::shared_ptr<StageCopier> copier = *std::move(made);
  absl::MutexLock lock(&mu_);
  std::erase_if(copiers_, [](const auto& entry) { return entry.second.expired(); });
  copiers_[key] = copier;
  return copier;
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
