// Threads that make plans and read ahead of the import.
//
// A reader takes the next extent of an operation and only then waits for a buffer. That can't
// deadlock while all restores are stepped: the import takes extents in any order, so every buffer
// that is filled comes back.
//
// One reader at a time reads for an operation, and more only while its import has nothing to do.
// Bytes from the system's cache come from one reader as fast as they are imported: a second one
// takes memory bandwidth and, on two cores, the import's core. A medium that has to be waited for
// gets all readers.

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "src/format/checksum.h"
#include "src/format/row_cut.h"
#include "src/manager/cache_impl.h"

namespace parkade {

void CacheImpl::SubmitPlan(const std::shared_ptr<RestoreOp>& op) {
  absl::MutexLock lock(&reader_mu_);
  to_plan_.push_back(op);
}

void CacheImpl::SubmitReads(const std::shared_ptr<RestoreOp>& op) {
  absl::MutexLock lock(&reader_mu_);
  to_read_.push_back(op);
}

bool CacheImpl::WantsReader(const std::shared_ptr<RestoreOp>& op) {
  return op->far || op->readers == 0 || op->ahead == 0;
}

// Round robin, so that one long restore does not hold up a short one.
std::shared_ptr<RestoreOp> CacheImpl::TakeRead(bool far) {
  const auto found = std::find_if(to_read_.begin(), to_read_.end(), [far](const auto& op) {
    return op->far == far && WantsReader(op);
  });
  if (found == to_read_.end()) return nullptr;
  std::shared_ptr<RestoreOp> op = *found;
  to_read_.erase(found);
  to_read_.push_back(op);
  ++op->readers;
  return op;
}

void CacheImpl::WakeReaders() {
  // Their condition is looked at again when this lock is let go.
  absl::MutexLock lock(&reader_mu_);
}

void CacheImpl::ReaderLoop() {
  while (true) {
    std::shared_ptr<RestoreOp> plan;
    std::shared_ptr<RestoreOp> read;
    std::vector<std::pair<std::size_t, ParkKey>> warm;
    std::optional<PartialPromotion> promote;
    {
      absl::MutexLock lock(&reader_mu_);
      auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(reader_mu_) {
        return readers_stop_ || !to_plan_.empty() || !to_warm_.empty() || !to_promote_.empty() ||
               std::any_of(to_read_.begin(), to_read_.end(),
                           [](const auto& op) { return !op->far && WantsReader(op); });
      };
      reader_mu_.Await(absl::Condition(&work));
      if (readers_stop_) return;
      if (!to_plan_.empty()) {
        plan = std::move(to_plan_.front());
        to_plan_.pop_front();
      } else if (read = TakeRead(false); read != nullptr) {
        // Read below.
      } else if (!to_warm_.empty()) {
        warm = std::move(to_warm_.front());
        to_warm_.pop_front();
      } else if (!to_promote_.empty()) {
        promote = std::move(to_promote_.front());
        to_promote_.pop_front();
      } else {
        continue;  // an extent that came meanwhile gave the import something to do
      }
    }
    if (plan != nullptr) {
      MakePlan(plan);
      if (plan->cancelled) Unpin(plan.get());
    } else if (read != nullptr) {
      ReadOne(read);
      --read->readers;
    } else if (promote.has_value()) {
      CompletePromotion(*std::move(promote));
    } else {
      for (const auto& [tier, key] : warm) tiers_[tier]->WillRead(absl::MakeConstSpan(&key, 1));
    }
  }
}

void CacheImpl::ReadOne(const std::shared_ptr<RestoreOp>& op) {
  std::uint32_t index = 0;
  bool exhausted = false;
  {
    absl::MutexLock lock(&op->mu);
    exhausted = op->cancelled || op->next_read >= op->read_limit;
    if (!exhausted) index = op->next_read++;
  }
  if (exhausted) {
    absl::MutexLock lock(&reader_mu_);
    std::erase(to_read_, op);
    return;
  }
  absl::StatusOr<ExtentBytes> bytes = FetchExtent(op.get(), index);
  if (!bytes.ok()) {
    if (!op->cancelled) FailRead(op.get(), index, bytes.status());
    return;
  }
  CollectPromotion(op.get(), index, *bytes);
  ExtentBytes imported = CutForFork(op.get(), op->plan.extents[index], *std::move(bytes));
  absl::MutexLock lock(&op->mu);
  // What nobody is going to import must not keep a buffer of the pool.
  if (op->cancelled || op->state != Restore::State::kReading) return;
  op->progress = absl::Now();
  op->ready.emplace_back(index, std::move(imported));
  ++op->ahead;
}

// A tier relies on a buffer, so there always is one: past the pool's limit when an extent alone is
// larger than the pool, or when the cache is closing.
std::shared_ptr<ExtentBuffer> CacheImpl::ReadBuffer(std::size_t bytes, bool promoted) {
  std::shared_ptr<ExtentBuffer> buffer;
  if (!promoted) buffer = read_pool_->Allocate(bytes);
  if (buffer == nullptr) buffer = read_pool_->AllocateUncharged(bytes);
  if (buffer == nullptr) std::abort();  // no address space: as operator new would end it
  return buffer;
}

// Leaves out the rows that a fork does not share with its parent. The copy is not charged: there is
// one such extent at most a stage and fork, and waiting for the pool while holding a buffer of it
// could wait for ever.
ExtentBytes CacheImpl::CutForFork(RestoreOp* op, const PlannedExtent& extent, ExtentBytes bytes) {
  if (extent.rows == extent.info.rows) return bytes;
  std::shared_ptr<const StageMap> stages;
  {
    absl::MutexLock lock(&mu_);
    if (extent.park >= op->plan.parks.size()) return bytes;  // abandoned
    stages = op->plan.parks[extent.park].stages;
  }
  const ExtentInfo cut = FirstRows(extent.info, extent.rows);
  std::shared_ptr<ExtentBuffer> copy = ReadBuffer(cut.raw_bytes, true);
  const Stage& stage = stages->stages[extent.info.stage];
  CopyFirstRows(op->LayoutOf(stage), stage, extent.info, extent.rows, bytes->data(), copy->data());
  return copy;
}

absl::StatusOr<ExtentBytes> CacheImpl::FetchExtent(RestoreOp* op, std::uint32_t index) {
  const PlannedExtent extent = op->plan.extents[index];
  PlannedPark park;
  {
    // Abandon empties the plan.
    absl::MutexLock lock(&mu_);
    if (op->cancelled || extent.park >= op->plan.parks.size()) {
      return absl::CancelledError("abandoned");
    }
    const PlannedPark& planned = op->plan.parks[extent.park];
    park.key = planned.key;
    park.tier = planned.tier;
    if (planned.tier == kFromQueue) park.queued_payload = {planned.queued_payload[extent.ordinal]};
  }
  ExtentBytes bytes;
  if (park.tier == kFromQueue) {
    bytes = park.queued_payload[0];
    // Not sealed yet: the bytes have not left the buffer that the engine filled.
    if (extent.info.checksum.IsZero()) return bytes;
  } else {
    bool promote = false;
    {
      absl::MutexLock lock(&op->mu);
      promote = extent.park < op->promotions.size() && op->promotions[extent.park] != nullptr;
    }
    const SharedReads::Key key{park.tier, park.key, extent.ordinal};
    absl::StatusOr<ExtentBytes> read = ReadShared(key, promote);
    if (!read.ok()) return read.status();
    bytes = *std::move(read);
  }
  const absl::Status whole = CheckExtent(extent.info, *bytes);
  if (!whole.ok()) return whole;
  return bytes;
}

// One read for all that want the extent now. `promoted`: the bytes go to the RAM tier. All that
// promote the same park share its bytes: only one of them stores it, and with the copies of the
// others the bytes would be gone for those who come later.
absl::StatusOr<ExtentBytes> CacheImpl::ReadShared(const SharedReads::Key& key, bool promoted) {
  const SharedReads::Shared shared = shared_reads_.Join(key);
  if (shared.bytes == nullptr) {
    auto allocate = [&](std::size_t size) { return ReadBuffer(size, promoted); };
    absl::StatusOr<ExtentBytes> read = tiers_[key.tier]->ReadExtent(key.park, key.extent, allocate);
    shared_reads_.Finish(key, {read.ok() ? *read : nullptr, promoted});
    return read;
  }
  if (!promoted || shared.lasting) return shared.bytes;
  // Read for somebody else, kept for the RAM tier: it must not hold a place of the pool.
  std::shared_ptr<ExtentBuffer> copy = ReadBuffer(shared.bytes->size(), true);
  std::copy_n(shared.bytes->data(), shared.bytes->size(), copy->data());
  shared_reads_.Replace(key, copy);
  return ExtentBytes(std::move(copy));
}

absl::Status CacheImpl::CheckExtent(const ExtentInfo& info, const ExtentBuffer& bytes) {
  if (bytes.size() != info.raw_bytes ||
      !(Checksum(absl::MakeConstSpan(bytes.data(), bytes.size())) == info.checksum)) {
    return absl::DataLossError("checksum of an extent does not match");
  }
  return absl::OkStatus();
}

void CacheImpl::FailRead(RestoreOp* op, std::uint32_t index, const absl::Status& status) {
  int tier = kFromQueue;
  ParkKey key;
  {
    absl::MutexLock lock(&mu_);
    const std::uint32_t park = op->plan.extents[index].park;
    if (park < op->plan.parks.size()) {
      tier = op->plan.parks[park].tier;
      key = op->plan.parks[park].key;
    }
  }
  {
    // Before the copy goes: other readers then find nothing, and damage must stay the reason.
    absl::MutexLock lock(&op->mu);
    if (absl::IsDataLoss(status)) {
      op->read_failure = MissReason::kCorrupt;
    } else if (IsShared(tier) && op->read_failure != MissReason::kCorrupt) {
      op->read_failure = MissReason::kRemote;
    }
  }
  if (tier != kFromQueue) GiveUpCopy(static_cast<std::size_t>(tier), key, status);
  // After it has gone: this ends the restore, and the next lookup must not find it again.
  absl::MutexLock lock(&op->mu);
  op->read_limit = std::min(op->read_limit, index);
}

bool CacheImpl::GiveUpCopy(std::size_t tier, const ParkKey& key, const absl::Status& status) {
  const bool gone = absl::IsDataLoss(status) || absl::IsNotFound(status);
  if (gone && static_cast<int>(tier) == shared_tier_) Shared()->Reject(key);
  // The park goes, and with it what stands on it.
  const bool held = gone && DropPark(tier, key, EvictReason::kCorrupt);
  // Evicted between question and answer, or another reader has given it up and counted it.
  if (gone && !held) return true;
  ReportTierError(tier, "read", status);
  if (absl::IsDataLoss(status)) sink_->OnCorrupt(tiers_[tier]->kind());
  return gone;
}

// Decides which parks of the plan go up to the RAM tier: those that are read whole, or in part once
// more, if all of them together leave the RAM tier room for something else.
void CacheImpl::PreparePromotions(RestoreOp* op) {
  if (ram_tier_ < 0) return;
  std::vector<std::uint32_t> wanted(op->plan.parks.size(), 0);
  for (const PlannedExtent& extent : op->plan.extents) ++wanted[extent.park];
  std::vector<std::unique_ptr<Promotion>> promotions(op->plan.parks.size());
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < op->plan.parks.size(); ++i) {
    const PlannedPark& park = op->plan.parks[i];
    if (park.tier == kFromQueue || park.tier == ram_tier_) continue;
    absl::StatusOr<std::vector<ExtentInfo>> infos = tiers_[park.tier]->ReadExtents(park.key);
    if (!infos.ok() || wanted[i] == 0) continue;
    const bool whole = infos->size() == wanted[i];
    if (!whole && !recent_parts_.UsedLately(park.key, absl::Now())) continue;
    auto promotion = std::make_unique<Promotion>();
    promotion->extents = *std::move(infos);
    promotion->payload.resize(promotion->extents.size());
    promotion->missing = wanted[i];
    total += park.bytes;
    promotions[i] = std::move(promotion);
  }
  if (total == 0 || total > tiers_[ram_tier_]->usage().budget_bytes / 2) return;
  if (!MakeRoom(static_cast<std::size_t>(ram_tier_), total, EvictReason::kBudget)) return;
  absl::MutexLock lock(&op->mu);
  op->promotions = std::move(promotions);
}

