#include "tiers/ram/ram_tier.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "src/format/checksum.h"
#include "tiers/ram/available_memory.h"

namespace parkade {
namespace {

constexpr std::uint64_t kNeverFits = UINT64_MAX;
// Besides payload, a park holds tokens, page hashes and extent rows. Shortfall knows the payload
// only and sets aside what all but the tiniest models need: 4 KiB and one byte in 64.
constexpr std::uint64_t kRecordBytes = 4096;
constexpr int kRecordShift = 6;
// What the allocator and a node of std::map add to a value: measured with glibc, rounded up.
constexpr std::uint64_t kNodeBytes = 96;

std::uint64_t WithRecord(std::uint64_t payload_bytes) {
  if (payload_bytes > kNeverFits / 2) return kNeverFits;
  return payload_bytes + kRecordBytes + (payload_bytes >> kRecordShift);
}

template <typename T>
std::uint64_t HeldBytes(const std::vector<T>& values) {
  return values.capacity() * sizeof(T);
}

std::uint64_t HeldBytes(const StageMap& map) {
  std::uint64_t bytes = HeldBytes(map.stages);
  for (const Stage& stage : map.stages) bytes += stage.device.capacity() + HeldBytes(stage.layers);
  return bytes;
}

// One park, immutable once it is in the map, so that readers need the lock for the lookup only.
struct Entry {
  ParkRecord record;
  std::vector<ExtentBytes> payload;
  std::uint64_t payload_bytes = 0;
  std::uint64_t held_bytes = 0;  // payload and everything else
};
using EntryPointer = std::shared_ptr<const Entry>;

absl::StatusOr<EntryPointer> MakeEntry(const ParkRecord& record,
                                       absl::Span<const ExtentBytes> payload) {
  if (payload.size() != record.extents.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(payload.size(), " payloads for ", record.extents.size(), " extents"));
  }
  if (record.tokens.size() != record.summary.token_count) {
    return absl::InvalidArgumentError("token count does not match the tokens");
  }
  auto entry = std::make_shared<Entry>();
  for (std::size_t i = 0; i < payload.size(); ++i) {
    if (payload[i] == nullptr || payload[i]->size() != record.extents[i].raw_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("payload of extent ", i, " has a wrong size"));
    }
    entry->payload_bytes += payload[i]->size();
  }
  entry->record = record;
  entry->payload.assign(payload.begin(), payload.end());
  const ParkSummary& summary = entry->record.summary;
  entry->held_bytes = entry->payload_bytes + sizeof(Entry) + kNodeBytes +
                      HeldBytes(entry->payload) + HeldBytes(entry->record.tokens) +
                      HeldBytes(entry->record.extents) + HeldBytes(summary.page_hashes) +
                      HeldBytes(summary.window_rows) + HeldBytes(summary.checkpoints) +
                      HeldBytes(summary.stages);
  return EntryPointer(std::move(entry));
}

std::uint64_t HeldBytes(const ConversationAttributes& row) {
  return sizeof(ConversationAttributes) + kNodeBytes + row.name.capacity();
}

std::uint64_t HeldBytes(const StoredIdentity& row) {
  std::uint64_t bytes = sizeof(StoredIdentity) + kNodeBytes + HeldBytes(row.layout.planes);
  for (const IdentityField& field : row.identity.fields()) {
    bytes += sizeof(field) + field.name.capacity() + field.value.capacity();
  }
  return bytes;
}

class RamTier : public Tier {
 public:
  explicit RamTier(const RamTierOptions& options)
      : secret_(RandomDigest()),
        min_free_bytes_(options.min_free_bytes),
        available_(options.available_bytes ? options.available_bytes : SystemAvailableBytes,
                   absl::Now),
        budget_bytes_(options.budget_bytes) {}

  TierKind kind() const override { return TierKind::kRam; }
  bool durable() const override { return false; }
  TierUsage usage() const override;
  void SetBudget(std::uint64_t budget_bytes) override;

  Digest128 secret() const override { return secret_; }
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

  absl::Status Remove(absl::Span<const ParkKey> keys) override;
  absl::Status Forget(const ConversationId& conversation, absl::Span<const ParkKey> keys) override;
  absl::Status PutIdentity(const Digest128& digest, const StoredIdentity& identity) override;
  absl::Status WriteAttributes(absl::Span<const ConversationAttributes> attributes,
                               bool durable) override;

