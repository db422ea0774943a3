// A tier that several machines write, too large and too far away to be listed: it is asked for a
// prompt, and told of a conversation that this machine holds.
//
// Its parks are numbered by whoever wrote them. Those that a prompt was found to match are bound to
// keys of this cache, under which the calls of Tier read them from then on.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "parkade/image.h"
#include "parkade/tier.h"

namespace parkade {

// One park on the way to a position, as a tier of the store holds it.
struct FoundPark {
  Digest128 row;          // where it stands; never used again for anything else
  ParkRecord record;      // key: its writer's; page hashes are not set
  std::uint32_t end = 0;  // the way leaves it here: below its own end, another one goes on
};

// What a shared tier has of a prompt.
struct FoundWay {
  // Root first, without a gap; the last one may go on differently after its first tokens.
  std::vector<FoundPark> parks;
  // The store said that it has so many tokens of the prompt, and something of them is gone or, if
  // `damaged`, not what was stored. 0: nothing was missed.
  std::uint32_t lost_tokens = 0;
  bool damaged = false;
};

struct PublishStep {
  ParkKey key;
  TokenRange tokens;      // the park's own; empty where it adds state or window rows only
  std::uint32_t end = 0;  // as FoundPark::end
};

struct PublishPayload {
  ParkRecord record;
  std::vector<ExtentBytes> extents;
};

struct PublishRequest {
  Digest128 identity;
  std::vector<Token> tokens;       // of the whole way
  std::vector<PublishStep> steps;  // root first
  // The park's record and bytes, checked. An error ends the publishing there, and so does a payload
  // that does not fit its record (InvalidArgument); nothing of that park is stored.
  std::function<absl::StatusOr<PublishPayload>(const PublishStep& step)> read;
};

struct PublishOutcome {
  std::uint32_t steps = 0;          // so many of the steps are in the store, from the first on
  std::vector<ParkKey> bound;       // of them, those that can be read under their keys
  std::uint64_t written_bytes = 0;  // payload; 0: all was there
  std::uint32_t written_parks = 0;
};

// Thread safe; calls wait for the network, never longer than their deadline or, for Publish, than
// each of its values may take. Tier::Store is not used: Unimplemented.
class SharedTier : public Tier {
 public:
  // ---- of Tier, what has no meaning here: it is not listed, not durable and has no budget of this
  // machine's; names, pins and identities are every machine's own.
  TierKind kind() const override { return TierKind::kRemote; }
  bool durable() const override { return false; }
  void SetBudget(std::uint64_t) override {}
  std::uint64_t Shortfall(std::uint64_t) const override { return 0; }
  absl::Status Enumerate(const std::function<void(const ParkSummary&)>&) override {
    return absl::OkStatus();
  }
  absl::Status EnumerateAttributes(
      const std::function<void(const ConversationAttributes&)>&) override {
    return absl::OkStatus();
  }
  absl::Status EnumerateIdentities(
      const std::function<void(const Digest128&, const StoredIdentity&)>&) override {
    return absl::OkStatus();
  }
  absl::Status Store(const ParkRecord&, absl::Span<const ExtentBytes>) override {
    return absl::UnimplementedError("a shared tier is published to");
  }
  // As Remove: the store keeps it, see Erase.
  absl::Status Forget(const ConversationId&, absl::Span<const ParkKey> keys) override {
    return Remove(keys);
  }
  absl::Status PutIdentity(const Digest128&, const StoredIdentity&) override {
    return absl::OkStatus();
  }
  absl::Status WriteAttributes(absl::Span<const ConversationAttributes>, bool) override {
    return absl::OkStatus();
  }
  SharedTier* shared() override { return this; }

  // False: it was not reachable when it was asked last. Nothing waits for it then; Tick finds out
  // when it is there again.
  virtual bool reachable() const = 0;
  // It is reachable, and did not refuse the last write.
  virtual bool writable() const = 0;
  // Parks whose tokens the prompt begins with. None: none goes beyond `beyond`. Errors are
  // Unavailable and DeadlineExceeded: it could not be asked; PermissionDenied: not with this
  // password or key.
  virtual absl::StatusOr<FoundWay> Find(const Digest128& identity, absl::Span<const Token> tokens,
                                        std::uint32_t beyond) = 0;
  // Reads what ReadTokens and ReadExtents of these parks need, in one go: without it each park
  // costs a wait of its own. Does nothing for what is there already.
  virtual void Prepare(absl::Span<const ParkKey> keys) = 0;
  // Bytes of the park turned out to be damaged or gone: nobody is to find it any more, so that who
  // has it stores it anew. Waits for nothing.
  virtual void Reject(const ParkKey& key) = 0;
  // Something uses the park, and what it stands on: true when Publish is to renew its time to live.
  virtual bool RenewalDue(const ParkKey& key) const = 0;
  // `key` stands for the park from now on, until Remove. Waits for nothing: may be called with
  // locks held.
  virtual void Bind(const ParkKey& key, const FoundPark& park) = 0;
  // Stores what of the steps is not there yet, and renews the time to live of the rest. The outcome
  // counts also when the status is an error.
  virtual absl::Status Publish(const PublishRequest& request, PublishOutcome* outcome) = 0;
  // The conversation's own steps go from the store, and nobody stores them again for as long as
  // anything lives there. `steps` as for Publish, `tokens` of the whole way.
  virtual absl::Status Erase(const ConversationId& conversation, const Digest128& identity,
                             absl::Span<const Token> tokens,
                             absl::Span<const PublishStep> steps) = 0;
};

}  // namespace parkade