void CacheImpl::CollectPromotion(RestoreOp* op, std::uint32_t index, const ExtentBytes& bytes) {
  const PlannedExtent extent = op->plan.extents[index];
  std::unique_ptr<Promotion> read;
  {
    absl::MutexLock lock(&op->mu);
    if (extent.park >= op->promotions.size() || op->promotions[extent.park] == nullptr) return;
    Promotion& promotion = *op->promotions[extent.park];
    promotion.payload[extent.ordinal] = bytes;
    if (--promotion.missing > 0) return;
    read = std::move(op->promotions[extent.park]);
  }
  ParkKey key;
  std::size_t tier = 0;
  {
    absl::MutexLock lock(&mu_);
    if (extent.park >= op->plan.parks.size()) return;
    key = op->plan.parks[extent.park].key;
    tier = static_cast<std::size_t>(op->plan.parks[extent.park].tier);
  }
  const bool whole =
      std::find(read->payload.begin(), read->payload.end(), nullptr) == read->payload.end();
  if (!whole) return SubmitPromotion(tier, key, std::move(read));
  StorePromotion(key, *std::move(read));
}

// A park's record as a tier stores it, made from the catalogue, the tokens and `extents`.
absl::StatusOr<ParkRecord> CacheImpl::RecordOf(const ParkKey& key,
                                               std::vector<ExtentInfo> extents) {
  ParkRecord record;
  std::uint8_t tiers = 0;
  {
    absl::MutexLock lock(&mu_);
    std::optional<ParkSummary> summary = catalogue_.SummaryOf(key);
    if (!summary.has_value()) return absl::NotFoundError("park is gone");
    record.summary = *std::move(summary);
    const Conversation* conversation = catalogue_.Get(catalogue_.FindId(key.conversation));
    // A copy without its page hashes would never be found.
    if (!conversation->indexed) return absl::NotFoundError("the park is not indexed any more");
    tiers = conversation->FindPark(key.park)->tiers;
  }
  const SharedTokens tokens = TokensOf(key, record.summary.token_count, tiers);
  if (tokens == nullptr || tokens->size() != record.summary.token_count) {
    return absl::NotFoundError("tokens of the park are gone");
  }
  record.tokens = *tokens;
  record.extents = std::move(extents);
  return record;
}

