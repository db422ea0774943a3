// A tier with scripted faults in front of a real one. Without faults it changes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "parkade/tier.h"

namespace parkade::test {

enum class TierCall {
  kEnumerate,
  kEnumerateAttributes,
  kEnumerateIdentities,
  kReadTokens,
  kReadExtents,
  kShortfall,
  kStore,
  kReadExtent,
  kWillRead,
  kRemove,
  kForget,
  kPutIdentity,
  kWriteAttributes,
  kTick,
};
inline constexpr int kTierCalls = 14;

struct Fault {
  enum class Kind {
    kFail,       // not forwarded, `status` returned; Shortfall answers UINT64_MAX
    kFailAfter,  // forwarded and, when it went well, `status` returned: a lost acknowledgement
    kFlip,       // ReadExtent, Store: one bit of byte `at` (modulo the size) of a copy is flipped
    kShorten,    // ReadExtent: a copy that lacks the last byte
    kOmit,       // ReadExtents: the list without extent `extent`, or without its last one
  };

  TierCall call = TierCall::kReadExtent;
  Kind kind = Kind::kFail;
  absl::Status status = absl::UnavailableError("scripted");
  std::uint64_t skip = 0;            // this many matching calls go well first
  std::uint64_t times = UINT64_MAX;  // then this many are hit
  std::uint64_t at = 0;
  // Which calls match; empty: all. Remove and Forget match when the key is among theirs.
  std::optional<ParkKey> key;
  std::optional<std::uint32_t> extent;
};

// What a call is about: the park and extent where there is one.
struct CallSubject {
  TierCall call;
  absl::Span<const ParkKey> keys;
  std::optional<std::uint32_t> extent;
};

// Thread safe. Owns the tier behind it.
class FaultyTier : public Tier {
 public:
  explicit FaultyTier(std::unique_ptr<Tier> inner);
  ~FaultyTier() override;

  Tier& inner() { return *inner_; }

  // Faults are asked in the order they were added; the first that matches and is due acts.
  void AddFault(Fault fault);
  void ClearFaults();
  // Runs on the caller's thread before a call is forwarded or failed, without a lock: a test blocks
  // there, moves its clock, or looks on. Null: nothing. Set before other threads use the tier.
  void SetObserver(std::function<void(const CallSubject&)> observer);

  std::uint64_t calls(TierCall call) const;
  std::uint64_t payload_bytes_read() const;     // that ReadExtent gave out
  std::uint64_t payload_bytes_written() const;  // that Store took with OK
  std::uint64_t faults_hit() const;

  TierKind kind() const override { return inner_->kind(); }
  bool durable() const override { return inner_->durable(); }
  TierUsage usage() const override { return inner_->usage(); }
  void SetBudget(std::uint64_t budget_bytes) override { inner_->SetBudget(budget_bytes); }
  Digest128 secret() const override { return inner_->secret(); }
  absl::Status Enumerate(const std::function<void(const ParkSummary&)>& visit) override;
  absl::Status EnumerateAttributes(
      const std::function<void(const ConversationAttributes&)>& visit) override;
  absl::Status EnumerateIdentities(
      const std::function<void(const Digest128&, const StoredIdentity&)>& visit) override;
  absl::StatusOr<std::vector<Token>> ReadTokens(const ParkKey& key) override;
  absl::StatusOr<std::vector<ExtentInfo>> ReadExtents(const ParkKey& key) override;
  std::uint64_t Shortfall(std::uint64_t payload_bytes) const override;
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
  struct Script {
    Fault fault;
    std::uint64_t matched = 0;
  };

  // Counts and shows the call, and takes the fault that hits it.
  std::optional<Fault> Enter(TierCall call, absl::Span<const ParkKey> keys,
                             std::optional<std::uint32_t> extent = std::nullopt) const;
  template <typename Forward>
  absl::Status Run(const std::optional<Fault>& fault, const Forward& forward) const;

  const std::unique_ptr<Tier> inner_;
  mutable absl::Mutex mu_;
  mutable std::vector<Script> scripts_ ABSL_GUARDED_BY(mu_);
  std::function<void(const CallSubject&)> observer_ ABSL_GUARDED_BY(mu_);
  mutable std::array<std::uint64_t, kTierCalls> calls_ ABSL_GUARDED_BY(mu_){};
  mutable std::uint64_t faults_hit_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t payload_bytes_read_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t payload_bytes_written_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace parkade::test
