// Parks that are read in part, again and again: a chat that is branched from inside of one, window
// rows of which a restore needs only the last. What a restore reads of them is not enough for the
// RAM tier; the second use in a short while brings them up as a whole, behind all other reading.

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "src/manager/cache_impl.h"

namespace parkade {

void CacheImpl::PromoteUsedAgain(const RestoreOp& op) {
  if (ram_tier_ < 0) return;
  std::vector<std::uint64_t> read_bytes(op.plan.parks.size(), 0);
  for (const PlannedExtent& extent : op.plan.extents) {
    read_bytes[extent.park] += extent.info.raw_bytes;
  }
  // As with what is read whole: the RAM tier has to have room for something else.
  const std::uint64_t most = tiers_[ram_tier_]->usage().budget_bytes / 2;
  std::vector<std::pair<std::size_t, ParkKey>> wanted;
  for (std::size_t i = 0; i < op.plan.parks.size(); ++i) {
    const PlannedPark& park = op.plan.parks[i];
    if (park.tier == kFromQueue || park.tier == ram_tier_ || park.bytes > most) continue;
    if (read_bytes[i] == 0 || read_bytes[i] == park.bytes) continue;
    if (!recent_parts_.UsedAgain(park.key, absl::Now())) continue;
    wanted.emplace_back(static_cast<std::size_t>(park.tier), park.key);
  }
  if (wanted.empty()) return;
  absl::MutexLock lock(&reader_mu_);
  to_promote_.insert(to_promote_.end(), wanted.begin(), wanted.end());
}

// What goes wrong here costs nobody anything: the park stays where it is. Damage in a part that
// nobody has asked for is for the one who does to find; what is asked for may be whole.
void CacheImpl::PromoteWhole(std::size_t tier, const ParkKey& key) {
  const std::size_t ram = static_cast<std::size_t>(ram_tier_);
  if (Holds(ram, key)) return;
  absl::StatusOr<std::vector<ExtentInfo>> extents = tiers_[tier]->ReadExtents(key);
  if (!extents.ok()) return;  // swallow: see above
  std::uint64_t bytes = 0;
  for (const ExtentInfo& info : *extents) bytes += info.raw_bytes;
  if (!MakeRoom(ram, bytes, EvictReason::kBudget)) return;
  std::vector<ExtentBytes> payload;
  for (std::uint32_t i = 0; i < extents->size(); ++i) {
    absl::StatusOr<ExtentBytes> read =
        ReadShared(SharedReads::Key{static_cast<int>(tier), key, i}, true);
    // swallow: see above
    if (!read.ok() || !CheckExtent((*extents)[i], **read).ok()) return;
    payload.push_back(*std::move(read));
  }
  const absl::StatusOr<ParkRecord> record = RecordOf(key, *std::move(extents));
  if (!record.ok()) return;  // swallow: forgotten or cut meanwhile; nothing to promote
  StoreCopy(ram, *record, payload);
}

}  // namespace parkade
