#include "src/format/running_checksum.h"

#include <new>

#include "src/format/xxh3.h"

namespace parkade {

struct RunningChecksum::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh3{XXH3_createState()};
};

RunningChecksum::RunningChecksum() : state_(std::make_unique<State>()) {
  if (state_->xxh3 == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_->xxh3.get());
}

RunningChecksum::~RunningChecksum() = default;
RunningChecksum::RunningChecksum(RunningChecksum&&) noexcept = default;
RunningChecksum& RunningChecksum::operator=(RunningChecksum&&) noexcept = default;

void RunningChecksum::Add(std::string_view bytes) {
  XXH3_128bits_update(state_->xxh3.get(), bytes.data(), bytes.size());
}

Digest128 RunningChecksum::Value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh3.get());
  return {hash.high64, hash.low64};
}

}  // namespace parkade
