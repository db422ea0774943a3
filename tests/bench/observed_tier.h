// A tier in front of another one that notes how long storing and removing take.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "parkade/tier.h"

namespace parkade::bench {

// Shared with the cache that owns the tier. Thread safe.
class TierTimes {
 public:
  void AddStore(double seconds);
  void AddRemove(double seconds);
  std::vector<double> stores() const;
  std::vector<double> removes() const;

 private:
  mutable absl::Mutex mu_;
  std::vector<double> stores_ ABSL_GUARDED_BY(mu_);
  std::vector<double> removes_ ABSL_GUARDED_BY(mu_);
};

class ObservedTier : public Tier {
 public:
  ObservedTier(std::unique_ptr<Tier> inner, std::shared_ptr<TierTimes> times)
      : inner_(std::move(inner)), times_(std::move(times)) {}

  TierKind kind() const override { return inner_->kind(); }
  bool durable() const override { return inner_->durable(); }
  TierUsage usage() const override { return inner_->usage(); }
  void SetBudget(std::uint64_t budget_bytes) override { inner_->SetBudget(budget_bytes); }
  Digest128 secret() const override { return inner_->secret(); }
  absl::Status Enumerate(const std::function<void(const ParkSummary&)>& visit) override {
    return inner_->Enumerate(visit);
  }
  absl::Status EnumerateAttributes(
      const std::function<void(const ConversationAttributes&)>& visit) override {
    return inner_->EnumerateAttributes(visit);
  }
  absl::Status EnumerateIdentities(
      const std::function<void(const Digest128&, const StoredIdentity&)>& visit) override {
    return inner_->EnumerateIdentities(visit);
  }
  absl::StatusOr<std::vector<Token>> ReadTokens(const ParkKey& key) override {
    return inner_->ReadTokens(key);
  }
  absl::StatusOr<std::vector<ExtentInfo>> ReadExtents(const ParkKey& key) override {
    return inner_->ReadExtents(key);
  }
  std::uint64_t Shortfall(std::uint64_t payload_bytes) const override {
    return inner_->Shortfall(payload_bytes);
  }
  absl::Status Store(const ParkRecord& record, absl::Span<const ExtentBytes> payload) override;
  absl::StatusOr<ExtentBytes> ReadExtent(
      const ParkKey& key, std::uint32_t extent,
      const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) override {
    return inner_->ReadExtent(key, extent, allocate);
  }
  void WillRead(absl::Span<const ParkKey> keys) override { inner_->WillRead(keys); }
  absl::Status Remove(absl::Span<const ParkKey> keys) override;
  absl::Status Forget(const ConversationId& conversation, absl::Span<const ParkKey> keys) override {
    return inner_->Forget(conversation, keys);
  }
  absl::Status PutIdentity(const Digest128& digest, const StoredIdentity& identity) override {
    return inner_->PutIdentity(digest, identity);
  }
  absl::Status WriteAttributes(absl::Span<const ConversationAttributes> attributes,
                               bool durable) override {
    return inner_->WriteAttributes(attributes, durable);
  }
  void Tick() override { inner_->Tick(); }

 private:
  const std::unique_ptr<Tier> inner_;
  const std::shared_ptr<TierTimes> times_;
};

}  // namespace parkade::bench
