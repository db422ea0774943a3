// Parks that are read in part, again and again: a chat that is branched from inside of one, window
// rows of which a restore needs only the last. What one restore reads of such a park is not worth
// the rest; that of the second one in a short while goes up to the RAM tier, and the rest is read
// for it, behind all other reading.

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "src/manager/cache_impl.h"

namespace parkade {
namespace {

// Parts that wait for their rest are in no tier's budget: more of them are given up.
constexpr std::size_t kMostWaiting = 4;

}  // namespace

// Remembers what a restore has used in part. Not when it is planned: plans that are made at the
// same time read together, and most of them for the same request.
void CacheImpl::NotePartialUses(const RestoreOp& op) {
  std::vector<std::uint64_t> read_bytes(op.plan.parks.size(), 0);
  for (const PlannedExtent& extent : op.plan.extents) {
    read_bytes[extent.park] += extent.info.raw_bytes;
  }
  for (std::size_t i = 0; i < op.plan.parks.size(); ++i) {
    const PlannedPark& park = op.plan.parks[i];
    if (park.tier == kFromQueue || park.tier == ram_tier_) continue;
    if (read_bytes[i] < park.bytes) recent_parts_.Note(park.key, absl::Now());
  }
}

// What a promotion lacks is read later.
void CacheImpl::SubmitPromotion(std::size_t tier, const ParkKey& key,
                                std::unique_ptr<Promotion> part) {
  absl::MutexLock lock(&reader_mu_);
  if (to_promote_.size() >= kMostWaiting) return;
  to_promote_.push_back(PartialPromotion{tier, key, std::move(part)});
}

// Whatever goes wrong here costs nobody anything: the park stays where it is. Damage in what nobody
// has asked for is for the one who does to find: what is asked for may be whole.
void CacheImpl::CompletePromotion(PartialPromotion partial) {
  const std::size_t ram = static_cast<std::size_t>(ram_tier_);
  Promotion& promotion = *partial.part;
  if (Holds(ram, partial.key)) return;
  std::uint64_t bytes = 0;
  for (const ExtentInfo& info : promotion.extents) bytes += info.raw_bytes;
  if (!MakeRoom(ram, bytes, EvictReason::kBudget)) return;
  for (std::uint32_t i = 0; i < promotion.extents.size(); ++i) {
    if (promotion.payload[i] != nullptr) continue;
    absl::StatusOr<ExtentBytes> read =
        ReadShared(SharedReads::Key{static_cast<int>(partial.tier), partial.key, i}, true);
    // swallow: see above
    if (!read.ok() || !CheckExtent(promotion.extents[i], **read).ok()) return;
    promotion.payload[i] = *std::move(read);
  }
  StorePromotion(partial.key, std::move(promotion));
}

void CacheImpl::StorePromotion(const ParkKey& key, Promotion promotion) {
  const absl::StatusOr<ParkRecord> record = RecordOf(key, std::move(promotion.extents));
  if (!record.ok()) return;  // swallow: forgotten or cut meanwhile; nothing to promote
  StoreCopy(static_cast<std::size_t>(ram_tier_), *record, promotion.payload);
}

}  // namespace parkade
