// What stands between llama-server's hooks and the cache: one Session for the process.
//
// The hooks run on the serving thread. Session adds one thread of its own, which computes the
// content digests that the identity needs; until they are known nothing is looked up or parked.
// While the server stops, another one answers requests that nobody else would.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "parkade/conversation_cache.h"
#include "parkade/identity.h"
#include "src/engine/llama/drafted_sequence.h"
#include "src/engine/llama/hooks/server_hooks.h"
#include "src/engine/llama/llama_memory_view.h"
#include "src/engine/llama/prompt_boundaries.h"
#include "src/engine/llama/slot_action.h"

namespace parkade {

struct SessionOptions {
  ConversationCache* cache = nullptr;  // null: the cache is off, every hook does nothing
  EventSink* sink = nullptr;           // for log lines
  // A model or mode that the cache can't serve ends the process (exit 2) instead of a warning.
  bool required = false;
  std::string digest_memo_file;  // where content digests are remembered; empty: nowhere
  std::int64_t drain_deadline_ms = 5000;
  // Told when known; may be null.
  std::function<void(const std::string& model)> on_model;
  std::function<void(int stages)> on_stages;
  std::function<void(std::uint32_t first, std::uint32_t tokens, double seconds)> on_prompt_read;
  std::function<void(std::optional<Source> lowest, double seconds)> on_first_token;
};

// How much of the requests' time was spent in hooks, for the overhead benchmark.
struct HookTimes {
  double seconds = 0;                // all hooks but restoring
  double restore_seconds = 0;        // importing and waiting for what is imported
  double longest_slice_seconds = 0;  // longest stall of other slots by a restore
  std::map<std::string, std::uint64_t> calls;
};

class Session {
 public:
  explicit Session(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void OnLoaded(LoadedView loaded);
  void OnGate(const server_task& task);
  void OnLaunched(const SlotView& slot, const server_task& task);
  void OnRestoring(std::vector<SlotView>& slots);
  void OnReused(int slot, int reused);
  bool WantsCut(int slot, int tokens) const noexcept;
  void OnDecoded(const std::vector<SlotView>& slots);
  void OnReleased(const SlotView& slot);
  void OnIdle(std::vector<SlotView>& slots);
  void OnStopping();
  void OnStopped();
  bool NothingToRestore() const { return restoring_ == 0 && waiting_actions_ == 0; }
  // POST /slots, on a thread of the HTTP server; waits for the serving thread and, to save, for the
  // disk. `gone`: the client has gone away. Nothing: the cache is off, llama-server answers.
  std::optional<ApiResponse> OnSlotRequest(const std::string& slot, const std::string& action,
                                           const std::string& body,
                                           const std::function<bool()>& gone);

  ConversationCache* cache() const { return options_.cache; }
  HookTimes hook_times() const;

 private:
  // The beginning of a prompt that another slot is reading.
  struct SharedRead {
    int slot = -1;
    int task = -1;
    std::uint32_t tokens = 0;
    std::uint32_t until = 0;  // of the other prompt: when so much is read, `tokens` are kept
    LookupRequest request;    // asked again then
  };
  // What is known of one slot beyond what the server keeps.
  struct Track {
    // A restore, or the wait for another slot's read, is going on.
    bool in_flight() const { return restore != nullptr || pending; }

    int task = -1;
    int reused_task = -1;  // whose reuse is fixed: from then on the prompt's tokens are its own
    std::optional<SharedRead> shared;
    std::unique_ptr<Restore> restore;          // from launch until the reuse is fixed
    std::unique_ptr<EngineSequence> sequence;  // while a restore is imported
    server_prompt* prompt = nullptr;           // restored, until the reuse is fixed
    bool placed = false;                       // the restore has begun to change the slot
    bool no_room = false;                      // the context is full of what others work on
    bool pending = false;                      // the restore has not ended yet
    std::optional<Source> lowest;
    std::uint32_t captured = 0;   // positions below are held or queued
    std::uint32_t boundary = 0;   // last position stored with window rows and state
    PromptBoundaries boundaries;  // of the task's prompt
    bool leftover = false;        // the last capture was cut short
    ConversationId conversation;  // that the task has gone on with
    std::uint32_t reused = 0;
    absl::Time launched;
    absl::Time reused_at;
    bool first_token_seen = false;
    // First position whose row is not what its token and the adapters in force would give: moved by
    // a context shift, or computed with other adapters, since the sequence was empty.
    std::uint32_t shifted_from = UINT32_MAX;
    std::string adapters;                // that the rows were computed with
    std::shared_ptr<SlotAction> action;  // the restore is a session's: no task waits for it
    server_tokens session_tokens;        // then: what is to be restored
  };
  class Timer;
  // Content digests of the files that the identity names.
  struct Contents {
    std::string weights;
    std::map<std::string, std::string> adapters;  // by path
    std::string control_vectors;
    std::string projector;
    std::string overrides;  // of the model's own values
    std::string draft_weights;
  };

  bool Active() const { return view_ != nullptr; }
  std::optional<Digest128> IdentityFor(const std::vector<common_adapter_lora_info>& lora);
  bool Cacheable(const SlotView& slot) const;
  std::uint32_t EffectiveHeld(const SlotView& slot, const server_task& task) const;
  // Parks what is new in the slot. `boundary`: with window rows and state. `always`: few tokens,
  // too. InvalidArgument: what the slot holds can't be kept; Unavailable: not yet.
  absl::StatusOr<ParkOutcome> Capture(const SlotView& slot, bool boundary, bool always = false);
  ApiResponse RestoreSession(const SlotRequest& request, const std::function<bool()>& gone);
  SlotAction::Result RunAction(const std::shared_ptr<SlotAction>& job,
                               const std::function<bool()>& gone);
  void FailActions(const std::string& why);
  void StepActions(std::vector<SlotView>& slots);
  bool StepAction(SlotView& slot, const std::shared_ptr<SlotAction>& job);
  bool CaptureForSave(const SlotView& slot, const std::shared_ptr<SlotAction>& job);
  bool BeginSessionRestore(SlotView& slot, const std::shared_ptr<SlotAction>& job);
  void EndSessionRestore(const SlotView& slot, Track* track);
  std::uint64_t PoolTokens(const SlotView& slot) const;
  bool MakeRoom(std::vector<SlotView>& slots, const SlotView& wanted, std::uint32_t tokens);
  void EmptySlot(const SlotView& slot);
  void CaptureLeftovers(const std::vector<SlotView>& slots);
  static const server_tokens& WantedTokens(const SlotView& slot, const Track& track);
  void DropRestore(Track* track, const SlotView& slot);
  bool StepRestore(std::vector<SlotView>& slots, SlotView& slot, Track* track, bool alone);
  std::optional<SharedRead> FindSharedRead(const SlotView& slot, const server_task& task,
                                           const LookupRequest& request, bool again);
  bool ReadSoFar(const SlotView& other, const SharedRead& shared);
  bool SharedReadEnded(const std::vector<SlotView>& slots, const SlotView& slot, Track* track);
  void AddCheckpoint(const SlotView& slot, std::uint32_t tokens);
  void FinishRestore(const SlotView& slot, Track* track);
  static void RemoveMarker(Track* track);
  void TakeShifts();
  void NoteAdapters(const SlotView& slot, const server_task& task);
  // Looks at the draft model's context, if there is one whose rows can be stored.
  void PrepareDraft();
  // The draft, once the digest of its weights is known; null: none.
  std::shared_ptr<const DraftModel> Draft();
  // Asks for the draft's rows, too.
  void AddDraft(LookupRequest* request);
  // Of the slot, where it holds or is to hold `tokens`.
  std::unique_ptr<EngineSequence> SequenceOf(int slot, const server_tokens& tokens);
  // What a client changed in a prompt; see LookupRequest::name_change.
  std::string NameChange(absl::Span<const Token> before, absl::Span<const Token> stored,
                         absl::Span<const Token> wanted) const;
  void StartIdentity();
  void ComputeIdentity(const common_params& params);
  std::string ContentDigest(const std::string& path, bool progress);
  static std::string AdapterSet(const std::vector<common_adapter_lora_info>& lora);
  void Refuse(const std::string& why);
  void Log(LogLevel level, const std::string& line) const;

  const SessionOptions options_;
  std::shared_ptr<const LlamaMemoryView> view_;
  std::shared_ptr<const LlamaMemoryView> draft_view_;
  std::shared_ptr<const DraftModel> draft_;
  LoadedView loaded_;
  // What the context says of the identity. Made when it is loaded: idle sleep ends the context
  // while the digest thread runs.
  Identity context_identity_;
  std::string file_stamps_;  // of the files that the identity names, when they were loaded
  std::map<int, Track> tracks_;
  std::atomic<int> restoring_{0};
  std::map<int, absl::Time> seen_;  // tasks that wait for a slot: when they came
  std::uint32_t capture_rows_ = 0;  // new rows that are worth a capture between batches

  mutable absl::Mutex mu_;
  bool contents_known_ ABSL_GUARDED_BY(mu_) = false;
  bool identity_ready_ ABSL_GUARDED_BY(mu_) = false;  // and the usual adapter set is registered
  Contents contents_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Identity> identities_ ABSL_GUARDED_BY(mu_);  // by adapter set
  std::optional<Digest128> usual_identity_ ABSL_GUARDED_BY(mu_);
  HookTimes times_ ABSL_GUARDED_BY(mu_);

  std::atomic<bool> serves_slots_{false};
  std::atomic<int> waiting_actions_{0};
  int last_action_task_ = -1000;  // numbers of tasks that stand for actions count down
  absl::Mutex actions_mu_;
  std::deque<std::shared_ptr<SlotAction>> actions_ ABSL_GUARDED_BY(actions_mu_);
  bool stopped_actions_ ABSL_GUARDED_BY(actions_mu_) = false;
  std::function<void()> wake_ ABSL_GUARDED_BY(actions_mu_);

  std::atomic<bool> stop_digest_{false};
  std::thread digest_thread_;
  std::atomic<bool> stopped_{false};
  std::thread refuse_thread_;  // from OnStopping to OnStopped
};

// The process's session; hooks without one do nothing. Not owned.
void SetSession(Session* session);
Session* CurrentSession();

}  // namespace parkade