 private:
  absl::StatusOr<EntryPointer> Find(const ParkKey& key) const;
  bool BelowFloor() const { return min_free_bytes_ > 0 && available_.Bytes() < min_free_bytes_; }
  template <typename Row>
  void Replace(std::map<Digest128, Row>& rows, const Digest128& key, const Row& row)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EraseAttributes(const ConversationId& conversation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::uint64_t ShortfallOf(std::uint64_t wanted_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Digest128 secret_;
  const std::uint64_t min_free_bytes_;
  const ram::AvailableMemory available_;
  std::atomic<std::uint64_t> read_bytes_{0};

  mutable absl::Mutex mu_;
  std::uint64_t budget_bytes_ ABSL_GUARDED_BY(mu_);
  std::uint64_t park_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // held by parks: can be evicted
  std::uint64_t row_bytes_ ABSL_GUARDED_BY(mu_) = 0;   // by attributes and identities: can't
  std::uint64_t written_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<ParkKey, EntryPointer> parks_ ABSL_GUARDED_BY(mu_);
  std::map<ConversationId, ConversationAttributes> attributes_ ABSL_GUARDED_BY(mu_);
  std::map<Digest128, StoredIdentity> identities_ ABSL_GUARDED_BY(mu_);
};

TierUsage RamTier::usage() const {
  TierUsage usage;
  const std::uint64_t available = available_.Bytes();
  if (available != ram::kUnknownBytes) usage.free_bytes = available;
  if (available < min_free_bytes_) {
    usage.state = absl::StrCat("read_only: ", available >> 20, " MiB of memory available, ",
                               min_free_bytes_ >> 20, " MiB are to be left");
  }
  usage.read_bytes = read_bytes_.load(std::memory_order_relaxed);
  absl::MutexLock lock(&mu_);
  usage.used_bytes = park_bytes_ + row_bytes_;
  usage.budget_bytes = budget_bytes_;
  usage.written_bytes = written_bytes_;
  return usage;
}

void RamTier::SetBudget(std::uint64_t budget_bytes) {
  absl::MutexLock lock(&mu_);
  budget_bytes_ = budget_bytes;
}

// The visitors run without the lock: they may call this tier again.
absl::Status RamTier::Enumerate(const std::function<void(const ParkSummary&)>& visit) {
  std::vector<EntryPointer> entries;
  {
    absl::MutexLock lock(&mu_);
    entries.reserve(parks_.size());
    for (const auto& [key, entry] : parks_) entries.push_back(entry);
  }
  for (const EntryPointer& entry : entries) visit(entry->record.summary);
  return absl::OkStatus();
}

absl::Status RamTier::EnumerateAttributes(
    const std::function<void(const ConversationAttributes&)>& visit) {
  std::vector<ConversationAttributes> rows;
  {
    absl::MutexLock lock(&mu_);
    rows.reserve(attributes_.size());
    for (const auto& [conversation, row] : attributes_) rows.push_back(row);
  }
  for (const ConversationAttributes& row : rows) visit(row);
  return absl::OkStatus();
}

absl::Status RamTier::EnumerateIdentities(
    const std::function<void(const Digest128&, const StoredIdentity&)>& visit) {
  std::vector<std::pair<Digest128, StoredIdentity>> rows;
  {
    absl::MutexLock lock(&mu_);
    rows.assign(identities_.begin(), identities_.end());
  }
  for (const auto& [digest, row] : rows) visit(digest, row);
  return absl::OkStatus();
}

absl::StatusOr<EntryPointer> RamTier::Find(const ParkKey& key) const {
  absl::MutexLock lock(&mu_);
  const auto found = parks_.find(key);
  if (found == parks_.end()) return absl::NotFoundError("no such park in RAM");
  return found->second;
}

absl::StatusOr<std::vector<Token>> RamTier::ReadTokens(const ParkKey& key) {
  absl::StatusOr<EntryPointer> entry = Find(key);
  if (!entry.ok()) return entry.status();
  return (*entry)->record.tokens;
}

absl::StatusOr<std::vector<ExtentInfo>> RamTier::ReadExtents(const ParkKey& key) {
  absl::StatusOr<EntryPointer> entry = Find(key);
  if (!entry.ok()) return entry.status();
  return (*entry)->record.extents;
}

std::uint64_t RamTier::ShortfallOf(std::uint64_t wanted_bytes) const {
  const std::uint64_t for_parks = budget_bytes_ - std::min(budget_bytes_, row_bytes_);
  if (wanted_bytes > for_parks) return kNeverFits;
  const std::uint64_t total = park_bytes_ + wanted_bytes;
  return total - std::min(total, for_parks);
}

std::uint64_t RamTier::Shortfall(std::uint64_t payload_bytes) const {
  if (BelowFloor()) return kNeverFits;
  absl::MutexLock lock(&mu_);
  return ShortfallOf(WithRecord(payload_bytes));
}

absl::Status RamTier::Store(const ParkRecord& record, absl::Span<const ExtentBytes> payload) {
  absl::StatusOr<EntryPointer> entry = MakeEntry(record, payload);
  if (!entry.ok()) return entry.status();
  const bool below_floor = BelowFloor();
  const ParkSummary& summary = record.summary;
  absl::MutexLock lock(&mu_);
  if (parks_.contains(summary.key)) {
    return absl::AlreadyExistsError(absl::StrCat("park ", summary.key.park, " of conversation ",
                                                 ToHex(summary.key.conversation), " is held"));
  }
  if (!identities_.contains(summary.identity)) {
    return absl::FailedPreconditionError("the park's identity was not put");
  }
  if (below_floor) return absl::ResourceExhaustedError("free memory is below the floor");
  // Shortfall's answer is a promise, so its estimate decides even where the record is larger.
  const std::uint64_t held = (*entry)->held_bytes;
  if (ShortfallOf(std::min(held, WithRecord((*entry)->payload_bytes))) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("RAM budget: ", park_bytes_ + row_bytes_,
                                                     " of ", budget_bytes_, " bytes held, ", held,
                                                     " wanted"));
  }
  park_bytes_ += held;
  written_bytes_ += (*entry)->payload_bytes;
  parks_.emplace(summary.key, *std::move(entry));
  return absl::OkStatus();
}

absl::StatusOr<ExtentBytes> RamTier::ReadExtent(
    const ParkKey& key, std::uint32_t extent,
    const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& /*allocate*/) {
  absl::StatusOr<EntryPointer> entry = Find(key);
  if (!entry.ok()) return entry.status();
  if (extent >= (*entry)->payload.size()) {
    return absl::NotFoundError(absl::StrCat("the park has no extent ", extent));
  }
  const ExtentBytes& bytes = (*entry)->payload[extent];
  read_bytes_.fetch_add(bytes->size(), std::memory_order_relaxed);
  return bytes;
}

absl::Status RamTier::Remove(absl::Span<const ParkKey> keys) {
  std::vector<EntryPointer> dropped;  // freed after the lock: giving gigabytes back takes a while
  absl::MutexLock lock(&mu_);
  for (const ParkKey& key : keys) {
    const auto found = parks_.find(key);
    if (found == parks_.end()) continue;
    park_bytes_ -= found->second->held_bytes;
    dropped.push_back(std::move(found->second));
    parks_.erase(found);
  }
  for (const ParkKey& key : keys) {
    const auto left = parks_.lower_bound(ParkKey{key.conversation, 0});
    if (left != parks_.end() && left->first.conversation == key.conversation) continue;
    EraseAttributes(key.conversation);
  }
  return absl::OkStatus();
}

void RamTier::EraseAttributes(const ConversationId& conversation) {
  const auto found = attributes_.find(conversation);
  if (found == attributes_.end()) return;
  row_bytes_ -= HeldBytes(found->second);
  attributes_.erase(found);
}

absl::Status RamTier::Forget(const ConversationId& conversation, absl::Span<const ParkKey> keys) {
  if (absl::Status status = Remove(keys); !status.ok()) return status;
  absl::MutexLock lock(&mu_);
  const auto found = attributes_.find(conversation);
  const auto left = parks_.lower_bound(ParkKey{conversation, 0});
  const bool kept = left != parks_.end() && left->first.conversation == conversation;
  // What says that it was forgotten stays with what a fork keeps of it.
  if (!(kept && found != attributes_.end() && found->second.forgotten())) {
    EraseAttributes(conversation);
  }
  return absl::OkStatus();
}

template <typename Row>
void RamTier::Replace(std::map<Digest128, Row>& rows, const Digest128& key, const Row& row) {
  // Assigning in place would keep the memory of a longer old row.
  if (const auto old = rows.find(key); old != rows.end()) {
    row_bytes_ -= HeldBytes(old->second);
    rows.erase(old);
  }
  row_bytes_ += HeldBytes(rows.emplace(key, row).first->second);
}

absl::Status RamTier::PutIdentity(const Digest128& digest, const StoredIdentity& identity) {
  absl::MutexLock lock(&mu_);
  Replace(identities_, digest, identity);
  return absl::OkStatus();
}

absl::Status RamTier::WriteAttributes(absl::Span<const ConversationAttributes> attributes,
                                      bool /*durable*/) {
  absl::MutexLock lock(&mu_);
  for (const ConversationAttributes& row : attributes) Replace(attributes_, row.conversation, row);
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Tier> MakeRamTier(const RamTierOptions& options) {
  return std::make_unique<RamTier>(options);
}

}  // namespace parkade
