// Writer threads: checksums, RAM tier, then the durable tier.
//
// With a RAM tier there are two threads, so that a park is in RAM, and its capture buffers free,
// while the disk is still busy with the one before.

#include <algorithm>
#include <utility>

#include "src/format/checksum.h"
#include "src/manager/cache_impl.h"

namespace parkade {

void CacheImpl::Seal(const std::shared_ptr<PendingPark>& pending) {
  std::shared_ptr<const ParkRecord> record;
  std::vector<ExtentBytes> payload;
  {
    absl::MutexLock lock(&mu_);
    pending->begun = true;
    if (pending->sealed) return;
    record = pending->record;
    payload = pending->payload;
  }
  auto sealed = std::make_shared<ParkRecord>(*record);
  for (std::size_t i = 0; i < payload.size(); ++i) {
    sealed->extents[i].checksum =
        Checksum(absl::MakeConstSpan(payload[i]->data(), payload[i]->size()));
  }
  absl::MutexLock lock(&mu_);
  pending->record = std::move(sealed);
  pending->sealed = true;
}

// A durable tier must not hold a park without those it stands on. Parks that were evicted from it
// while a faster tier kept them are written again. False: that was not possible.
bool CacheImpl::CompleteBelow(std::size_t tier, const std::shared_ptr<PendingPark>& pending) {
  std::vector<std::pair<ParkKey, std::uint8_t>> missing;
  {
    absl::MutexLock lock(&mu_);
    const ParkSummary& summary = pending->record->summary;
    const Conversation* conversation = catalogue_.Get(pending->conversation);
    if (conversation == nullptr || !(conversation->id == summary.key.conversation)) return false;
    for (const PathPark& step : catalogue_.Path(pending->conversation, summary.first_token)) {
      const ParkState* before = catalogue_.Get(step.conversation)->FindPark(step.key.park);
      if ((before->tiers & Bit(tier)) == 0) missing.emplace_back(step.key, before->tiers);
    }
  }
  for (const auto& [key, tiers] : missing) {
    bool copied = false;
    for (std::size_t from = 0; from < tiers_.size() && !copied; ++from) {
      if ((tiers & Bit(from)) != 0) copied = CopyDown(from, tier, key);
    }
    if (!copied) return false;
  }
  return true;
}

bool CacheImpl::CopyDown(std::size_t from, std::size_t to, const ParkKey& key) {
  absl::StatusOr<std::vector<ExtentInfo>> extents = tiers_[from]->ReadExtents(key);
  if (!extents.ok()) return false;
  std::vector<ExtentBytes> payload;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < extents->size(); ++i) {
    absl::StatusOr<ExtentBytes> read = tiers_[from]->ReadExtent(
        key, i, [this](std::size_t size) { return capture_pool_->AllocateUncharged(size); });
    // What is damaged here must not last there.
    const absl::Status whole = read.ok() ? CheckExtent((*extents)[i], **read) : read.status();
    if (absl::IsDataLoss(whole)) GiveUpCopy(from, key, whole);
    if (!whole.ok()) return false;
    bytes += (*read)->size();
    payload.push_back(*std::move(read));
  }
  absl::StatusOr<ParkRecord> record = RecordOf(key, *std::move(extents));
  return record.ok() && MakeRoom(to, bytes, EvictReason::kBudget) &&
         StoreCopy(to, *record, payload);
}

// Pins what the park stands on meanwhile: making room for the park must not take that away.
bool CacheImpl::StoreHeld(std::size_t tier, const std::shared_ptr<PendingPark>& pending) {
  std::vector<PathPark> held;
  {
    absl::MutexLock lock(&mu_);
    const ParkSummary& summary = pending->record->summary;
    const Conversation* conversation = catalogue_.Get(pending->conversation);
    if (conversation != nullptr && conversation->id == summary.key.conversation) {
      held = catalogue_.Path(pending->conversation, summary.first_token);
    }
    for (const PathPark& step : held) catalogue_.Pin(step.conversation, step.key, 1);
  }
  const bool stored = StoreInto(tier, pending);
  absl::MutexLock lock(&mu_);
  for (const PathPark& step : held) catalogue_.Pin(step.conversation, step.key, -1);
  return stored;
}

