// What the edited server-context.cpp calls. The types of that file are not declared in any header,
// so templates take what is needed from them and hand it on as SlotView. No hook throws.
//
// All hooks run on the serving thread (server_context's main loop).
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "server-task.h"

namespace parkade {

// One slot as the hooks see it. Pointers are valid during the call they came with.
struct SlotView {
  int id = -1;
  int n_ctx = 0;
  server_prompt* prompt = nullptr;
  const server_task* task = nullptr;  // null when the slot is free
  std::vector<common_adapter_lora_info>* lora = nullptr;
  llama_context* ctx_tgt = nullptr;
  llama_context* ctx_dft = nullptr;
  bool processing = false;
  bool truncated = false;  // a context shift happened in this task
  int alora_start = -1;    // >= 0: an activated adapter is in use
  // Whether the slot may go on with its prompt; hook_restoring acts on what it is set to.
  bool started = false;
  bool waiting = false;
  // Set by OnRestoring and OnIdle: the slot is taken from now on, as by a task of this number; or
  // what had taken it so is done.
  int taken_by = 0;
  bool finished = false;
};

struct LoadedView {
  const common_params* params = nullptr;
  llama_context* ctx_tgt = nullptr;
  llama_context* ctx_dft = nullptr;
  std::function<std::vector<SlotView>()> slots;  // valid until the next load
  std::function<void()> wake;                    // makes the main loop run once; any thread
  std::function<void()> fail_waiting;            // answers all that wait: the server is stopping
};

void OnLoaded(LoadedView loaded) noexcept;
void OnGate(const server_task& task) noexcept;
void OnLaunched(const SlotView& slot, const server_task& task) noexcept;
void OnRestoring(std::vector<SlotView>& slots) noexcept;
void OnReused(int slot, int reused) noexcept;
// Whether the batch is to end after so many tokens of the slot's prompt, so that the state there
// can be kept. Asked for every token of a prompt.
bool WantsCut(int slot, int tokens) noexcept;
void OnDecoded(const std::vector<SlotView>& slots) noexcept;
void OnReleased(const SlotView& slot) noexcept;
void OnIdle(std::vector<SlotView>& slots) noexcept;
// Nothing of a restore or a slot action is going on: the common case, asked before anything is
// gathered.
bool NothingToRestore() noexcept;

template <class Slot>
SlotView view_of(Slot& slot) {
  SlotView view;
  view.id = slot.id;
  view.n_ctx = slot.n_ctx;
  view.prompt = &slot.prompt;
  view.task = slot.task.get();
  view.lora = &slot.lora;
  view.ctx_tgt = slot.ctx_tgt;
  view.ctx_dft = slot.ctx_dft;
  view.processing = slot.is_processing();
  view.truncated = slot.truncated;
  view.alora_start = slot.alora_invocation_start;
  return view;
}

template <class Slots>
std::vector<SlotView> views_of(Slots& slots) {
  std::vector<SlotView> views;
  views.reserve(slots.size());
  for (auto& slot : slots) views.push_back(view_of(slot));
  return views;
}

// What a request gets that is in flight when the server stops.
struct StoppingResult : server_task_result_error {
  StoppingResult() {
    err_type = ERROR_TYPE_UNAVAILABLE;
    err_msg = "the server is stopping";
  }
  server_task_result* clone() const override { return new StoppingResult(*this); }
};

template <class Slots, class Queue, class Results>
void hook_loaded(const common_params& params, llama_context* ctx_tgt, llama_context* ctx_dft,
                 Slots& slots, Queue& queue, Results& results) {
  LoadedView loaded;
  loaded.params = &params;
  loaded.ctx_tgt = ctx_tgt;
  loaded.ctx_dft = ctx_dft;
  loaded.slots = [&slots] { return views_of(slots); };
  loaded.wake = [&queue] {
    server_task task(SERVER_TASK_TYPE_NEXT_RESPONSE);
    task.id = queue.get_new_id();
    queue.post(std::move(task));
  };
  loaded.fail_waiting = [&results] { results.broadcast(std::make_unique<StoppingResult>()); };
  OnLoaded(std::move(loaded));
}

inline void hook_gate(const server_task& task) { OnGate(task); }

template <class Slot>
void hook_launched(Slot& slot, const server_task& task) {
  OnLaunched(view_of(slot), task);
}

template <class Slot, class State>
void take_or_release(Slot& slot, const SlotView& view, State wait) {
  if (view.taken_by != 0) {
    auto task = std::make_unique<server_task>(SERVER_TASK_TYPE_SLOT_RESTORE);
    task->id = view.taken_by;
    slot.task = std::move(task);
    slot.state = wait;
  } else if (view.finished) {
    slot.release();
  }
}

// A slot whose restore is not finished is put into the state in which the server leaves it alone
// (`wait`), and back into `started` when it is.
template <class Slots, class State>
void hook_restoring(Slots& slots, State started, State wait) {
  if (NothingToRestore()) return;
  std::vector<SlotView> views = views_of(slots);
  for (std::size_t i = 0; i < views.size(); ++i) {
    views[i].started = slots[i].state == started;
    views[i].waiting = slots[i].state == wait;
  }
  OnRestoring(views);
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (views[i].started && slots[i].state == wait) slots[i].state = started;
    if (views[i].waiting && slots[i].state == started) slots[i].state = wait;
    take_or_release(slots[i], views[i], wait);
  }
}

template <class Slot>
bool hook_cut(const Slot& slot) {
  return WantsCut(slot.id, slot.prompt.n_tokens());
}

inline void hook_reused(int slot, int reused) { OnReused(slot, reused); }

template <class Slots>
void hook_decoded(Slots& slots) {
  OnDecoded(views_of(slots));
}

template <class Slot>
void hook_released(Slot& slot) {
  OnReleased(view_of(slot));
}

template <class Slots, class State>
void hook_idle(Slots& slots, State wait) {
  std::vector<SlotView> views = views_of(slots);
  OnIdle(views);
  for (std::size_t i = 0; i < views.size(); ++i) take_or_release(slots[i], views[i], wait);
}

}  // namespace parkade
