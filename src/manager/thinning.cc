// Checkpoints take a bounded share of a tier. Each stands in parks of its own, which nothing stands
// on, so that the usual removal gives its bytes back.

#include "src/policy/thinning.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/manager/cache_impl.h"

namespace parkade {
namespace {

// Conversations looked at while the lock is held once.
constexpr std::size_t kPiece = 512;
// Looked at again when this part of the share was written since; so much less than the share is
// left, so that it holds in between.
constexpr std::uint64_t kStep = 16;

}  // namespace

// What of the positions below `tokens` of the ancestors is in use through the conversation.
void CacheImpl::NoteUses(const Conversation& conversation, CheckpointUses* uses) const {
  CheckpointUse use;
  use.last_used_unix_ms = conversation.attributes.last_used_unix_ms;
  use.pinned = conversation.attributes.pinned;
  use.tokens = conversation.parent_tokens;
  for (Handle handle = conversation.parent; handle != kNoHandle;) {
    const Conversation* ancestor = catalogue_.Get(handle);
    (*uses)[ancestor->id].push_back(use);
    use.tokens = std::min(use.tokens, ancestor->parent_tokens);
    handle = ancestor->parent;
  }
}

// The checkpoints of a conversation in the tier, but for the newest: that one is what the
// conversation goes on from, and of a purely recurrent model all that makes it one.
void CacheImpl::CollectCheckpoints(const Conversation& conversation, std::size_t tier,
                                   std::vector<StoredCheckpoint>* found) const {
  std::map<std::uint32_t, StoredCheckpoint> by_position;
  for (const ParkState& park : conversation.parks) {
    if (!park.IsCheckpoint()) continue;
    StoredCheckpoint& checkpoint = by_position[park.first];
    checkpoint.parks.push_back(ParkKey{conversation.id, park.park});
    const bool here = (park.tiers & Bit(tier)) != 0;
    checkpoint.candidate.bytes += here ? park.bytes : 0;
    checkpoint.held = checkpoint.held || park.pins > 0 || park.pending != nullptr;
  }
  if (by_position.empty()) return;
  if (conversation.parent == kNoHandle) by_position.begin()->second.candidate.first = true;
  by_position.erase(std::prev(by_position.end()));
  for (auto& [position, checkpoint] : by_position) {
    if (checkpoint.candidate.bytes == 0) continue;
    checkpoint.candidate.position = position;
    checkpoint.candidate.last_used_unix_ms = conversation.attributes.last_used_unix_ms;
    checkpoint.pinned = conversation.attributes.pinned;
    found->push_back(std::move(checkpoint));
  }
}

// Takes what may still go out of the tier's books.
CacheImpl::Victims CacheImpl::TakeSuperseded(std::size_t tier,
                                             const std::vector<StoredCheckpoint>& chosen) {
  Victims taken;
  absl::MutexLock lock(&mu_);
  for (const StoredCheckpoint& checkpoint : chosen) {
    const Handle handle = catalogue_.FindId(checkpoint.parks.front().conversation);
    if (handle == kNoHandle) continue;
    for (const ParkKey& key : checkpoint.parks) {
      const ParkState* park = catalogue_.Get(handle)->FindPark(key.park);
      if (park == nullptr || (park->tiers & Bit(tier)) == 0) continue;
      if (park->pins > 0 || park->pending != nullptr) break;
      taken.bytes += park->bytes;
      TakeOut(tier, handle, key.park, &taken.removals);
      if (catalogue_.FindId(key.conversation) == kNoHandle) break;
    }
  }
  return taken;
}

void CacheImpl::ThinCheckpoints(std::size_t tier) {
  const TierUsage usage = tiers_[tier]->usage();
  const std::uint64_t share = usage.budget_bytes / kCheckpointShare;
  if (share == 0) return;  // whatever there is goes as soon as nobody uses it
  {
    absl::MutexLock lock(&mu_);
    ThinningState& state = thinning_[tier];
    if (state.share == share && usage.written_bytes - state.written_bytes < share / kStep) return;
    state.share = share;
    state.written_bytes = usage.written_bytes;
  }
  std::vector<StoredCheckpoint> found;
  CheckpointUses uses;
  ConversationId last;
  for (bool more = true; more;) {
    if (!last.IsZero()) LetOthersIn();
    absl::MutexLock lock(&mu_);
    const auto& by_id = catalogue_.by_id();
    auto it = last.IsZero() ? by_id.begin() : by_id.upper_bound(last);
    for (std::size_t i = 0; i < kPiece && it != by_id.end(); ++i, ++it) {
      const Conversation& conversation = *catalogue_.Get(it->second);
      last = it->first;
      CollectCheckpoints(conversation, tier, &found);
      NoteUses(conversation, &uses);
    }
    more = it != by_id.end();
  }
  std::uint64_t bytes = 0;
  for (StoredCheckpoint& checkpoint : found) {
    for (const CheckpointUse& use : uses[checkpoint.parks.front().conversation]) {
      if (checkpoint.candidate.position > use.tokens) continue;
      checkpoint.candidate.last_used_unix_ms =
          std::max(checkpoint.candidate.last_used_unix_ms, use.last_used_unix_ms);
      // A saved session goes on from its very position.
      checkpoint.pinned =
          checkpoint.pinned || (use.pinned && checkpoint.candidate.position == use.tokens);
    }
    if (!checkpoint.pinned) bytes += checkpoint.candidate.bytes;
  }
  const std::uint64_t keep = share - share / kStep;
  if (bytes <= keep) return;
  std::erase_if(found, [](const StoredCheckpoint& each) { return each.pinned || each.held; });
  std::vector<CheckpointCandidate> candidates;
  for (const StoredCheckpoint& checkpoint : found) candidates.push_back(checkpoint.candidate);
  std::vector<StoredCheckpoint> chosen;
  for (const std::size_t i : ChooseSuperseded(candidates, bytes - keep)) {
    chosen.push_back(std::move(found[i]));
  }
  Victims taken = TakeSuperseded(tier, chosen);
  if (bytes - taken.bytes > keep) {
    // Some are in use or queued: their turn comes without another write.
    absl::MutexLock lock(&mu_);
    thinning_[tier].share = 0;
  }
  if (taken.removals.empty()) return;
  // swallow: it was reported; the next write thins again.
  RemoveFromTiers(std::move(taken.removals), EvictReason::kSuperseded).IgnoreError();
}

}  // namespace parkade
