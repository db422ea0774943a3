// A medium that holds parks: RAM, disk, remote. A tier stores keys, small headers and payload; it
// never interprets an image. It decides nothing about order, matching or what to evict.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parkade/identity.h"
#include "parkade/image.h"

namespace parkade {

enum class TierKind { kRam, kDisk, kRemote };
// "ram", "disk", "remote": the label values of the metrics.
std::string_view TierName(TierKind kind);

// A budget that is none: others decide what the medium holds, and how much that is nobody here
// knows.
inline constexpr std::uint64_t kNoBudgetBytes = UINT64_MAX;

struct TierUsage {
  std::uint64_t used_bytes = 0;      // what counts against the budget
  std::uint64_t budget_bytes = 0;    // in force now
  std::uint64_t physical_bytes = 0;  // blocks on the medium; 0 where the word means nothing
  std::uint64_t free_bytes = 0;      // free on the medium
  std::uint64_t written_bytes = 0;   // since open
  std::uint64_t read_bytes = 0;      // since open
  std::uint64_t buffer_bytes = 0;    // RAM that the tier's own buffers may take
  // "up": it reads and writes. "read_only: <reason>": it gives what it holds and stores nothing (no
  // room left, a failed write) until that has passed, which Tick finds out. "down: <reason>": it
  // gives nothing either, until Tick could open it again. The reason is one line for people.
  std::string state = "up";
  std::uint64_t lost_parks = 0;      // were held, and found missing or damaged when it was opened
  bool floor_limits_budget = false;  // budget_bytes is less than what was set: space is short
};

// What a conversation carries besides its parks. Written by WriteAttributes, last one wins.
struct ConversationAttributes {
  ConversationId conversation;
  std::int64_t last_used_unix_ms = 0;
  std::uint64_t hits = 0;
  bool pinned = false;
  std::string name;  // user's name for a saved session; empty: none
  // Position the name stands for. Without a name and not zero: the conversation was forgotten, and
  // what it has up to here is kept for forks only.
  std::uint32_t name_tokens = 0;

  bool forgotten() const { return name.empty() && name_tokens > 0; }
};

struct StoredIdentity {
  Identity identity;
  StateLayout layout;
};

class SharedTier;

// Thread safe. No call throws. Codes: NotFound: not held (a miss). DataLoss: held but damaged.
// ResourceExhausted: no room, see Shortfall. Unavailable: the medium can't be used now.
class Tier {
 public:
  virtual ~Tier() = default;

  virtual TierKind kind() const = 0;
  // True when what Store returned OK for survives the process.
  virtual bool durable() const = 0;
  virtual TierUsage usage() const = 0;
  // In force from now on, 0 too. Nothing is removed by this call; see Shortfall.
  virtual void SetBudget(std::uint64_t budget_bytes) = 0;

  // ---- catalogue; reads no payload ----

  // Secret that keys page hashes, stored with the data, made at creation.
  virtual Digest128 secret() const = 0;
  virtual absl::Status Enumerate(const std::function<void(const ParkSummary&)>& visit) = 0;
  virtual absl::Status EnumerateAttributes(
      const std::function<void(const ConversationAttributes&)>& visit) = 0;
  virtual absl::Status EnumerateIdentities(
      const std::function<void(const Digest128&, const StoredIdentity&)>& visit) = 0;
  virtual absl::StatusOr<std::vector<Token>> ReadTokens(const ParkKey& key) = 0;
  // The park's extents, after checking that the medium has all their bytes (presence and size).
  virtual absl::StatusOr<std::vector<ExtentInfo>> ReadExtents(const ParkKey& key) = 0;

  // ---- payload ----

  // Bytes that have to be evicted before a park of `payload_bytes` fits; 0: it fits now.
  // UINT64_MAX: it can't fit however much is evicted (too large, read-only).
  virtual std::uint64_t Shortfall(std::uint64_t payload_bytes) const = 0;

  // Stores a whole park or nothing. payload[i] holds extents[i]. On OK a durable tier has synced.
  // AlreadyExists when the key is there. The identity must have been put before.
  virtual absl::Status Store(const ParkRecord& record, absl::Span<const ExtentBytes> payload) = 0;

  // Decoded raw bytes of one extent. The caller checks the checksum. A tier that holds the bytes in
  // memory shares them; another one fills a buffer got from `allocate` (never null), of which the
  // bytes may be a part.
  virtual absl::StatusOr<ExtentBytes> ReadExtent(
      const ParkKey& key, std::uint32_t extent,
      const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) = 0;
  // A hint that these parks will be read soon. Returns at once.
  virtual void WillRead(absl::Span<const ParkKey> keys) { (void)keys; }

  // ---- removal ----

  // Rows first (synced where durable), then bytes. Unknown keys are ignored. Attributes of a
  // conversation that is named by a key and of which no park is left go as well.
  virtual absl::Status Remove(absl::Span<const ParkKey> keys) = 0;
  // Removes a conversation's parks and attributes so that no text of it stays behind. Attributes
  // that say it was forgotten before stay as long as parks of it do.
  virtual absl::Status Forget(const ConversationId& conversation,
                              absl::Span<const ParkKey> keys) = 0;

  // ---- small rows ----

  virtual absl::Status PutIdentity(const Digest128& digest, const StoredIdentity& identity) = 0;
  // `durable`: synced on return; else written when convenient, at most at close.
  virtual absl::Status WriteAttributes(absl::Span<const ConversationAttributes> attributes,
                                       bool durable) = 0;
  // Housekeeping (space recount, recovery of a failed medium). Called about once a second from a
  // background thread; may do I/O.
  virtual void Tick() {}
  // Not null: it is one that other machines write, too; see shared_tier.h.
  virtual SharedTier* shared() { return nullptr; }
};

}  // namespace parkade
