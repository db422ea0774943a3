// Session: loading, capturing, counting. Restoring is in session_restore.cc.

#include "src/engine/llama/session.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common.h"
#include "llama.h"
#include "log.h"
#include "src/engine/llama/llama_host_memory.h"
#include "src/engine/llama/prompt_tokens.h"
#include "src/engine/llama/session_timer.h"
#include "src/engine/llama/shift_log.h"

namespace parkade {
namespace {

// A window model's rows are stored at least this often while a long prompt is read, so that a
// prompt that is cut short by a crash is not lost as a whole.
constexpr std::uint32_t kBoundaryTokens = 4096;
// A capture between batches waits for this many bytes, so that segments are not small.
constexpr std::uint64_t kCaptureBytes = 32ull << 20;
constexpr std::chrono::milliseconds kRefuseEvery(50);

bool IsCompletion(const server_task& task) {
  return task.type == SERVER_TASK_TYPE_COMPLETION || task.type == SERVER_TASK_TYPE_INFILL;
}

}  // namespace

Session::Session(SessionOptions options) : options_(std::move(options)) {}

Session::~Session() {
  stop_digest_ = true;
  if (digest_thread_.joinable()) digest_thread_.join();
  OnStopped();
}

void Session::Log(LogLevel level, const std::string& line) const {
  if (options_.sink != nullptr) options_.sink->Log(level, line);
}

HookTimes Session::hook_times() const {
  absl::MutexLock lock(&mu_);
  return times_;
}

void Session::Refuse(const std::string& why) {
  view_ = nullptr;
  serves_slots_ = false;
  if (options_.required) {
    fprintf(stderr,
            "error: the conversation cache can't serve this model or mode: %s (leave out the "
            "--conversation-cache flags to run without it)\n",
            why.c_str());
    fflush(nullptr);
    _exit(2);  // the model is loaded and other threads run: nothing to unwind
  }
  Log(LogLevel::kWarning, "the conversation cache is off: " + why);
}

void Session::OnLoaded(LoadedView loaded) {
  if (options_.cache == nullptr) return;
  Timer timer(this, "loaded");
  stop_digest_ = true;
  if (digest_thread_.joinable()) digest_thread_.join();
  stop_digest_ = false;
  FailActions("the model is loaded again");
  tracks_.clear();
  restoring_ = 0;
  loaded_ = std::move(loaded);
  if (loaded_.params->embedding) {
    Refuse("it is started for embeddings, which continue nothing");
    return;
  }
  LlamaViewOptions view_options;
  view_options.swa_full = loaded_.params->swa_full;
  view_options.tell = [this](const std::string& line) { Log(LogLevel::kWarning, line); };
  absl::StatusOr<std::shared_ptr<const LlamaMemoryView>> view =
      LlamaMemoryView::Create(loaded_.ctx_tgt, view_options);
  if (!view.ok()) {
    Refuse(std::string(view.status().message().data(), view.status().message().size()));
    return;
  }
  const absl::Status layout = (*view)->CheckLayout(0);
  if (!layout.ok()) {
    Refuse(std::string(layout.message().data(), layout.message().size()));
    return;
  }
  view_ = *std::move(view);
  if (std::shared_ptr<HostMemory> memory = HostMemoryOf(*view_)) {
    options_.cache->UseHostMemory(std::move(memory));
  }
  std::uint64_t token_bytes = 0;
  std::string stages;
  for (const Stage& stage : view_->stages().stages) {
    token_bytes += GroupRowBytes(view_->layout(), stage, RowGroup::kFull);
    if (!stages.empty()) stages += ", ";
    stages += std::to_string(stage.layers.size()) + " layers on " + stage.device;
  }
  capture_rows_ = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      kCaptureBytes / std::max<std::uint64_t>(token_bytes, 1), kExtentRows, 8 * kExtentRows));
  Log(LogLevel::kInfo, "conversations are kept: " + view_->memory_name() + ", stages: " + stages +
                           ", " + std::to_string(token_bytes) + " bytes a token");
  if (options_.on_model) {
    // A name for people; a path is nobody's business.
    const std::string name = loaded_.params->model.get_name();
    options_.on_model(name.substr(name.find_last_of('/') + 1));
  }
  if (options_.on_stages) {
    options_.on_stages(static_cast<int>(view_->stages().stages.size()));
  }
  PrepareDraft();
  StartIdentity();
  {
    absl::MutexLock lock(&actions_mu_);
    wake_ = loaded_.wake;
  }
  serves_slots_ = true;
}

