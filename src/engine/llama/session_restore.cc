// Session: from a task's launch to the moment its reuse is fixed.
//
// A slot whose restore is not finished waits in a state in which the server's loop leaves it alone,
// so other slots go on between slices. Only when no other slot works does the loop wait for bytes.

#include <algorithm>
#include <utility>

#include "common.h"
#include "llama.h"
#include "src/engine/llama/prompt_tokens.h"
#include "src/engine/llama/session.h"
#include "src/engine/llama/session_timer.h"

namespace parkade {
namespace {

// Longest stall of other slots for one extent or more of an import.
constexpr std::int64_t kSliceUs = 10000;
// Longest time the loop gives to a restore when nobody else works; then it looks at its queue.
constexpr std::int64_t kAloneUs = 200000;
// The same where several restores go on: each waits a little for its bytes, in turns, because those
// of the others may hold the buffers that it needs.
constexpr std::int64_t kTurnUs = 2000;

// Marks a checkpoint without bytes; no task has this number.
constexpr int kMarkerTask = -77;

}  // namespace

// How many of the slot's tokens llama-server would reuse for this task by itself. The same rules as
// in its own code: what a window or a recurrent state can't roll back to is given up.
std::uint32_t Session::EffectiveHeld(const SlotView& slot, const server_task& task) const {
  const std::uint32_t common =
      static_cast<std::uint32_t>(slot.prompt->tokens.get_common_prefix(task.tokens));
  if (common == 0) return 0;
  llama_memory_t memory = llama_get_memory(slot.ctx_tgt);
  const bool more = common < static_cast<std::uint32_t>(task.n_tokens());
  const llama_model* model = llama_get_model(slot.ctx_tgt);
  const int window = view_->swa_full() ? 0 : llama_model_n_swa(model);
  const llama_pos next = slot.prompt->tokens.pos_next(common);
  const llama_pos threshold = std::max(0, next - window - (more ? 0 : 1));
  if (llama_memory_seq_pos_min(memory, slot.id) < threshold) return common;
  for (auto it = slot.prompt->checkpoints.rbegin(); it != slot.prompt->checkpoints.rend(); ++it) {
    if (it->pos_max > next) continue;
    if (it->pos_min < threshold || it->pos_min == 0) {
      return std::min(common, static_cast<std::uint32_t>(it->n_tokens));
    }
  }
  return 0;
}

void Session::OnLaunched(const SlotView& slot, const server_task& task) {
  if (!Active()) return;
  Timer timer(this, "launched");
  TakeShifts();
  NoteAdapters(slot, task);
  Track& track = tracks_[slot.id];
  if (track.in_flight()) DropRestore(&track, slot);
  auto seen = seen_.find(task.id);
  const absl::Time came = seen == seen_.end() ? absl::Now() : seen->second;
  if (seen != seen_.end()) seen_.erase(seen);
  const bool completion =
      task.type == SERVER_TASK_TYPE_COMPLETION || task.type == SERVER_TASK_TYPE_INFILL;
  track.boundaries = PromptBoundaries();
  if (!completion || task.is_child()) return;
  // swallow: what can't be kept is counted.
  if (track.leftover) (void)Capture(slot, true);
  if (track.leftover) {
    options_.cache->CountSkippedPark(
        SkipReason::kQueueFull,
        static_cast<std::uint32_t>(slot.prompt->n_tokens()) - track.captured);
    track.leftover = false;
  }
  LookupRequest request;
  CacheTokens tokens = CacheTokensOf(task.tokens, view_->wide());
  request.tokens.assign(tokens.tokens.begin(), tokens.tokens.end());
  request.cacheable_tokens = tokens.cacheable;
  request.whole_ranges = std::move(tokens.media);
  request.held_tokens = task.params.cache_prompt ? EffectiveHeld(slot, task) : 0;
  request.held_all = request.held_tokens == static_cast<std::uint32_t>(slot.prompt->n_tokens());
  if (!request.held_all) {
    const auto held = TokensOf(slot.prompt->tokens).subspan(request.held_tokens, kExplainTokens);
    request.held_next.assign(held.begin(), held.end());
  }
  request.name_change = [this](auto... sides) { return NameChange(sides...); };
  request.enabled = task.params.cache_prompt && slot.alora_start < 0;
  if (request.enabled) {
    const std::optional<Digest128> identity = IdentityFor(*slot.lora);
    request.enabled = identity.has_value();
    if (identity.has_value()) request.identity = *identity;
  }
  if (request.whole_ranges.empty()) AddDraft(&request);
  // A dense model goes on anywhere.
  if (request.enabled && !view_->layout().rows_alone()) {
    track.boundaries =
        BoundariesOf(task.params.message_spans, static_cast<std::uint32_t>(request.tokens.size()),
                     request.cacheable_tokens, view_->layout().has_group(RowGroup::kState),
                     request.whole_ranges);
    request.user_starts = track.boundaries.user_starts;
  }
  track.task = task.id;
  track.launched = came;
  track.first_token_seen = false;
  track.lowest = std::nullopt;
  track.placed = false;
  track.no_room = false;
  track.shared = FindSharedRead(slot, task, request, false);
  track.restore = options_.cache->Lookup(std::move(request));
  track.pending = track.restore->state() != Restore::State::kMiss || track.shared.has_value();
  if (track.pending) ++restoring_;
}

void Session::EmptySlot(const SlotView& slot) {
  llama_memory_seq_rm(llama_get_memory(slot.ctx_tgt), slot.id, -1, -1);
  if (slot.ctx_dft != nullptr) {
    llama_memory_seq_rm(llama_get_memory(slot.ctx_dft), slot.id, -1, -1);
  }
  slot.prompt->clear();
  Track& track = tracks_[slot.id];
  track.captured = 0;
  track.boundary = 0;
  track.leftover = false;
  track.shifted_from = UINT32_MAX;
}

const server_tokens& Session::WantedTokens(const SlotView& slot, const Track& track) {
  return track.action != nullptr ? track.session_tokens : slot.task->tokens;
}

void Session::DropRestore(Track* track, const SlotView& slot) {
  if (track->placed && track->pending) EmptySlot(slot);
  if (track->pending) --restoring_;
  track->pending = false;
  track->sequence.reset();
  track->restore.reset();
  track->shared.reset();
  if (track->action == nullptr) return;
  track->action->Fail(absl::CancelledError("the restore was interrupted"));
  track->action = nullptr;
}

// What the slot holds of the pool. A restore that goes on holds cells, though the slot's prompt is
// still empty.
std::uint64_t Session::PoolTokens(const SlotView& slot) const {
  const std::uint64_t tokens = static_cast<std::uint64_t>(slot.prompt->n_tokens());
  const auto found = tracks_.find(slot.id);
  if (found == tracks_.end() || found->second.restore == nullptr || !found->second.placed) {
    return tokens;
  }
  return std::max<std::uint64_t>(tokens, found->second.restore->restored_tokens());
}

// A unified pool holds all slots' tokens: idle ones, parked, give way. Never the chosen one, never
// one that works. False: there is no room, and nothing was changed. Recurrent state alone has a
// cell for every slot, however long what it stands for is.
bool Session::MakeRoom(std::vector<SlotView>& slots, const SlotView& wanted, std::uint32_t tokens) {
  if (tokens >= static_cast<std::uint32_t>(wanted.n_ctx)) return false;
  const bool rows =
      view_->layout().has_group(RowGroup::kFull) || view_->layout().has_group(RowGroup::kWindow);
  if (!loaded_.params->kv_unified || !rows) return true;
  const std::uint64_t pool = llama_n_ctx(wanted.ctx_tgt);
  std::uint64_t used = std::uint64_t{tokens} + 1;
  std::vector<SlotView*> idle;
  std::uint64_t idle_tokens = 0;
  for (SlotView& slot : slots) {
    if (slot.id == wanted.id) continue;
    if (slot.processing || slot.taken_by != 0) {
      used += PoolTokens(slot);
    } else {
      idle.push_back(&slot);
      idle_tokens += PoolTokens(slot);
    }
  }
  if (used > pool) return false;
  std::sort(idle.begin(), idle.end(), [](const SlotView* a, const SlotView* b) {
    return a->prompt->n_tokens() > b->prompt->n_tokens();
  });
  for (SlotView* slot : idle) {
    if (used + idle_tokens <= pool) break;
    idle_tokens -= PoolTokens(*slot);
    // swallow: what can't be kept is counted.
    if (tracks_[slot->id].leftover) (void)Capture(*slot, true);
    EmptySlot(*slot);
  }
  return true;
}

// llama-server goes on at a position only if memory begins before its window, or if there is a
// checkpoint of it. A restored one begins in the window, or with the state of that position alone.
void Session::AddCheckpoint(const SlotView& slot, std::uint32_t tokens) {
  const int window = view_->swa_full() ? 0 : llama_model_n_swa(llama_get_model(slot.ctx_tgt));
  const llama_pos next = slot.prompt->tokens.pos_next(tokens);
  const llama_pos reach = std::max(0, next - window);
  if (llama_memory_seq_pos_min(llama_get_memory(slot.ctx_tgt), slot.id) < reach) return;
  common_prompt_checkpoint& checkpoint = slot.prompt->checkpoints.emplace_back();
  // From position 0 on: what the window needs below is in memory.
  checkpoint.update_pos(tokens, 0, next);
  if (window > 0 && view_->layout().has_group(RowGroup::kState)) {
    // Stays: the state of this position is lost with the next token.
    checkpoint.update_tgt(slot.ctx_tgt, slot.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    checkpoint.update_dft(slot.ctx_dft, slot.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
  } else {
    // Memory holds all rows: one without bytes says so. It goes in OnReused, because it would say
    // so also when memory does not hold them any more.
    checkpoint.id_task = kMarkerTask;
  }
}

void Session::FinishRestore(const SlotView& slot, Track* track) {
  const std::uint32_t tokens = track->restore->restored_tokens();
  const bool has_mtmd = slot.prompt->tokens.has_mtmd;
  slot.prompt->clear();
  slot.prompt->tokens = FirstTokens(WantedTokens(slot, *track), tokens, has_mtmd);
  AddCheckpoint(slot, tokens);
  track->captured = tokens;
  track->boundary = tokens;
  track->prompt = slot.prompt;
}

// True: the restore has ended, one way or the other, and the slot goes on.
bool Session::StepRestore(std::vector<SlotView>& slots, SlotView& slot, Track* track, bool alone) {
  const absl::Time begin = absl::Now();
  const std::int64_t budget_us = !alone ? kSliceUs : restoring_ == 1 ? kAloneUs : kTurnUs;
  auto left_ms = [&] {
    const absl::Duration left = absl::Microseconds(budget_us) - (absl::Now() - begin);
    return std::max<std::int64_t>(0, absl::ToInt64Milliseconds(left));
  };
  while (true) {
    Restore& restore = *track->restore;
    if (!restore.Ready() && (!alone || !restore.WaitReady(left_ms()))) return false;
    switch (restore.state()) {
      case Restore::State::kPlanning:
        return false;
      case Restore::State::kMiss:
        return true;
      case Restore::State::kRestored:
        FinishRestore(slot, track);
        return true;
      case Restore::State::kFailed:
        EmptySlot(slot);
        return true;
      case Restore::State::kReading:
        break;
    }
    if (!track->placed) {
      // A session is restored whole or not at all.
      if (track->action != nullptr &&
          restore.restored_tokens() < track->action->session.token_count) {
        return true;
      }
      // What the slot holds was parked at its release; this is for what did not fit then.
      // swallow: what can't be kept is counted.
      if (track->leftover) (void)Capture(slot, true);
      // Beside those that work there is no room: the slot keeps what it has, the prompt is read.
      track->no_room = !MakeRoom(slots, slot, restore.restored_tokens());
      if (track->no_room) return true;
      EmptySlot(slot);
      track->sequence = SequenceOf(slot.id, WantedTokens(slot, *track));
      track->placed = true;
    }
    const Restore::State state = restore.Step(*track->sequence, budget_us);
    if (state == Restore::State::kReading && (!alone || left_ms() == 0)) return false;
  }
}

void Session::OnRestoring(std::vector<SlotView>& slots) {
  if (!Active()) return;
  StepActions(slots);
  if (restoring_ == 0) return;
  Timer timer(this, "restoring", true);
  bool others = false;
  for (const SlotView& slot : slots) {
    others = others || (slot.processing && !tracks_[slot.id].pending);
  }
  for (SlotView& slot : slots) {
    Track& track = tracks_[slot.id];
    if (!track.pending || slot.taken_by != 0) continue;
    // The launch failed after the look-up, or the task was cancelled.
    if (slot.task == nullptr || slot.task->id != track.task) {
      DropRestore(&track, slot);
      continue;
    }
    if (track.action != nullptr && track.action->abandoned) {
      DropRestore(&track, slot);
      slot.finished = true;
      continue;
    }
    if (track.shared.has_value() && !SharedReadEnded(slots, slot, &track)) {
      slot.started = false;
      slot.waiting = true;
      continue;
    }
    const absl::Time begin = absl::Now();
    const bool ended = StepRestore(slots, slot, &track, !others);
    if (others) {
      absl::MutexLock lock(&mu_);
      times_.longest_slice_seconds =
          std::max(times_.longest_slice_seconds, absl::ToDoubleSeconds(absl::Now() - begin));
    }
    if (ended) {
      track.pending = false;
      track.sequence.reset();
      --restoring_;
    }
    const bool action = track.action != nullptr;
    if (action && ended) EndSessionRestore(slot, &track);
    slot.finished = action && ended;
    slot.started = ended && !action;
    slot.waiting = !ended;
  }
}

void Session::RemoveMarker(Track* track) {
  if (track->prompt == nullptr) return;
  track->prompt->checkpoints.remove_if(
      [](const common_prompt_checkpoint& entry) { return entry.id_task == kMarkerTask; });
  track->prompt = nullptr;
}

void Session::OnReused(int slot, int reused) {
  if (!Active()) return;
  Timer timer(this, "reused");
  Track& track = tracks_[slot];
  const std::uint32_t tokens = static_cast<std::uint32_t>(std::max(reused, 0));
  if (tokens <= track.shifted_from) track.shifted_from = UINT32_MAX;
  track.captured = std::min(track.captured, tokens);
  track.boundary = std::min(track.boundary, tokens);
  track.reused = tokens;
  track.reused_task = track.task;
  track.reused_at = absl::Now();
  track.conversation = ConversationId();
  RemoveMarker(&track);
  if (track.restore == nullptr) return;
  // Only when a step of the restore failed in a way that nobody foresaw.
  if (track.pending) --restoring_;
  track.pending = false;
  track.sequence.reset();
  const bool restored = track.restore->state() == Restore::State::kRestored;
  options_.cache->FinishLookup(std::move(track.restore), tokens);
  track.restore.reset();
  if (tokens == 0) return;
  track.lowest = Source::kSlot;
  const std::vector<LookupRecord> last = options_.cache->Lookups(1);
  if (last.empty()) return;
  track.conversation = last[0].conversation;
  if (!restored) return;
  for (Source source : last[0].stage_sources) {
    track.lowest = std::max(*track.lowest, source);
  }
}

}  // namespace parkade
