// A cache with the fake engine and tiers that can fail, for the manager's tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "parkade/conversation_cache.h"
#include "src/engine/fake/fake_engine.h"
#include "src/format/sealing.h"
#include "tests/support/faulty_tier.h"
#include "tests/support/memory_shared_tier.h"
#include "tests/support/recording_sink.h"
#include "tiers/disk/disk_tier.h"

namespace parkade::test {

// Keeps a tier's writer in the next Store, so that what is parked meanwhile stays queued; later
// Stores (promotions) pass. Opens at the latest when it goes, which must be before the rig does.
class StoreGate {
 public:
  explicit StoreGate(FaultyTier* tier);
  ~StoreGate();
  // Until the writer stands at the gate.
  void WaitForWriter() { state_->arrived.WaitForNotification(); }
  // What is kept there. A promotion that was on its way before may have come first. Not before
  // WaitForWriter.
  ParkKey held() const {
    absl::MutexLock lock(&state_->mu);
    return state_->held;
  }
  void Open();

 private:
  struct State {
    std::atomic<bool> taken{false};
    absl::Mutex mu;
    ParkKey held ABSL_GUARDED_BY(mu);
    absl::Notification arrived;
    absl::Notification open;
  };
  FaultyTier* const tier_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Which model the engines of a rig run.
struct RigModel {
  std::uint64_t salt = 1;
  int layers = 4;
  std::uint64_t row_bytes = 64;
  int window_layers = 0;
  std::uint32_t window_tokens = 0;
  int state_layers = 0;
  std::uint64_t state_bytes = 0;

  StateLayout layout() const;
};
RigModel FullModel();
RigModel WindowModel();  // two of four layers see 100 tokens
RigModel StateModel();
RigModel MixedModel();  // full, window and state

struct RigOptions {
  RigModel model;
  CacheOptions cache;  // set for small tests by the constructor
  bool ram = true;
  bool durable = false;  // a second tier in memory, which lives on when the cache is closed
  bool disk = false;     // or the disk tier, in a folder of its own
  std::uint64_t durable_budget_bytes = 1ull << 30;
  std::uint64_t disk_min_free_bytes = 0;
  disk::FileDoor* disk_files = nullptr;
  SharedSealKey disk_key;              // null: not encrypted
  std::shared_ptr<MemoryStore> store;  // not null: a shared tier over it

  RigOptions();
  explicit RigOptions(RigModel which);
};

struct Restored {
  Restore::State state = Restore::State::kPlanning;
  LookupRecord record;
};

class Rig {
 public:
  explicit Rig(RigOptions options = RigOptions());
  ~Rig();

  // Closing and opening again: a restart. What the RAM tier held is lost.
  void Close();
  void Open();

  // In force from the next Open on.
  RigOptions& options() { return options_; }
  ConversationCache& cache() { return *cache_; }
  RecordingSink& sink() { return sink_; }
  FaultyTier& ram() { return *ram_; }
  FaultyTier& durable() { return *durable_; }
  MemorySharedTier& shared() { return *shared_; }
  const std::vector<FaultyTier*>& tiers() const { return tiers_; }
  // What the durable tier writes to; open while the cache is closed.
  Tier& durable_medium() { return *medium_; }
  const Digest128& identity() const { return identity_; }
  // Of the disk tier.
  const std::string& folder() const { return folder_; }

  // How the disk tier is opened; its own door is not among it.
  DiskTierOptions disk_options() const;

  // An engine of the rig's model, its layers split by `shares`.
  std::unique_ptr<FakeEngine> MakeEngine(std::vector<int> shares = {1});
  // Parks all that the engine holds, and waits until the queue is empty.
  ParkOutcome Park(FakeEngine& engine, bool boundary = true);
  ParkOutcome ParkOnce(FakeEngine& engine, bool boundary = true);
  void Settle();

  LookupRequest Request(const std::vector<Token>& prompt, std::uint32_t held = 0) const;
  // Looks up, restores into the engine and counts; what is not restored is decoded. The rows that
  // the engine holds in the end are checked, and the record's sums.
  Restored Run(FakeEngine& engine, const std::vector<Token>& prompt, std::uint32_t held = 0);
  // The record alone: nothing is restored, nothing reused.
  LookupRecord Look(const std::vector<Token>& prompt);
  // Steps until the restore has ended.
  Restore::State StepToEnd(Restore& restore, FakeEngine& engine);
  // With no budget nothing may be left: no pin, no queue, no page, no hidden conversation. The
  // budgets stay 0.
  void ExpectNothingLeaks();

 private:
  std::unique_ptr<Tier> OpenDurable();

  RigOptions options_;
  std::string folder_;  // of the disk tier
  RecordingSink sink_;
  std::shared_ptr<Tier> medium_;  // what the durable tier writes to
  FaultyTier* ram_ = nullptr;
  FaultyTier* durable_ = nullptr;
  MemorySharedTier* shared_ = nullptr;
  std::vector<FaultyTier*> tiers_;
  std::unique_ptr<ConversationCache> cache_;
  Digest128 identity_;
};

// `count` tokens that depend on `seed` and their position.
std::vector<Token> Tokens(std::uint64_t seed, std::size_t count);
// The first `keep` tokens of `tokens`, then `count` others.
std::vector<Token> Fork(const std::vector<Token>& tokens, std::size_t keep, std::uint64_t seed,
                        std::size_t count);

std::uint32_t Hit(const LookupRecord& record, Source source);
std::uint32_t Miss(const LookupRecord& record, MissReason reason);
// Empty when every prompt token is counted exactly once.
std::string CheckSums(const LookupRecord& record);

}  // namespace parkade::test
