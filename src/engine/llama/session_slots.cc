// Session: POST /slots. Names are looked up and written on the HTTP server's threads; only what
// touches a slot runs on the serving thread, between batches. A slot that a session is restored
// into is taken, as by a task, until all of it is there.

#include <algorithm>
#include <thread>
#include <utility>

#include "common.h"
#include "llama.h"
#include "src/engine/llama/prompt_tokens.h"
#include "src/engine/llama/session.h"
#include "src/engine/llama/session_timer.h"

namespace parkade {
namespace {

// A save that is not durable by then has failed.
constexpr std::int64_t kSaveDeadlineMs = 60000;
// How often a session may be replaced before its restore gives up.
constexpr int kRestoreAttempts = 8;
// How often a waiting request looks whether its client is still there.
constexpr absl::Duration kLookEvery = absl::Milliseconds(50);

}  // namespace

std::optional<ApiResponse> Session::OnSlotRequest(const std::string& slot,
                                                  const std::string& action,
                                                  const std::string& body,
                                                  const std::function<bool()>& gone) {
  if (!serves_slots_) return std::nullopt;
  const absl::Time begin = absl::Now();
  const absl::StatusOr<SlotRequest> parsed = ParseSlotRequest(slot, action, body);
  if (!parsed.ok()) return ErrorResponse(parsed.status());
  auto job = std::make_shared<SlotAction>();
  job->request = *parsed;
  if (parsed->action != SlotRequest::Action::kErase) {
    absl::MutexLock lock(&mu_);
    if (!identity_ready_) {
      return ErrorResponse(503, "loading: the digest of the weights is not known yet");
    }
  }
  if (parsed->action == SlotRequest::Action::kRestore) return RestoreSession(*parsed, gone);
  const SlotAction::Result result = RunAction(job, gone);
  if (!result.status.ok()) return ErrorResponse(result.status);
  if (parsed->action == SlotRequest::Action::kErase) return ErasedResponse(*parsed, result.tokens);
  const absl::StatusOr<SavedSession> saved = options_.cache->SaveSession(
      result.conversation, result.tokens, parsed->name, kSaveDeadlineMs);
  if (!saved.ok()) return ErrorResponse(saved.status());
  return SavedResponse(*parsed, result.tokens, saved->bytes,
                       absl::ToDoubleSeconds(absl::Now() - begin), saved->durable);
}

// A session that is saved again, or removed, while its restore waits for the slot is looked up
// again: what has the name then counts.
ApiResponse Session::RestoreSession(const SlotRequest& request, const std::function<bool()>& gone) {
  const absl::Time begin = absl::Now();
  SlotAction::Result result;
  for (int attempt = 0; attempt < kRestoreAttempts; ++attempt) {
    absl::StatusOr<SavedSession> session = options_.cache->FindSession(request.name);
    if (!session.ok()) return ErrorResponse(session.status());
    const ConversationId found = session->conversation;
    auto job = std::make_shared<SlotAction>();
    job->request = request;
    job->session = *std::move(session);
    result = RunAction(job, gone);
    if (result.status.ok()) {
      return RestoredResponse(request, result.tokens, result.bytes,
                              absl::ToDoubleSeconds(absl::Now() - begin));
    }
    if (!absl::IsDataLoss(result.status) || options_.cache->Get(found).has_value()) break;
  }
  return ErrorResponse(result.status);
}

// Hands the action to the serving thread and waits for what comes of it.
SlotAction::Result Session::RunAction(const std::shared_ptr<SlotAction>& job,
                                      const std::function<bool()>& gone) {
  {
    absl::MutexLock lock(&actions_mu_);
    if (stopped_actions_) return {absl::UnavailableError("the server is stopping"), 0, 0, {}};
    actions_.push_back(job);
    ++waiting_actions_;
    wake_();
  }
  absl::MutexLock lock(&job->mu);
  while (!job->mu.AwaitWithTimeout(absl::Condition(&job->done), kLookEvery)) {
    if (gone && gone()) {
      job->abandoned = true;
      return {absl::CancelledError("the client went away"), 0, 0, {}};
    }
  }
  return job->result;
}

void Session::FailActions(const std::string& why) {
  std::deque<std::shared_ptr<SlotAction>> waiting;
  {
    absl::MutexLock lock(&actions_mu_);
    waiting.swap(actions_);
    waiting_actions_ = 0;
  }
  for (const auto& job : waiting) job->Fail(absl::UnavailableError(why));
  for (auto& [id, track] : tracks_) {
    if (track.action != nullptr) track.action->Fail(absl::UnavailableError(why));
  }
}

// Does what can be done of the waiting actions; the others wait for their slot or for buffers.
void Session::StepActions(std::vector<SlotView>& slots) {
  if (waiting_actions_ == 0) return;
  std::deque<std::shared_ptr<SlotAction>> waiting;
  {
    absl::MutexLock lock(&actions_mu_);
    waiting.swap(actions_);
  }
  std::deque<std::shared_ptr<SlotAction>> left;
  for (std::shared_ptr<SlotAction>& job : waiting) {
    if (job->abandoned) continue;
    const int wanted = job->request.slot;
    auto slot = std::find_if(slots.begin(), slots.end(),
                             [wanted](const SlotView& view) { return view.id == wanted; });
    if (slot == slots.end()) {
      job->Fail(absl::InvalidArgumentError("Invalid slot ID"));
      continue;
    }
    const bool busy = slot->processing || slot->taken_by != 0;
    if (busy || !StepAction(*slot, job)) left.push_back(std::move(job));
  }
  absl::MutexLock lock(&actions_mu_);
  actions_.insert(actions_.begin(), std::make_move_iterator(left.begin()),
                  std::make_move_iterator(left.end()));
  waiting_actions_ = static_cast<int>(actions_.size());
}

// False: to be tried again.
bool Session::StepAction(SlotView& slot, const std::shared_ptr<SlotAction>& job) {
  switch (job->request.action) {
    case SlotRequest::Action::kSave:
      return CaptureForSave(slot, job);
    case SlotRequest::Action::kRestore:
      return BeginSessionRestore(slot, job);
    case SlotRequest::Action::kErase:
      break;
  }
  const auto tokens = static_cast<std::uint32_t>(slot.prompt->n_tokens());
  EmptySlot(slot);
  job->Finish({absl::OkStatus(), tokens, 0, {}});
  return true;
}

bool Session::CaptureForSave(const SlotView& slot, const std::shared_ptr<SlotAction>& job) {
  const auto tokens = static_cast<std::uint32_t>(slot.prompt->n_tokens());
  if (tokens == 0) {
    job->Fail(absl::InvalidArgumentError("the slot is empty: nothing to save"));
    return true;
  }
  if (HasMedia(slot.prompt->tokens)) {
    job->Fail(absl::InvalidArgumentError("the slot holds images or sound: it can't be saved"));
    return true;
  }
  const absl::StatusOr<ParkOutcome> parked = Capture(slot, true, true);
  if (!parked.ok()) {
    job->Fail(parked.status());
    return true;
  }
  if (!parked->complete) return false;
  if (parked->captured_tokens != tokens || parked->conversation.IsZero()) {
    job->Fail(absl::InvalidArgumentError(
        "memory does not hold all of the slot's tokens: it can't be saved"));
    return true;
  }
  job->Finish({absl::OkStatus(), tokens, 0, parked->conversation});
  return true;
}

// Refusals leave the slot as it is. What it holds is parked before anything of it is overwritten.
bool Session::BeginSessionRestore(SlotView& slot, const std::shared_ptr<SlotAction>& job) {
  const SavedSession& session = job->session;
  auto refuse = [&](absl::StatusCode code, const std::string& why) {
    job->Fail(absl::Status(code, why));
    return true;
  };
  const std::optional<Digest128> usual = IdentityFor(loaded_.params->lora_adapters);
  if (!usual.has_value() || !(*usual == session.identity)) {
    const std::string field =
        usual.has_value() ? options_.cache->DifferentField(*usual, session.identity) : "";
    return refuse(absl::StatusCode::kFailedPrecondition,
                  "the session was saved under another identity" +
                      (field.empty() ? "" : ": '" + field + "' differs"));
  }
  const bool media = std::any_of(session.tokens.begin(), session.tokens.end(),
                                 [](Token token) { return token < 0; });
  if (media) {
    return refuse(absl::StatusCode::kInvalidArgument,
                  "the conversation holds images or sound: it can't be restored into a slot");
  }
  if (session.token_count >= static_cast<std::uint32_t>(slot.n_ctx)) {
    return refuse(absl::StatusCode::kInvalidArgument,
                  "the session's " + std::to_string(session.token_count) +
                      " tokens do not fit into the slot's context of " +
                      std::to_string(slot.n_ctx));
  }
  Track& track = tracks_[slot.id];
  if (track.leftover) {
    // swallow: what can't be kept is counted; asked again while there are no buffers.
    (void)Capture(slot, true);
    if (track.leftover) return false;
  }
  LookupRequest request;
  request.identity = session.identity;
  request.tokens = session.tokens;
  request.cacheable_tokens = session.token_count;
  request.tokens.push_back(0);  // what is going to be said next
  request.session = session.conversation;
  AddDraft(&request);
  track.restore = options_.cache->Lookup(std::move(request));
  track.action = job;
  track.session_tokens = server_tokens(session.tokens, false);
  track.task = --last_action_task_;
  track.placed = false;
  track.no_room = false;
  track.pending = true;
  ++restoring_;
  slot.taken_by = track.task;
  return true;
}

// The restore of a session has ended, or can't begin: the slot is free again.
void Session::EndSessionRestore(const SlotView& slot, Track* track) {
  const std::shared_ptr<SlotAction> job = std::move(track->action);
  track->action = nullptr;
  const Restore::State state = track->restore->state();
  const std::uint32_t wanted = job->session.token_count;
  const RestoreTotals totals = options_.cache->FinishSession(std::move(track->restore));
  track->restore.reset();
  if (state == Restore::State::kRestored && totals.tokens == wanted) {
    // The rows were computed with the usual adapters.
    *slot.lora = loaded_.params->lora_adapters;
    track->adapters = AdapterSet(*slot.lora);
    track->shifted_from = UINT32_MAX;
    job->Finish({absl::OkStatus(), wanted, totals.bytes, {}});
    return;
  }
  if (track->no_room) {
    job->Fail(absl::ResourceExhaustedError("the context has no room beside the slots that work"));
    return;
  }
  if (track->placed) EmptySlot(slot);
  job->Fail(absl::DataLossError("the session's state is not whole any more" +
                                std::string(track->placed ? "; the slot is empty now" : "")));
}

}  // namespace parkade
