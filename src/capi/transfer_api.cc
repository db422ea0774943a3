// parkade.h: parking, looking up, restoring.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "src/capi/border.h"
#include "src/capi/handles.h"

namespace parkade::capi {
namespace {

constexpr std::int64_t kLongestMs = 365ll * 24 * 3600 * 1000;
// How often a restore that waits for bytes looks whether it waits too long.
constexpr std::int64_t kLookMs = 200;

absl::Status CheckTokens(const std::int32_t* tokens, std::size_t count) {
  if (tokens == nullptr) return NullArgument("tokens");
  if (count == 0) return absl::InvalidArgumentError("token_count is 0");
  if (count > INT32_MAX) return absl::InvalidArgumentError("token_count is above 2147483647");
  return absl::OkStatus();
}

absl::Status Lookup(const parkade_model* model, const parkade_lookup_options* given,
                    parkade_restore** restore) {
  if (model == nullptr) return NullArgument("model");
  if (restore == nullptr) return NullArgument("restore");
  const absl::StatusOr<parkade_lookup_options> options = ReadStruct(given, "options");
  if (!options.ok()) return options.status();
  absl::Status fine = CheckTokens(options->tokens, options->token_count);
  if (!fine.ok()) return fine;
  const auto count = static_cast<std::uint32_t>(options->token_count);
  if (options->held_tokens > count || options->cacheable_tokens > count) {
    return absl::InvalidArgumentError("held_tokens or cacheable_tokens is above token_count");
  }
  if (options->whole_ranges == nullptr && options->whole_range_count > 0) {
    return NullArgument("whole_ranges");
  }
  LookupRequest request;
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < options->whole_range_count; ++i) {
    const parkade_range& range = options->whole_ranges[i];
    if (range.begin < last || range.end <= range.begin || range.end > count) {
      return absl::InvalidArgumentError("whole_ranges: not ascending, disjoint and in the prompt");
    }
    last = range.end;
    request.whole_ranges.push_back({range.begin, range.end});
  }
  const absl::StatusOr<Digest128> identity = model->body->Register();
  if (!identity.ok()) return identity.status();
  request.identity = *identity;
  request.tokens.assign(options->tokens, options->tokens + count);
  request.cacheable_tokens = options->cacheable_tokens == 0 ? count : options->cacheable_tokens;
  request.held_tokens = options->held_tokens;
  request.held_all = options->held_all;
  const absl::StatusOr<ConversationCache*> cache = model->body->cache->cache();
  if (!cache.ok()) return cache.status();
  auto handle = std::make_unique<parkade_restore>();
  handle->model = model->body;
  handle->restore = (*cache)->Lookup(std::move(request));
  model->body->cache->Add(handle.get());
  *restore = handle.release();
  return absl::OkStatus();
}

parkade_restore_state StateOf(Restore::State state) {
  switch (state) {
    case Restore::State::kPlanning:
      return PARKADE_PLANNING;
    case Restore::State::kMiss:
      return PARKADE_MISS;
    case Restore::State::kReading:
      return PARKADE_READING;
    case Restore::State::kRestored:
      return PARKADE_RESTORED;
    case Restore::State::kFailed:
      break;
  }
  return PARKADE_FAILED;
}

absl::Status CheckOpen(const parkade_restore* restore) {
  if (restore == nullptr) return NullArgument("restore");
  if (restore->restore != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("the cache is closed");
}

absl::Status Plan(const parkade_restore* handle, std::int64_t timeout_ms,
                  parkade_restore_info* info) {
  absl::Status fine = CheckOpen(handle);
  if (fine.ok()) fine = CheckOutput(info, "info");
  if (!fine.ok()) return fine;
  Restore& restore = *handle->restore;
  if (restore.state() == Restore::State::kPlanning) {
    restore.WaitReady(std::clamp<std::int64_t>(timeout_ms, 0, kLongestMs));
  }
  parkade_restore_info out = {};
  out.state = StateOf(restore.state());
  out.tokens = restore.restored_tokens();
  if (out.state == PARKADE_RESTORED) out.window_begin = handle->window_begin;
  const auto planned = restore.planned_sources();
  std::copy(planned.begin(), planned.end(), out.planned_tokens);
  WriteStruct(out, info);
  if (out.state != PARKADE_PLANNING) return absl::OkStatus();
  return absl::DeadlineExceededError("the plan is not ready yet");
}

// Both belong together, and nobody else's restore is under way there.
absl::Status CheckPlace(const parkade_restore& handle, const parkade_sequence* sequence) {
  if (sequence == nullptr) return NullArgument("sequence");
  if (!(sequence->model->layout == handle.model->layout)) {
    return absl::InvalidArgumentError("the sequence's planes are not those of the model");
  }
  if (handle.rows != nullptr && handle.rows != sequence->rows) {
    return absl::InvalidArgumentError("the restore was begun in another sequence");
  }
  if (handle.rows == nullptr && sequence->rows->importing()) {
    return absl::FailedPreconditionError("another restore into the sequence is not finished");
  }
  return absl::OkStatus();
}

// Requires CheckOpen and CheckPlace.
Restore::State StepOnce(parkade_restore* handle, parkade_sequence* sequence,
                        std::int64_t budget_us) {
  Restore& restore = *handle->restore;
  if (restore.state() != Restore::State::kReading) return restore.state();
  handle->rows = sequence->rows;
  const Restore::State state = restore.Step(*sequence->rows, budget_us);
  if (state == Restore::State::kReading) return state;
  handle->window_begin = sequence->rows->restored_window_begin();
  handle->rows.reset();
  // An error of the device ended the restore; the log says so.
  const absl::Status device = sequence->rows->TakeDeviceError();
  if (!device.ok()) {
    const absl::string_view text = device.message();
    handle->model->cache->events().Log(LogLevel::kWarning,
                                       "restore: " + std::string(text.data(), text.size()));
  }
  return state;
}

absl::Status Step(parkade_restore* handle, parkade_sequence* sequence, std::int64_t budget_us,
                  parkade_restore_state* state) {
  absl::Status fine = CheckOpen(handle);
  if (fine.ok()) fine = CheckPlace(*handle, sequence);
  if (!fine.ok()) return fine;
  if (state == nullptr) return NullArgument("state");
  *state = StateOf(StepOnce(handle, sequence, std::clamp<std::int64_t>(budget_us, 0, kLongestMs)));
  return absl::OkStatus();
}

absl::Status Run(parkade_restore* handle, parkade_sequence* sequence, std::int64_t timeout_ms,
                 std::uint32_t* restored_tokens) {
  absl::Status fine = CheckOpen(handle);
  if (fine.ok()) fine = CheckPlace(*handle, sequence);
  if (!fine.ok()) return fine;
  if (restored_tokens == nullptr) return NullArgument("restored_tokens");
  const absl::Time deadline =
      absl::Now() + absl::Milliseconds(std::clamp<std::int64_t>(timeout_ms, 0, kLongestMs));
  Restore& restore = *handle->restore;
  while (true) {
    const std::int64_t left_ms =
        std::max<std::int64_t>(0, absl::ToInt64Milliseconds(deadline - absl::Now()));
    restore.WaitReady(std::min(left_ms, kLookMs));
    const Restore::State state =
        StepOnce(handle, sequence, std::max<std::int64_t>(1, std::min(left_ms, kLookMs)) * 1000);
    const bool ended = state != Restore::State::kPlanning && state != Restore::State::kReading;
    if (ended) break;
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError("the restore goes on; time is over");
    }
  }
  *restored_tokens = restore.restored_tokens();
  return absl::OkStatus();
}

// What a restore that is given up leaves in a sequence is undefined; copies into it end here.
void Leave(parkade_restore* handle) {
  handle->model->cache->Drop(handle);
  handle->LeaveRows();
}

parkade_lookup_result ResultOf(const LookupRecord& record) {
  parkade_lookup_result result = {};
  result.prompt_tokens = record.prompt_tokens;
  result.matched_tokens = record.matched_tokens;
  result.reused_tokens = record.reused_tokens;
  std::copy(record.hit_tokens.begin(), record.hit_tokens.end(), result.hit_tokens);
  result.restored_bytes = record.restored_bytes;
  result.restore_seconds = record.restore_seconds;
  const auto most = std::max_element(record.miss_tokens.begin(), record.miss_tokens.end());
  if (*most == 0) return result;
  const std::string reason(
      MissReasonName(static_cast<MissReason>(most - record.miss_tokens.begin())));
  std::memcpy(result.miss_reason, reason.c_str(),
              std::min(reason.size(), sizeof(result.miss_reason) - 1));
  return result;
}

// Takes the handle over.
absl::Status Finish(parkade_restore* taken, std::uint32_t reused_tokens,
                    parkade_lookup_result* result) {
  if (taken == nullptr) return NullArgument("restore");
  const std::unique_ptr<parkade_restore> handle(taken);
  Leave(handle.get());
  absl::Status open = CheckOpen(handle.get());
  if (!open.ok()) return open;
  const absl::StatusOr<ConversationCache*> cache = handle->model->cache->cache();
  if (!cache.ok()) return cache.status();
  const EventCounts::OnThisThread told;
  (*cache)->FinishLookup(std::move(handle->restore), reused_tokens);
  if (result == nullptr) return absl::OkStatus();
  absl::Status writable = CheckOutput(result, "result");
  if (writable.ok() && told.lookup.has_value()) WriteStruct(ResultOf(*told.lookup), result);
  return writable;
}

absl::Status Park(const parkade_model* model, parkade_sequence* sequence,
                  const parkade_park_options* given, parkade_park_result* result) {
  if (model == nullptr) return NullArgument("model");
  if (sequence == nullptr) return NullArgument("sequence");
  const absl::StatusOr<parkade_park_options> options = ReadStruct(given, "options");
  if (!options.ok()) return options.status();
  absl::Status fine = CheckOutput(result, "result");
  if (fine.ok()) fine = CheckTokens(options->tokens, options->token_count);
  if (!fine.ok()) return fine;
  if (!(sequence->model->layout == model->body->layout)) {
    return absl::InvalidArgumentError("the sequence's planes are not those of the model");
  }
  const auto count = static_cast<std::uint32_t>(options->token_count);
  if (options->window_begin > count) {
    return absl::InvalidArgumentError("window_begin is above token_count");
  }
  const absl::StatusOr<Digest128> identity = model->body->Register();
  if (!identity.ok()) return identity.status();
  PlaneSequence& rows = *sequence->rows;
  if (fine = rows.SetHeld(count, options->window_begin); !fine.ok()) return fine;
  const absl::StatusOr<ConversationCache*> cache = model->body->cache->cache();
  if (!cache.ok()) return cache.status();
  ParkRequest request;
  request.identity = *identity;
  request.tokens = absl::MakeConstSpan(options->tokens, count);
  request.boundary = options->boundary;
  const ParkOutcome outcome = (*cache)->Park(rows, request);
  if (absl::Status device = rows.TakeDeviceError(); !device.ok()) return device;
  parkade_park_result out = {};
  out.captured_tokens = outcome.captured_tokens;
  out.complete = outcome.complete;
  if (!outcome.conversation.IsZero()) WriteId(outcome.conversation, out.conversation);
  WriteStruct(out, result);
  return absl::OkStatus();
}

}  // namespace
}  // namespace parkade::capi

