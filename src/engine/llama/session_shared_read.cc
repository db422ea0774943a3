// Session: one read serves all whose prompts begin alike.
//
// A task whose prompt begins like one that another slot is reading waits until that one has read
// the common part, and takes it from the cache. It waits no longer than it would read itself, and
// the other one reads alone instead of beside it. When the reader goes away before that, one of
// those who wait goes on from what it has read, and the others wait for this one.

#include <algorithm>
#include <utility>

#include "src/engine/llama/session.h"

namespace parkade {
namespace {

// Fewer tokens are read again in no time.
constexpr std::uint32_t kLeastShared = kPageTokens;

struct KeptPart {
  std::uint32_t tokens = 0;  // that can be restored
  std::uint32_t until = 0;   // when the reader has come so far
};

// What a reader keeps of the first `common` tokens of its prompt. Rows alone do anywhere; window
// rows and state are kept at its boundaries, and window rows at the end of the prompt.
KeptPart KeptOf(const StateLayout& layout, const PromptBoundaries& boundaries, std::uint32_t prompt,
                std::uint32_t common) {
  if (layout.rows_alone()) return {common, common};
  if (!layout.has_group(RowGroup::kState) && common + kLeastShared > prompt)
    return {common, prompt};
  const auto after = std::upper_bound(boundaries.wanted.begin(), boundaries.wanted.end(), common);
  if (after == boundaries.wanted.begin()) return {};
  return {*(after - 1), *(after - 1)};
}

}  // namespace

// `again`: the task has waited already, so what others have read by now is in the cache.
std::optional<Session::SharedRead> Session::FindSharedRead(const SlotView& slot,
                                                           const server_task& task,
                                                           const LookupRequest& request,
                                                           bool again) {
  if (!request.enabled || !loaded_.slots) return std::nullopt;
  SharedRead best;
  for (const SlotView& other : loaded_.slots()) {
    if (other.id == slot.id || !other.processing || !Cacheable(other)) continue;
    const Track& reader = tracks_[other.id];
    // One that waits for a reader itself will not be waited for: nobody waits in a circle.
    if (reader.task != other.task->id || reader.shared.has_value() ||
        reader.adapters != tracks_[slot.id].adapters) {
      continue;
    }
    const std::uint32_t common =
        std::min(request.cacheable_tokens,
                 static_cast<std::uint32_t>(other.task->tokens.get_common_prefix(task.tokens)));
    const KeptPart kept = KeptOf(view_->layout(), reader.boundaries,
                                 static_cast<std::uint32_t>(other.task->n_tokens()), common);
    const SharedRead found{other.id, other.task->id, kept.tokens, kept.until, {}};
    if (found.tokens > best.tokens && !(again && ReadSoFar(other, found))) best = found;
  }
  if (best.tokens < request.held_tokens + kLeastShared) return std::nullopt;
  best.request = request;
  return best;
}

// Whether the slot has read what the other task waits for.
bool Session::ReadSoFar(const SlotView& other, const SharedRead& shared) {
  return tracks_[other.id].reused_task == shared.task &&
         static_cast<std::uint32_t>(other.prompt->n_tokens()) >= shared.until;
}

// True: the slot goes on, with the restore it has or a new one.
bool Session::SharedReadEnded(const std::vector<SlotView>& slots, const SlotView& slot,
                              Track* track) {
  SharedRead& shared = *track->shared;
  if (track->restore != nullptr) {
    const Restore::State state = track->restore->state();
    if (state == Restore::State::kPlanning) return false;
    const std::uint32_t own =
        state == Restore::State::kReading ? track->restore->restored_tokens() : 0;
    if (own + kLeastShared > shared.tokens) {
      track->shared.reset();
      return true;
    }
    track->restore.reset();
  }
  for (const SlotView& other : slots) {
    if (other.id != shared.slot || other.task == nullptr || other.task->id != shared.task) continue;
    if (!ReadSoFar(other, shared)) return false;
    // Window rows and state were kept when it passed them; of rows alone not every batch is.
    // swallow: what can't be kept is counted.
    if (tracks_[other.id].captured < shared.tokens) (void)Capture(other, false);
  }
  LookupRequest request = std::move(shared.request);
  // The reader has gone away, or somebody who waited for it, too, reads on the same: then one of
  // them is enough again.
  track->shared.reset();
  track->shared = FindSharedRead(slot, *slot.task, request, true);
  track->restore = options_.cache->Lookup(std::move(request));
  return !track->shared.has_value();
}

}  // namespace parkade
