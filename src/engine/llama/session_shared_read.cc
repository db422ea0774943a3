// Session: one read serves all whose prompts begin alike.
//
// A task whose prompt begins like one that another slot is reading waits until that one has read
// the common part, and takes it from the cache. It waits no longer than it would read itself, and
// the other one reads alone instead of beside it.

#include <algorithm>
#include <utility>

#include "src/engine/llama/session.h"

namespace parkade {
namespace {

// Fewer tokens are read again in no time.
constexpr std::uint32_t kLeastShared = kPageTokens;

}  // namespace

std::optional<Session::SharedRead> Session::FindSharedRead(const SlotView& slot,
                                                           const server_task& task,
                                                           const LookupRequest& request) {
  if (!request.enabled || !loaded_.slots) return std::nullopt;
  const bool rows_suffice =
      !view_->layout().has_group(RowGroup::kWindow) && !view_->layout().has_group(RowGroup::kState);
  SharedRead best;
  for (const SlotView& other : loaded_.slots()) {
    if (other.id == slot.id || !other.processing || !Cacheable(other)) continue;
    const Track& reader = tracks_[other.id];
    // One that waits for a reader itself will not be waited for: nobody waits in a circle.
    if (reader.task != other.task->id || reader.shared.has_value() ||
        reader.adapters != tracks_[slot.id].adapters) {
      continue;
    }
    std::uint32_t tokens =
        std::min(request.cacheable_tokens,
                 static_cast<std::uint32_t>(other.task->tokens.get_common_prefix(task.tokens)));
    if (!rows_suffice) {
      // The last place where the reader's window rows and state will be kept.
      const std::int32_t message = other.task->params.message_spans.last_user_message_pos();
      if (message < 0 || static_cast<std::uint32_t>(message) > tokens) continue;
      tokens = static_cast<std::uint32_t>(message);
    }
    if (tokens > best.tokens) best = SharedRead{other.id, other.task->id, tokens, {}};
  }
  if (best.tokens < request.held_tokens + kLeastShared) return std::nullopt;
  best.request = request;
  return best;
}

// True: the slot goes on, with the restore it has or a new one.
bool Session::SharedReadEnded(const std::vector<SlotView>& slots, Track* track) {
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
    const bool begun = tracks_[other.id].reused_task == shared.task;
    const std::uint32_t read = static_cast<std::uint32_t>(other.prompt->n_tokens());
    if (!begun || read < shared.tokens) return false;
    // Window rows and state were kept when it passed them; of rows alone not every batch is.
    // swallow: what can't be kept is counted.
    if (tracks_[other.id].captured < shared.tokens) (void)Capture(other, false);
  }
  track->restore = options_.cache->Lookup(std::move(shared.request));
  track->shared.reset();
  return true;
}

}  // namespace parkade