// False: the tier does not hold the park; why was counted.
bool CacheImpl::StoreInto(std::size_t tier, const std::shared_ptr<PendingPark>& pending) {
  std::shared_ptr<const ParkRecord> record;
  std::vector<ExtentBytes> payload;
  {
    absl::MutexLock lock(&mu_);
    record = pending->record;
    payload = pending->payload;
    Conversation* conversation = catalogue_.Get(pending->conversation);
    const ParkKey& key = record->summary.key;
    // Forgotten or cut off while it waited.
    if (conversation == nullptr || !(conversation->id == key.conversation) ||
        conversation->FindPark(key.park) == nullptr) {
      return false;
    }
  }
  const TierKind kind = tiers_[tier]->kind();
  const bool durable = tiers_[tier]->durable();
  absl::Status known = RemoveRefused(tier);
  if (known.ok()) known = PutIdentityInto(tier, record->summary.identity);
  if (!known.ok()) {
    ReportTierError(tier, "write", known);
    return false;
  }
  if ((durable && !CompleteBelow(tier, pending)) ||
      !MakeRoom(tier, record->summary.payload_bytes, EvictReason::kBudget)) {
    // Without a durable tier the park is lost now; with one that one is asked yet.
    if (durable || durable_tier_ < 0) {
      sink_->OnSkippedPark(SkipReason::kNoSpace, record->summary.token_count);
    }
    return false;
  }
  const absl::Time begin = absl::Now();
  const absl::Status stored = StoreWithAttributes(tier, *record, payload);
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  if (!stored.ok()) {
    ReportTierError(tier, "write", stored);
    // A tier that had to begin anew lost the identity: it is put again before the next park.
    absl::MutexLock lock(&mu_);
    if (absl::IsFailedPrecondition(stored)) {
      identity_tiers_[record->summary.identity] &= static_cast<std::uint8_t>(~Bit(tier));
    }
    return false;
  }
  if (durable && record->summary.payload_bytes > (1u << 20) && seconds > 0) {
    const double speed = static_cast<double>(record->summary.payload_bytes) / seconds;
    absl::MutexLock lock(&mu_);
    spill_bytes_per_second_ += 0.2 * (speed - spill_bytes_per_second_);
  }
  const bool noted = NoteStored(tier, record->summary.key);
  // Who hears of it finds it there.
  sink_->OnSpill(kind, record->summary.payload_bytes, seconds);
  if (IsCheckpoint(*record)) ThinCheckpoints(tier);
  return noted;
}

// The tiers have what they will have: the queue's own hold on the bytes ends.
void CacheImpl::FinishPending(const std::shared_ptr<PendingPark>& pending) {
  TrimIndex();
  std::vector<Removal> removals;
  {
    absl::MutexLock lock(&mu_);
    const ParkKey key = pending->record->summary.key;
    pending_bytes_ -= pending->record->summary.payload_bytes;
    --pending_parks_;
    Conversation* conversation = catalogue_.Get(pending->conversation);
    if (conversation != nullptr && conversation->id == key.conversation) {
      ParkState* park = conversation->FindPark(key.park);
      if (park != nullptr) {
        catalogue_.SetPending(pending->conversation, park, nullptr);
        if (park->tiers == 0) removals = catalogue_.ClearTiers(pending->conversation, key.park, 0);
      }
    }
    pending->payload.clear();
  }
  SubmitPublish(pending->record->summary.key.conversation);
  // swallow: it was reported, and nobody waits for this.
  RemoveFromTiers(std::move(removals), EvictReason::kBudget).IgnoreError();
  // What was queued could not leave the RAM tier.
  EnforceSlots();
}

void CacheImpl::SealLoop() {
  while (true) {
    std::shared_ptr<PendingPark> pending;
    {
      absl::MutexLock lock(&mu_);
      auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stopping_ || !seal_queue_.empty();
      };
      mu_.Await(absl::Condition(&work));
      if (seal_queue_.empty()) {
        sealer_done_ = true;
        return;
      }
      pending = std::move(seal_queue_.front());
      seal_queue_.pop_front();
    }
    Seal(pending);
    if (StoreHeld(static_cast<std::size_t>(ram_tier_), pending)) {
      // The RAM tier accounts for the bytes from now on.
      std::vector<ExtentBytes> payload;
      {
        absl::MutexLock lock(&mu_);
        payload = pending->payload;
      }
      for (const ExtentBytes& bytes : payload) BufferPool::Uncharge(bytes);
      EnforceSlots();
    }
    if (durable_tier_ >= 0) {
      absl::MutexLock lock(&mu_);
      spill_queue_.push_back(std::move(pending));
    } else {
      FinishPending(pending);
    }
  }
}

void CacheImpl::SpillLoop() {
  while (true) {
    std::shared_ptr<PendingPark> pending;
    {
      absl::MutexLock lock(&mu_);
      auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return !spill_queue_.empty() || (stopping_ && (sealer_done_ || ram_tier_ < 0));
      };
      mu_.Await(absl::Condition(&work));
      if (spill_queue_.empty()) return;
      pending = std::move(spill_queue_.front());
      spill_queue_.pop_front();
    }
    Seal(pending);
    StoreHeld(static_cast<std::size_t>(durable_tier_), pending);
    FinishPending(pending);
  }
}

void CacheImpl::Drain(std::int64_t deadline_ms) {
  const absl::Time begin = absl::Now();
  std::vector<std::shared_ptr<PendingPark>> dropped;
  {
    absl::MutexLock lock(&mu_);
    auto empty = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return pending_parks_ == 0; };
    if (!mu_.AwaitWithTimeout(absl::Condition(&empty), absl::Milliseconds(deadline_ms))) {
      dropped.assign(spill_queue_.begin(), spill_queue_.end());
      dropped.insert(dropped.end(), seal_queue_.begin(), seal_queue_.end());
      spill_queue_.clear();
      seal_queue_.clear();
      // They must not grow while they are taken apart.
      for (const auto& pending : dropped) pending->begun = true;
    }
  }
  DrainPublishing(begin + absl::Milliseconds(deadline_ms));
  std::uint64_t tokens = 0;
  for (const auto& pending : dropped) {
    tokens += pending->record->tokens.size();
    FinishPending(pending);
  }
  if (!dropped.empty()) {
    sink_->OnSkippedPark(SkipReason::kQueueFull, static_cast<std::uint32_t>(tokens));
    sink_->Log(LogLevel::kWarning,
               "drain: " + std::to_string(tokens) + " tokens were not stored in time");
  }
  WriteAttributes(true);
}

}  // namespace parkade
