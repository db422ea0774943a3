// Ending conversations at the last boundary that is there.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tiers/disk/reconciler.h"

namespace parkade::disk {

absl::Status Reconciler::EndConversations() {
  report_.parks = 0;
  if (absl::Status s = LoadChains(); !s.ok()) return s;
  std::vector<ConversationId> ids;
  ids.reserve(chains_.size());
  for (const auto& [id, chain] : chains_) ids.push_back(id);
  for (const ConversationId& id : ids) Cover(id);
  if (absl::Status s = DeleteEnded(); !s.ok()) return s;
  return DeleteOrphanNames();
}

absl::Status Reconciler::LoadChains() {
  const absl::Status scanned =
      db_->Scan(Family::kManifest, "", "", [&](std::string_view key, std::string_view value) {
        const absl::StatusOr<ParkKey> park = ParseManifestKey(key);
        const absl::StatusOr<RefRow> row = UnwrapRef(value);
        if (!park.ok() || !row.ok()) return true;
        const absl::StatusOr<ParkSummary> summary = DecodeManifest(*park, row->inner);
        Chain& chain = chains_[park->conversation];
        if (!summary.ok()) {
          ended_.emplace_back(*park, row->ref.segment);
          chain.broken_from = std::min(chain.broken_from.value_or(park->park), park->park);
          return true;
        }
        chain.links.push_back({park->park, summary->first_token, summary->end_token(),
                               row->ref.segment, summary->parent, summary->parent_tokens});
        return true;
      });
  if (!scanned.ok()) return scanned;
  // A park that was given up may have been taken back from another segment meanwhile.
  for (const ParkKey& key : damaged_rows_) {
    if (loose_.contains(key)) continue;
    const auto it = chains_.find(key.conversation);
    if (it == chains_.end()) continue;
    Chain& chain = it->second;
    const bool back = std::any_of(chain.links.begin(), chain.links.end(),
                                  [&](const Link& link) { return link.park == key.park; });
    if (!back) chain.broken_from = std::min(chain.broken_from.value_or(key.park), key.park);
  }
  return absl::OkStatus();
}

// Depth is the depth of forks of forks; a cycle, which only damage could make, covers nothing.
std::uint32_t Reconciler::Cover(const ConversationId& id) {
  const auto it = chains_.find(id);
  if (it == chains_.end()) return 0;
  if (it->second.done) return it->second.covered;
  if (it->second.visiting) return 0;
  it->second.visiting = true;
  EndChain(id, &it->second);
  it->second.visiting = false;
  it->second.done = true;
  return it->second.covered;
}

void Reconciler::EndChain(const ConversationId& id, Chain* chain) {
  const auto give_up = [&](const Link& link) {
    ended_.emplace_back(ParkKey{id, link.park}, link.segment);
  };
  std::vector<Link> kept;
  std::uint32_t begin = 0;
  bool whole = true;
  if (!chain->links.empty() && !chain->links.front().parent.IsZero()) {
    begin = chain->links.front().parent_tokens;
    whole = Cover(chain->links.front().parent) >= begin;
  }
  std::uint32_t covered = begin;
  for (const Link& link : chain->links) {
    if (chain->broken_from.has_value() && link.park >= *chain->broken_from) whole = false;
    // An older park over the same tokens was evicted before this one was written.
    while (whole && link.end_token > link.first_token && !kept.empty() &&
           kept.back().end_token > link.first_token && kept.back().segment < link.segment) {
      give_up(kept.back());
      kept.pop_back();
      covered = kept.empty() ? begin : kept.back().end_token;
    }
    if (link.first_token > covered) whole = false;
    if (!whole) {
      give_up(link);
      continue;
    }
    kept.push_back(link);
    covered = std::max(covered, link.end_token);
  }
  chain->covered = kept.empty() ? 0 : covered;
  if (kept.size() != chain->links.size()) {
    ++report_.ended_conversations;
    Find(absl::StrCat("conversation ", ToHex(id), " ends at token ", chain->covered, ": ",
                      chain->links.size() - kept.size(), " parks after it are not usable"));
  }
  report_.parks += kept.size();
  chain->links = std::move(kept);
}

absl::Status Reconciler::DeleteEnded() {
  RowBatch batch;
  for (const auto& [key, segment] : ended_) {
    absl::StatusOr<std::string> row = db_->Get(Family::kManifest, ManifestKey(key));
    if (absl::IsDataLoss(row.status())) return row.status();
    const std::string value = row.ok() ? *row : std::string();
    if (absl::Status s = AppendParkDeletion(*db_, key, value, &batch); !s.ok()) return s;
    drop_.push_back(segment);
  }
  return batch.empty() ? absl::OkStatus() : db_->Write(batch, true);
}

// Names and uses of conversations that have no park left, and small segments that no row names any
// more because a newer one was taken back.
absl::Status Reconciler::DeleteOrphanNames() {
  RowBatch batch;
  absl::flat_hash_set<std::uint64_t> before;
  for (const SmallOwner& owner : small_) before.insert(owner.ref.segment);
  for (const SegmentFile& file : orphans_) {
    if (file.size_bytes <= (1u << 20)) before.insert(file.segment);
  }
  if (absl::Status s = ScanSmall(); !s.ok()) return s;
  absl::flat_hash_set<std::uint64_t> named;
  for (const SmallOwner& owner : small_) {
    const absl::StatusOr<ConversationId> id = ParseConversationKey(owner.key);
    const bool alive = id.ok() && chains_.contains(*id) && !chains_[*id].links.empty();
    if (owner.family == Family::kName && !alive) {
      batch.deletes.emplace_back(Family::kName, owner.key);
      batch.deletes.emplace_back(Family::kUsage, owner.key);
    } else {
      named.insert(owner.ref.segment);
    }
  }
  absl::flat_hash_set<std::uint64_t> parks;
  for (const auto& [id, chain] : chains_) {
    for (const Link& link : chain.links) parks.insert(link.segment);
  }
  for (const std::uint64_t segment : before) {
    if (!named.contains(segment) && !parks.contains(segment)) drop_.push_back(segment);
  }
  return batch.empty() ? absl::OkStatus() : db_->Write(batch, true);
}

}  // namespace parkade::disk