// Stores a copy of a park that another tier holds. False: it is not in `tier` afterwards.
bool CacheImpl::StoreCopy(std::size_t tier, const ParkRecord& record,
                          const std::vector<ExtentBytes>& payload) {
  const ParkKey key = record.summary.key;
  const absl::Time begin = absl::Now();
  absl::Status stored = RemoveRefused(tier);
  if (stored.ok()) stored = PutIdentityInto(tier, record.summary.identity);
  if (stored.ok()) stored = StoreWithAttributes(tier, record, payload);
  // AlreadyExists: somebody else stores it too, and notes it; or it is being removed just now.
  if (!stored.ok()) return absl::IsAlreadyExists(stored) && Holds(tier, key);
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  const bool noted = NoteStored(tier, key);
  // Who hears of it finds it there.
  sink_->OnSpill(tiers_[tier]->kind(), record.summary.payload_bytes, seconds);
  return noted;
}

bool CacheImpl::Holds(std::size_t tier, const ParkKey& key) const {
  absl::MutexLock lock(&mu_);
  const Handle handle = catalogue_.FindId(key.conversation);
  if (handle == kNoHandle) return false;
  const ParkState* park = catalogue_.Get(handle)->FindPark(key.park);
  return park != nullptr && (park->tiers & Bit(tier)) != 0;
}

// A tier has stored the park: notes it, or undoes it when the park was forgotten or cut meanwhile.
bool CacheImpl::NoteStored(std::size_t tier, const ParkKey& key) {
  bool conversation_gone = false;
  bool noted = false;
  // Given a name or a pin while the tier had nothing of it.
  const bool marked = MarksWithoutPark(tier, key.conversation).has_value();
  {
    absl::MutexLock lock(&mu_);
    const Handle handle = catalogue_.FindId(key.conversation);
    conversation_gone = handle == kNoHandle;
    ParkState* park = conversation_gone ? nullptr : catalogue_.Get(handle)->FindPark(key.park);
    noted = park != nullptr;
    if (noted) catalogue_.AddTiers(handle, park, Bit(tier));
  }
  if (noted && marked) {
    const absl::Status written = StoreAttributesInto(tier, key.conversation, nullptr);
    if (!written.ok()) ReportTierError(tier, "write", written);
  }
  if (noted) return true;
  // No text of a forgotten conversation may stay behind.
  const absl::Status undone = RemoveInOrder(tier, {Removal{Bit(tier), key, 0, conversation_gone}});
  if (!undone.ok()) ReportTierError(tier, "remove", undone);
  return false;
}

}  // namespace parkade
