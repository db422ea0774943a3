// The serving thread's half of a restore: place, import what is ready, finish or fall back.

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/format/row_cut.h"
#include "src/manager/boundary.h"
#include "src/manager/cache_impl.h"
#include "src/manager/restore_handle.h"

namespace parkade {
namespace {

bool HasUndone(const RestoreOp& op, std::uint32_t limit) {
  for (std::uint32_t i = op.imported; i < limit; ++i) {
    if (!op.done[i]) return true;
  }
  return false;
}

bool ReadyLocked(const RestoreOp& op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(op.mu) {
  if (op.state == Restore::State::kPlanning) return false;
  if (op.state != Restore::State::kReading) return true;
  return !op.placed || !op.ready.empty() || !HasUndone(op, op.read_limit);
}

}  // namespace

RestoreHandle::RestoreHandle(CacheImpl* cache, std::shared_ptr<RestoreOp> op)
    : cache_(cache), op_(std::move(op)) {}

RestoreHandle::~RestoreHandle() { cache_->Abandon(op_); }

Restore::State RestoreHandle::state() const {
  absl::MutexLock lock(&op_->mu);
  return op_->state;
}

bool RestoreHandle::Ready() const {
  absl::MutexLock lock(&op_->mu);
  return ReadyLocked(*op_);
}

bool RestoreHandle::WaitReady(std::int64_t timeout_ms) {
  absl::MutexLock lock(&op_->mu);
  const RestoreOp* op = op_.get();
  auto ready = [op]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(op->mu) { return ReadyLocked(*op); };
  return op_->mu.AwaitWithTimeout(absl::Condition(&ready), absl::Milliseconds(timeout_ms));
}

bool RestoreHandle::WillRestore() const {
  absl::MutexLock lock(&op_->mu);
  return op_->state == State::kReading;
}

Restore::State RestoreHandle::Step(EngineSequence& sequence, std::int64_t budget_us) {
  return cache_->StepRestore(op_.get(), sequence, budget_us);
}

std::uint32_t RestoreHandle::restored_tokens() const {
  absl::MutexLock lock(&op_->mu);
  if (op_->state == State::kRestored) return op_->restored;
  return op_->state == State::kReading ? op_->plan.boundary : 0;
}

std::array<std::uint32_t, kSources> RestoreHandle::planned_sources() const {
  std::array<std::uint32_t, kSources> tokens{};
  absl::MutexLock lock(&op_->mu);
  if (op_->state != State::kReading && op_->state != State::kRestored) return tokens;
  for (const PlannedPark& park : op_->plan.parks) {
    const std::uint32_t end = std::min(park.tokens.end, op_->plan.boundary);
    if (end > park.tokens.begin) {
      tokens[static_cast<std::size_t>(park.source)] += end - park.tokens.begin;
    }
  }
  return tokens;
}

void CacheImpl::Abandon(const std::shared_ptr<RestoreOp>& op) {
  op->cancelled = true;
  {
    absl::MutexLock lock(&op->mu);
    op->ready.clear();
    op->read_limit = 0;
    // A plan in the making pins and unpins on its own thread.
    if (op->state == Restore::State::kPlanning) return;
    op->promotions.clear();
  }
  Unpin(op.get());
}

namespace {

// Ends a restore that can't be completed: keeps the longest boundary that every stage has, or
// clears the sequence.
Restore::State FinishShort(RestoreOp* op, EngineSequence& sequence, std::uint32_t limit) {
  const std::uint32_t boundary =
      op->layout.rows_alone() && limit < op->plan.extents.size()
          ? OutsideOf(op->request.whole_ranges, op->plan.extents[limit].info.first)
          : 0;
  if (boundary > 0 && sequence.FinishImport(boundary).ok()) {
    op->restored = boundary;
    return Restore::State::kRestored;
  }
  sequence.Clear();
  op->restored = 0;
  return Restore::State::kFailed;
}

}  // namespace

Restore::State CacheImpl::EndRestore(RestoreOp* op, Restore::State state, std::string_view why) {
  op->restore_seconds = absl::ToDoubleSeconds(absl::Now() - op->started) - op->lookup_seconds;
  if (!why.empty()) {
    op->match.detail = std::string(why);
    sink_->Log(LogLevel::kWarning, "restore fell short: " + op->match.detail);
  }
  absl::MutexLock lock(&op->mu);
  op->state = state;
  if (state == Restore::State::kFailed) op->read_limit = 0;
  // Nobody takes them any more, and others wait for the buffers.
  op->ready.clear();
  return state;
}

// Imports what is ready, until the budget is used up. *more: something ready is left.
absl::Status CacheImpl::ImportReady(RestoreOp* op, EngineSequence& sequence, absl::Time deadline,
                                    bool* more) {
  std::vector<std::pair<std::uint32_t, ExtentBytes>> ready;
  {
    absl::MutexLock lock(&op->mu);
    ready.swap(op->ready);
    // Readers that waited for buffers have had no chance to make progress until now.
    if (!ready.empty()) op->progress = absl::Now();
  }
  *more = false;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const PlannedExtent& extent = op->plan.extents[ready[i].first];
    const PlannedPark& park = op->plan.parks[extent.park];
    const absl::Status status =
        sequence.ImportShared(*park.stages, FirstRows(extent.info, extent.rows), ready[i].second);
    if (!status.ok()) return status;
    op->done[ready[i].first] = true;
    ready[i].second.reset();
    if (--op->ahead == 0) WakeReaders();
    if (absl::Now() < deadline || i + 1 == ready.size()) continue;
    absl::MutexLock lock(&op->mu);
    op->ready.insert(op->ready.begin(),
                     std::make_move_iterator(ready.begin() + static_cast<std::ptrdiff_t>(i) + 1),
                     std::make_move_iterator(ready.end()));
    *more = true;
    break;
  }
  while (op->imported < op->done.size() && op->done[op->imported]) ++op->imported;
  return absl::OkStatus();
}

Restore::State CacheImpl::FailRestore(RestoreOp* op, EngineSequence& sequence,
                                      const absl::Status& status) {
  sequence.Clear();
  op->match.shortfall = MissReason::kIncomplete;
  return EndRestore(op, Restore::State::kFailed, Text(status));
}

Restore::State CacheImpl::StepRestore(RestoreOp* op, EngineSequence& sequence,
                                      std::int64_t budget_us) {
  {
    absl::MutexLock lock(&op->mu);
    if (op->state != Restore::State::kReading) return op->state;
  }
  const Restore::State state = StepReading(op, sequence, absl::Microseconds(budget_us));
  if (state != Restore::State::kReading) return state;
  const absl::Status paused = sequence.PauseImport();
  return paused.ok() ? state : FailRestore(op, sequence, paused);
}

Restore::State CacheImpl::StepReading(RestoreOp* op, EngineSequence& sequence,
                                      absl::Duration budget) {
  const absl::Time deadline = absl::Now() + budget;
  auto fail = [&](const absl::Status& status) { return FailRestore(op, sequence, status); };
  if (!op->placed) {
    const absl::Status status = sequence.BeginImport(op->plan.boundary, op->plan.window_begin);
    if (!status.ok()) return fail(status);
    op->placed = true;
  }
  std::uint32_t limit = 0;
  while (true) {
    bool more = false;
    const absl::Status status = ImportReady(op, sequence, deadline, &more);
    if (!status.ok()) return fail(status);
    absl::MutexLock lock(&op->mu);
    limit = op->read_limit;
    if (!HasUndone(*op, limit)) break;
    if (more || (!op->ready.empty() && absl::Now() >= deadline)) return op->state;
    if (!op->ready.empty()) continue;
    const absl::Duration idle = absl::Now() - op->progress;
    if (idle < absl::Milliseconds(options_.restore_deadline_ms)) return op->state;
    op->read_limit = limit = op->imported;
    op->read_failure = MissReason::kIncomplete;
    break;
  }
  // Without the draft's rows the engine goes on, too: it drafts worse for a while.
  if (limit < op->plan.extents.size() && limit >= op->plan.draft_begin) {
    sink_->Log(LogLevel::kWarning, "restore goes on without the draft's rows");
  } else if (limit < op->plan.extents.size()) {
    {
      absl::MutexLock lock(&op->mu);
      op->match.shortfall = op->read_failure;
    }
    const PlannedExtent& missing = op->plan.extents[limit];
    const Stage& stage = op->plan.parks[missing.park].stages->stages[missing.info.stage];
    op->match.failed_tier = op->plan.parks[missing.park].source;
    sink_->OnStageLimited(missing.info.stage);
    const std::string why = "an extent of stage " + std::to_string(missing.info.stage) + " (" +
                            stage.device + ") did not come";
    const Restore::State state = FinishShort(op, sequence, limit);
    return EndRestore(op, state, why);
  }
  const absl::Status status = sequence.FinishImport(op->plan.boundary);
  if (!status.ok()) return fail(status);
  op->restored = op->plan.boundary;
  const Restore::State state = EndRestore(op, Restore::State::kRestored, "");
  NoteRestoreSpeed(*op);
  return state;
}

}  // namespace parkade