void Session::OnGate(const server_task& task) {
  if (!Active() || !IsCompletion(task)) return;
  Timer timer(this, "gate");
  if (seen_.size() > 4096) seen_.clear();  // tasks that were cancelled while they waited
  if (!seen_.emplace(task.id, absl::Now()).second) return;
  if (!task.params.cache_prompt) return;
  Digest128 identity;
  {
    absl::MutexLock lock(&mu_);
    // Which adapters the task will have is known at its launch; most have the usual ones.
    if (!identity_ready_ || !usual_identity_.has_value()) return;
    identity = *usual_identity_;
  }
  const CacheTokens tokens = CacheTokensOf(task.tokens, view_->wide());
  options_.cache->Prefetch(identity, tokens.tokens.subspan(0, tokens.cacheable));
}

void Session::TakeShifts() {
  for (const auto& [sequence, position] : ShiftLog::Take()) {
    Track& track = tracks_[sequence];
    track.shifted_from =
        std::min(track.shifted_from, static_cast<std::uint32_t>(std::max(position, 0)));
  }
}

// llama-server empties a slot only when a request names other adapters; when the usual ones changed
// or come back, it would go on with the rows of the former. Those are nobody's: they are given up.
// Where a request names them, what llama-server kept is kept (an adapter that begins at its own
// words), and never stored as the others'.
void Session::NoteAdapters(const SlotView& slot, const server_task& task) {
  Track& track = tracks_[slot.id];
  std::string adapters = AdapterSet(*slot.lora);
  if (adapters == track.adapters) return;
  track.adapters = std::move(adapters);
  if (slot.prompt->n_tokens() == 0) return;
  if (!task.params.lora.empty()) {
    track.shifted_from = 0;
    return;
  }
  if (track.leftover) {
    options_.cache->CountSkippedPark(
        SkipReason::kQueueFull,
        static_cast<std::uint32_t>(slot.prompt->n_tokens()) - track.captured);
  }
  EmptySlot(slot);
}

bool Session::Cacheable(const SlotView& slot) const {
  return slot.task != nullptr && IsCompletion(*slot.task) && !slot.task->is_child() &&
         slot.task->params.cache_prompt && slot.alora_start < 0;
}

absl::StatusOr<ParkOutcome> Session::Capture(const SlotView& slot, bool boundary, bool always) {
  Track& track = tracks_[slot.id];
  const CacheTokens tokens = CacheTokensOf(slot.prompt->tokens, view_->wide());
  track.leftover = false;
  if (tokens.tokens.empty()) return ParkOutcome();
  const std::uint32_t count = static_cast<std::uint32_t>(tokens.tokens.size());
  const bool media = tokens.cacheable < count;
  if (media || track.shifted_from < count) {
    options_.cache->CountSkippedPark(SkipReason::kUnsupported,
                                     count - std::min(count, track.captured));
    return absl::InvalidArgumentError(
        media ? "the slot holds media whose content can't be told from others: it can't be kept"
              : "the slot's context was shifted or its adapters were changed: it can't be kept");
  }
  const std::optional<Digest128> identity = IdentityFor(*slot.lora);
  if (!identity.has_value()) {
    track.leftover = true;
    return absl::UnavailableError("loading: the digest of the weights is not known yet");
  }
  const std::unique_ptr<EngineSequence> sequence = SequenceOf(slot.id, slot.prompt->tokens);
  ParkRequest request;
  request.identity = *identity;
  request.tokens = tokens.tokens;
  request.boundary = boundary;
  request.always = always;
  request.conversation = track.conversation;
  const ParkOutcome outcome = options_.cache->Park(*sequence, request);
  track.captured = outcome.captured_tokens;
  track.leftover = !outcome.complete;
  if (!outcome.conversation.IsZero()) track.conversation = outcome.conversation;
  if (outcome.complete && boundary) track.boundary = count;
  return outcome;
}

