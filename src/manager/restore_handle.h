// What Lookup returns: the serving thread's hold on a RestoreOp.
#pragma once

#include <memory>

#include "parkade/conversation_cache.h"
#include "src/manager/restore_op.h"

namespace parkade {

class CacheImpl;

class RestoreHandle : public Restore {
 public:
  RestoreHandle(CacheImpl* cache, std::shared_ptr<RestoreOp> op);
  ~RestoreHandle() override;

  State state() const override;
  bool Ready() const override;
  bool WaitReady(std::int64_t timeout_ms) override;
  bool WillRestore() const override;
  State Step(EngineSequence& sequence, std::int64_t budget_us) override;
  std::uint32_t restored_tokens() const override;
  std::array<std::uint32_t, kSources> planned_sources() const override;

  RestoreOp* op() { return op_.get(); }

 private:
  CacheImpl* const cache_;
  std::shared_ptr<RestoreOp> op_;
};

}  // namespace parkade
