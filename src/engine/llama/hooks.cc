// The functions that the edited llama.cpp files call, and the calls of llama.cpp's library that
// are wrapped by the linker. None of them throws: the cache never fails a request.

#include <atomic>
#include <exception>
#include <string>
#include <utility>

#include "llama.h"
#include "src/engine/llama/hooks/server_hooks.h"
#include "src/engine/llama/hooks/server_routes.h"
#include "src/engine/llama/session.h"
#include "src/engine/llama/shift_log.h"
#include "src/engine/llama/web.h"

namespace parkade {
namespace {

std::atomic<Session*> g_session{nullptr};

// swallow: whatever goes wrong in a hook costs a reuse, not the request; it is logged.
template <class Call>
void Guarded(const char* hook, Call call) noexcept {
  Session* session = g_session.load();
  if (session == nullptr) return;
  try {
    call(*session);
  } catch (const std::exception& error) {
    fprintf(stderr, "parkade: hook %s failed: %s\n", hook, error.what());
  } catch (...) {
    fprintf(stderr, "parkade: hook %s failed\n", hook);
  }
}

}  // namespace

void SetSession(Session* session) { g_session = session; }
Session* CurrentSession() { return g_session.load(); }

void OnLoaded(LoadedView loaded) noexcept {
  Guarded("loaded", [&](Session& session) { session.OnLoaded(std::move(loaded)); });
}
void OnGate(const server_task& task) noexcept {
  Guarded("gate", [&](Session& session) { session.OnGate(task); });
}
void OnLaunched(const SlotView& slot, const server_task& task) noexcept {
  Guarded("launched", [&](Session& session) { session.OnLaunched(slot, task); });
}
void OnRestoring(std::vector<SlotView>& slots) noexcept {
  Guarded("restoring", [&](Session& session) { session.OnRestoring(slots); });
}
void OnReused(int slot, int reused) noexcept {
  Guarded("reused", [&](Session& session) { session.OnReused(slot, reused); });
}
bool WantsCut(int slot, int tokens) noexcept {
  const Session* session = g_session.load(std::memory_order_relaxed);
  return session != nullptr && session->WantsCut(slot, tokens);
}
void OnDecoded(const std::vector<SlotView>& slots) noexcept {
  Guarded("decoded", [&](Session& session) { session.OnDecoded(slots); });
}
void OnReleased(const SlotView& slot) noexcept {
  Guarded("released", [&](Session& session) { session.OnReleased(slot); });
}
void OnIdle(std::vector<SlotView>& slots) noexcept {
  Guarded("idle", [&](Session& session) { session.OnIdle(slots); });
}
bool NothingToRestore() noexcept {
  const Session* session = g_session.load();
  return session == nullptr || session->NothingToRestore();
}
void hook_stopping() noexcept {
  Guarded("stopping", [](Session& session) { session.OnStopping(); });
}
void hook_stopped() noexcept {
  Guarded("stopped", [](Session& session) { session.OnStopped(); });
}

}  // namespace parkade

// A context shift moves rows to other positions: what the slot holds is no longer what its tokens
// say. The wrap notes the first position that moved.
extern "C" {
void __real_llama_memory_seq_add(llama_memory_t memory, llama_seq_id sequence, llama_pos begin,
                                 llama_pos end, llama_pos delta);
void __wrap_llama_memory_seq_add(llama_memory_t memory, llama_seq_id sequence, llama_pos begin,
                                 llama_pos end, llama_pos delta);

void __wrap_llama_memory_seq_add(llama_memory_t memory, llama_seq_id sequence, llama_pos begin,
                                 llama_pos end, llama_pos delta) {
  parkade::ShiftLog::Note(sequence, begin + (delta < 0 ? delta : 0));
  __real_llama_memory_seq_add(memory, sequence, begin, end, delta);
}

// A slot file may come from another model, adapter or version: its rows are used, as llama-server
// does, and never parked.
size_t __real_llama_state_seq_load_file(llama_context* context, const char* path,
                                        llama_seq_id sequence, llama_token* tokens, size_t capacity,
                                        size_t* count);
size_t __wrap_llama_state_seq_load_file(llama_context* context, const char* path,
                                        llama_seq_id sequence, llama_token* tokens, size_t capacity,
                                        size_t* count);

size_t __wrap_llama_state_seq_load_file(llama_context* context, const char* path,
                                        llama_seq_id sequence, llama_token* tokens, size_t capacity,
                                        size_t* count) {
  if (tokens != nullptr) parkade::ShiftLog::Note(sequence, 0);
  return __real_llama_state_seq_load_file(context, path, sequence, tokens, capacity, count);
}
}
