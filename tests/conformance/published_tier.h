// A shared tier as a tier of the suite.
//
// Store publishes the park as a step of a way of its own, finds it at a second machine by the way's
// tokens, and binds it there; everything is read at that one, so it has come through boundary and
// row. What a shared tier leaves to the manager is kept here, and only where a test needs it to
// tell the tier's own bytes: which keys are held (one store of a key wins), and the summaries that
// came through the store. Attributes and identities are the manager's alone: as behind the tier
// itself, there are none.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "parkade/shared_tier.h"

namespace parkade::test {

// Thread safe. Owns both machines' views of the one store.
class PublishedTier : public Tier {
 public:
  PublishedTier(std::unique_ptr<SharedTier> writer, std::unique_ptr<SharedTier> reader);

  TierKind kind() const override { return reader_->kind(); }
  bool durable() const override { return reader_->durable(); }
  TierUsage usage() const override;
  void SetBudget(std::uint64_t budget_bytes) override { reader_->SetBudget(budget_bytes); }
  Digest128 secret() const override { return reader_->secret(); }
  absl::Status Enumerate(const std::function<void(const ParkSummary&)>& visit) override;
  absl::Status EnumerateAttributes(
      const std::function<void(const ConversationAttributes&)>& visit) override;
  absl::Status EnumerateIdentities(
      const std::function<void(const Digest128&, const StoredIdentity&)>& visit) override;
  absl::StatusOr<std::vector<Token>> ReadTokens(const ParkKey& key) override;
  absl::StatusOr<std::vector<ExtentInfo>> ReadExtents(const ParkKey& key) override;
  std::uint64_t Shortfall(std::uint64_t payload_bytes) const override;
  // Internal: what was published is not what another machine finds.
  absl::Status Store(const ParkRecord& record, absl::Span<const ExtentBytes> payload) override;
  absl::StatusOr<ExtentBytes> ReadExtent(
      const ParkKey& key, std::uint32_t extent,
      const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) override;
  void WillRead(absl::Span<const ParkKey> keys) override;
  absl::Status Remove(absl::Span<const ParkKey> keys) override;
  absl::Status Forget(const ConversationId& conversation, absl::Span<const ParkKey> keys) override;
  absl::Status PutIdentity(const Digest128& digest, const StoredIdentity& identity) override;
  absl::Status WriteAttributes(absl::Span<const ConversationAttributes> attributes,
                               bool durable) override;
  void Tick() override;

 private:
  absl::StatusOr<FoundPark> PublishAndFind(const ParkRecord& record,
                                           absl::Span<const ExtentBytes> payload);
  // Not held any more; of them, those that the tiers are to be told of. A park that is just being
  // stored was not there yet.
  std::vector<ParkKey> TakeOut(absl::Span<const ParkKey> keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<SharedTier> writer_;
  const std::unique_ptr<SharedTier> reader_;
  std::atomic<std::uint64_t> next_way_{0};
  absl::Mutex mu_;
  std::set<ParkKey> storing_ ABSL_GUARDED_BY(mu_);
  std::map<ParkKey, ParkSummary> held_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parkade::test
