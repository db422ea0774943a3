// A shared tier in memory: a store, and tiers of several machines over it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "parkade/shared_tier.h"

namespace parkade::test {

// What all machines see. Thread safe.
class MemoryStore {
 public:
  struct Step {
    Digest128 row;
    std::uint32_t end = 0;
  };
  // Root first, without a gap.
  struct Way {
    Digest128 identity;
    std::vector<Token> tokens;
    std::vector<Step> steps;
  };

  // Those that begin with the longest part of `tokens`; none: steps are empty.
  Way Longest(const Digest128& identity, absl::Span<const Token> tokens) const;
  void Add(Way way);
  void Put(const Digest128& row, PublishPayload payload);
  // Null: not there.
  std::shared_ptr<const PublishPayload> Get(const Digest128& row) const;
  std::size_t ways() const;
  // As a store that evicts: what is published after it is there again.
  void LoseAll();

 private:
  mutable absl::Mutex mu_;
  std::vector<Way> ways_ ABSL_GUARDED_BY(mu_);
  std::map<Digest128, std::shared_ptr<const PublishPayload>> rows_ ABSL_GUARDED_BY(mu_);
};

class MemorySharedTier final : public SharedTier {
 public:
  explicit MemorySharedTier(std::shared_ptr<MemoryStore> store) : store_(std::move(store)) {}

  // Parks that can be read under keys of this machine.
  std::size_t bound() const;

  TierUsage usage() const override;
  Digest128 secret() const override { return {1, 1}; }
  absl::StatusOr<std::vector<Token>> ReadTokens(const ParkKey& key) override;
  absl::StatusOr<std::vector<ExtentInfo>> ReadExtents(const ParkKey& key) override;
  absl::StatusOr<ExtentBytes> ReadExtent(
      const ParkKey& key, std::uint32_t extent,
      const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) override;
  absl::Status Remove(absl::Span<const ParkKey> keys) override;

  bool reachable() const override { return true; }
  bool writable() const override { return true; }
  absl::StatusOr<FoundWay> Find(const Digest128& identity, absl::Span<const Token> tokens,
                                std::uint32_t beyond) override;
  void Prepare(absl::Span<const ParkKey>) override {}
  void Reject(const ParkKey&) override {}
  bool RenewalDue(const ParkKey&) const override { return false; }
  void Bind(const ParkKey& key, const FoundPark& park) override;
  absl::Status Publish(const PublishRequest& request, PublishOutcome* outcome) override;
  absl::Status Erase(const ConversationId&, const Digest128&, absl::Span<const Token>,
                     absl::Span<const PublishStep>) override {
    return absl::UnimplementedError("nothing is erased here");
  }

 private:
  // NotFound: not bound, or not in the store.
  absl::StatusOr<std::shared_ptr<const PublishPayload>> Find(const ParkKey& key) const;

  const std::shared_ptr<MemoryStore> store_;
  mutable absl::Mutex mu_;
  std::map<ParkKey, Digest128> places_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parkade::test