using parkade::capi::AtBorder;

extern "C" {

parkade_status parkade_lookup(parkade_model* model, const parkade_lookup_options* options,
                              parkade_restore** restore) {
  return AtBorder([&] { return parkade::capi::Lookup(model, options, restore); });
}

parkade_status parkade_restore_plan(parkade_restore* restore, int64_t timeout_ms,
                                    parkade_restore_info* info) {
  return AtBorder([&] { return parkade::capi::Plan(restore, timeout_ms, info); });
}

parkade_status parkade_restore_step(parkade_restore* restore, parkade_sequence* sequence,
                                    int64_t budget_us, parkade_restore_state* state) {
  return AtBorder([&] { return parkade::capi::Step(restore, sequence, budget_us, state); });
}

parkade_status parkade_restore_run(parkade_restore* restore, parkade_sequence* sequence,
                                   int64_t timeout_ms, uint32_t* restored_tokens) {
  return AtBorder(
      [&] { return parkade::capi::Run(restore, sequence, timeout_ms, restored_tokens); });
}

parkade_status parkade_restore_finish(parkade_restore* restore, uint32_t reused_tokens,
                                      parkade_lookup_result* result) {
  return AtBorder([&] { return parkade::capi::Finish(restore, reused_tokens, result); });
}

void parkade_restore_abandon(parkade_restore* restore) {
  if (restore == nullptr) return;
  (void)AtBorder([&] {
    parkade::capi::Leave(restore);
    return absl::OkStatus();
  });
  delete restore;
}

parkade_status parkade_park(parkade_model* model, parkade_sequence* sequence,
                            const parkade_park_options* options, parkade_park_result* result) {
  return AtBorder([&] { return parkade::capi::Park(model, sequence, options, result); });
}

}  // extern "C"