void Session::OnDecoded(const std::vector<SlotView>& slots) {
  if (!Active()) return;
  Timer timer(this, "decoded");
  TakeShifts();
  int busy = 0;
  for (const SlotView& slot : slots) busy += slot.processing ? 1 : 0;
  const bool window = view_->layout().has_group(RowGroup::kWindow);
  const bool state = view_->layout().has_group(RowGroup::kState);
  for (const SlotView& slot : slots) {
    if (!slot.processing || !Cacheable(slot)) continue;
    Track& track = tracks_[slot.id];
    if (track.pending || track.task != slot.task->id) continue;
    const std::uint32_t count = static_cast<std::uint32_t>(slot.prompt->n_tokens());
    const std::uint32_t prompt = static_cast<std::uint32_t>(slot.task->n_tokens());
    const absl::Time now = absl::Now();
    bool boundary = window && count >= track.boundary + kBoundaryTokens;
    // What did not fit into the buffers goes on as soon as there is room.
    bool due = track.leftover || count >= track.captured + capture_rows_;
    if (count >= prompt && !track.first_token_seen) {
      track.first_token_seen = true;
      if (options_.on_prompt_read && busy == 1 && prompt > track.reused) {
        options_.on_prompt_read(track.reused, prompt - track.reused,
                                absl::ToDoubleSeconds(now - track.reused_at));
      }
      if (options_.on_first_token) {
        options_.on_first_token(track.lowest, absl::ToDoubleSeconds(now - track.launched));
      }
      // A client comes back to the prompt's end: regenerate, another answer, reasoning dropped.
      boundary = boundary || window || state;
      due = due || window || state;
    }
    // Where a message of the user begins a client comes back to: it edits the message, compacts
    // what was before, asks something else after the same system prompt. Where an
    // image begins, too: agents show another one there.
    if (track.boundaries.Wants(count, track.boundary)) boundary = due = true;
    // swallow: what can't be kept is counted.
    if (due) (void)Capture(slot, boundary);
  }
}

bool Session::WantsCut(int slot, int tokens) const noexcept {
  const auto track = tracks_.find(slot);
  return track != tracks_.end() &&
         track->second.boundaries.Wants(static_cast<std::uint32_t>(tokens), track->second.boundary);
}

void Session::OnReleased(const SlotView& slot) {
  if (!Active()) return;
  Timer timer(this, "released");
  TakeShifts();
  Track& track = tracks_[slot.id];
  const bool action = track.task < -1;
  // What a session's restore left for the next task stays.
  if (!action) RemoveMarker(&track);
  if (track.in_flight()) DropRestore(&track, slot);
  // A child's rows were copied from its parent's, which may have been moved: nobody told of that.
  const bool child = slot.task != nullptr && slot.task->is_child();
  if (child && slot.task->params.n_cache_reuse > 0) track.shifted_from = 0;
  track.task = -1;
  if (action) return;
  if (Cacheable(slot)) {
    // swallow: what can't be kept is counted.
    (void)Capture(slot, true);
  } else {
    track.leftover = false;
  }
}

void Session::CaptureLeftovers(const std::vector<SlotView>& slots) {
  for (const SlotView& slot : slots) {
    auto track = tracks_.find(slot.id);
    if (track == tracks_.end() || !track->second.leftover || slot.processing) continue;
    // swallow: what can't be kept is counted.
    (void)Capture(slot, true);
  }
}

void Session::OnIdle(std::vector<SlotView>& slots) {
  if (!Active()) return;
  Timer timer(this, "idle");
  // A launch that failed after its look-up: what it reads would hold buffers and pins.
  for (const SlotView& slot : slots) {
    Track& track = tracks_[slot.id];
    if (track.in_flight()) DropRestore(&track, slot);
  }
  CaptureLeftovers(slots);
  StepActions(slots);
  const bool taken = std::any_of(slots.begin(), slots.end(),
                                 [](const SlotView& slot) { return slot.taken_by != 0; });
  if (taken) return loaded_.wake();
  const bool left =
      waiting_actions_ > 0 || std::any_of(tracks_.begin(), tracks_.end(),
                                          [](const auto& entry) { return entry.second.leftover; });
  if (!left) return;
  {
    absl::MutexLock lock(&mu_);
    if (!identity_ready_) return;  // the digest thread wakes the loop
  }
  // Buffers are full. Nothing else is to be done, so a short wait costs nobody anything, and a task
  // that comes is taken first.
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  loaded_.wake();
}

void Session::OnStopping() {
  {
    absl::MutexLock lock(&actions_mu_);
    stopped_actions_ = true;
  }
  FailActions("the server is stopping");
  if (!Active()) return;
  const absl::Time deadline = absl::Now() + absl::Milliseconds(options_.drain_deadline_ms);
  if (loaded_.slots) {
    const std::vector<SlotView> slots = loaded_.slots();
    TakeShifts();
    for (const SlotView& slot : slots) {
      Track& track = tracks_[slot.id];
      if (track.in_flight()) DropRestore(&track, slot);
      // swallow: what can't be kept is counted.
      if (slot.processing && Cacheable(slot)) (void)Capture(slot, true);
    }
    auto left = [this] {
      {
        absl::MutexLock lock(&mu_);
        if (!contents_known_) return false;  // nothing can be parked, however long one waits
      }
      return std::any_of(tracks_.begin(), tracks_.end(),
                         [](const auto& entry) { return entry.second.leftover; });
    };
    while (left() && absl::Now() < deadline) {
      options_.cache->Drain(absl::ToInt64Milliseconds(deadline - absl::Now()));
      for (const SlotView& slot : slots) {
        // swallow: what can't be kept is counted.
        if (tracks_[slot.id].leftover) (void)Capture(slot, true);
      }
    }
    for (const SlotView& slot : slots) {
      const Track& track = tracks_[slot.id];
      if (!track.leftover) continue;
      options_.cache->CountSkippedPark(
          SkipReason::kQueueFull,
          static_cast<std::uint32_t>(slot.prompt->n_tokens()) - track.captured);
    }
  }
  options_.cache->Drain(
      std::max<std::int64_t>(0, absl::ToInt64Milliseconds(deadline - absl::Now())));
  const HookTimes times = hook_times();
  char line[160];
  snprintf(line, sizeof(line), "stopped: hooks took %.3f s, restores %.3f s, longest slice %.1f ms",
           times.seconds, times.restore_seconds, times.longest_slice_seconds * 1e3);
  std::string calls;
  for (const auto& [hook, count] : times.calls) {
    calls += (calls.empty() ? "; calls: " : ", ") + hook + " " + std::to_string(count);
  }
  Log(LogLevel::kInfo, line + calls);
  // It uses what the server owns, which goes now.
  stop_digest_ = true;
  if (digest_thread_.joinable()) digest_thread_.join();
  // Nobody else would answer them: their threads would wait until the clients go away. Not once
  // only, because requests come in until the sockets are closed.
  if (!loaded_.fail_waiting) return;
  refuse_thread_ = std::thread([this] {
    while (!stopped_) {
      loaded_.fail_waiting();
      std::this_thread::sleep_for(kRefuseEvery);
    }
  });
}

void Session::OnStopped() {
  stopped_ = true;
  if (!refuse_thread_.joinable()) return;
  refuse_thread_.join();
  Log(LogLevel::kInfo, "every request is answered");
}

}  // namespace parkade
