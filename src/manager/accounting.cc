// Every prompt token is counted once: reused from somewhere, or computed for a reason.

#include <algorithm>
#include <utility>

#include "src/format/checksum.h"
#include "src/manager/cache_impl.h"
#include "src/manager/restore_handle.h"

namespace parkade {
namespace {

constexpr std::size_t kLookupsKept = 256;
constexpr std::size_t kFrontsKept = 16;
constexpr std::size_t kFrontTokens = kPageTokens + kExplainTokens;
// What every prompt of a chat template begins with is no common beginning.
constexpr std::size_t kLeastCommonTokens = 8;

std::size_t Index(MissReason reason) { return static_cast<std::size_t>(reason); }

void AddMiss(LookupRecord* record, MissReason reason, std::uint32_t tokens) {
  record->miss_tokens[Index(reason)] += tokens;
}

}  // namespace

// The first field that differs from an identity under which this prompt's first page is stored;
// empty when there is none.
std::string CacheImpl::IdentityDifference(const RestoreOp& op) {
  if (op.request.tokens.size() < kPageTokens) return "";
  std::vector<std::pair<Digest128, StoredIdentity>> others;
  Identity wanted;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [digest, stored] : identities_) {
      if (digest == op.request.identity) {
        wanted = stored.identity;
      } else {
        others.emplace_back(digest, stored);
      }
    }
  }
  const auto first_page = absl::MakeConstSpan(op.request.tokens).subspan(0, kPageTokens);
  for (const auto& [digest, stored] : others) {
    const std::vector<std::uint64_t> hashes = PageHashes(digest, first_page);
    absl::MutexLock lock(&mu_);
    if (catalogue_.MatchPages(hashes).pages > 0) return FirstDifference(wanted, stored.identity);
  }
  return "";
}

// What a client changed where the prompt leaves what is stored, when that costs enough to be told.
std::string CacheImpl::NameChange(const RestoreOp& op, const MatchReport& match,
                                  const LookupRecord& record) {
  const std::uint32_t at = record.matched_tokens;
  const bool from_slot = match.conversation == kNoHandle || match.matched < op.request.held_tokens;
  const std::vector<Token>& stored = from_slot ? op.request.held_next : match.stored_next;
  const bool costly =
      record.miss_tokens[Index(MissReason::kDiverged)] > kExplainedMissTokens && !stored.empty();
  if (!costly || !op.request.name_change || at >= record.prompt_tokens) return "";
  const auto prompt = absl::MakeConstSpan(op.request.tokens);
  const std::uint32_t before = std::min(at, kExplainTokens);
  return op.request.name_change(prompt.subspan(at - before, before), stored,
                                prompt.subspan(at, kExplainTokens));
}

// The same for a prompt of which nothing matches: it may differ from an earlier one within the
// first page.
void CacheImpl::NameColdChange(const RestoreOp& op, LookupRecord* record) {
  const bool costly = record->miss_tokens[Index(MissReason::kCold)] > kExplainedMissTokens;
  if (!costly || !op.request.name_change) return;
  const std::vector<Token>& prompt = op.request.tokens;
  std::size_t common = kLeastCommonTokens - 1;
  std::vector<Token> stored;
  {
    absl::MutexLock lock(&mu_);
    for (const PromptFront& front : fronts_) {
      if (!(front.identity == op.request.identity)) continue;
      const auto end =
          std::mismatch(front.tokens.begin(), front.tokens.end(), prompt.begin(), prompt.end());
      const auto same = static_cast<std::size_t>(end.second - prompt.begin());
      if (same <= common || end.first == front.tokens.end()) continue;
      common = same;
      stored.assign(end.first, front.tokens.end());
    }
  }
  if (stored.empty()) return;
  if (stored.size() > kExplainTokens) stored.resize(kExplainTokens);
  const auto wanted = absl::MakeConstSpan(prompt);
  const std::size_t before = std::min<std::size_t>(common, kExplainTokens);
  record->changed = op.request.name_change(wanted.subspan(common - before, before), stored,
                                           wanted.subspan(common, kExplainTokens));
  if (!record->changed.empty()) record->first_difference = static_cast<std::uint32_t>(common);
}

void CacheImpl::NoteFront(const RestoreOp& op) {
  const std::vector<Token>& tokens = op.request.tokens;
  fronts_.push_front({op.request.identity,
                      {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                            tokens.size(), kFrontTokens))}});
  if (fronts_.size() > kFrontsKept) fronts_.pop_back();
}

// Why the tokens after everything that matched are computed.
MissReason CacheImpl::ReasonBeyond(const RestoreOp& op, const MatchReport& match,
                                   std::uint32_t matched, LookupRecord* record) {
  if (!match.looked_up) return MissReason::kIncomplete;
  const std::uint32_t page = matched / kPageTokens;
  if (page < op.hashes.size()) {
    absl::MutexLock lock(&mu_);
    if (catalogue_.RecentlyEvicted(op.hashes[page])) return MissReason::kEvicted;
  }
  // What it would have had nobody knows.
  if (!op.shared_answered) return MissReason::kRemote;
  const bool from_slot = match.conversation == kNoHandle || match.matched < op.request.held_tokens;
  // The few tokens that all prompts begin with are no conversation.
  if (match.conversation == kNoHandle && matched < kPageTokens) {
    record->identity_field = IdentityDifference(op);
    return record->identity_field.empty() ? MissReason::kCold : MissReason::kIdentity;
  }
  const bool known_ends = from_slot ? op.request.held_all : match.at_tip;
  return known_ends ? MissReason::kNew : MissReason::kDiverged;
}

void CacheImpl::CountMisses(const RestoreOp& op, const MatchReport& match, std::uint32_t reused,
                            LookupRecord* record) {
  const std::uint32_t prompt = record->prompt_tokens;
  std::uint32_t left = prompt - reused;
  if (left == 0) return;
  if (!op.request.enabled) {
    AddMiss(record, MissReason::kDisabled, left);
    return;
  }
  // The last token is always computed.
  AddMiss(record, MissReason::kNew, 1);
  --left;
  const std::uint32_t cacheable = std::min(op.request.cacheable_tokens, prompt);
  const std::uint32_t beyond = std::min(left, prompt - cacheable);
  AddMiss(record, MissReason::kUnsupported, beyond);
  left -= beyond;
  const std::uint32_t matched = record->matched_tokens;
  if (matched > reused && left > 0) {
    const std::uint32_t lost = std::min(left, matched - reused);
    MissReason reason = match.shortfall;
    // A match that was usable but not worth a restore.
    if (match.usable > reused && match.detail.empty() && op.restored == 0) {
      reason = MissReason::kTooShort;
    }
    AddMiss(record, reason, lost);
    left -= lost;
  }
  if (left > 0) AddMiss(record, ReasonBeyond(op, match, matched, record), left);
}

// Known from the position alone, so that it can be told after a restart, too.
void CacheImpl::NameBoundary(const RestoreOp& op, LookupRecord* record) {
  if (record->reused_tokens == 0) return;
  const bool restored = op.restored > 0;
  record->boundary_tokens = restored ? op.restored : record->reused_tokens;
  const std::vector<std::uint32_t>& starts = op.request.user_starts;
  const bool user = std::binary_search(starts.begin(), starts.end(), record->boundary_tokens);
  if (!restored) {
    record->boundary_kind = BoundaryKind::kSlot;
  } else if (user) {
    record->boundary_kind =
        record->boundary_tokens == starts.front() ? BoundaryKind::kSystem : BoundaryKind::kUser;
  } else if (op.layout.has_group(RowGroup::kState)) {
    record->boundary_kind =
        IsBetween(record->boundary_tokens) ? BoundaryKind::kBetween : BoundaryKind::kTurn;
  } else {
    record->boundary_kind =
        op.layout.has_group(RowGroup::kWindow) ? BoundaryKind::kWindow : BoundaryKind::kRow;
  }
}

LookupRecord CacheImpl::MakeRecord(const RestoreOp& op, const MatchReport& match,
                                   std::uint32_t reused) {
  LookupRecord record;
  record.unix_ms = NowUnixMs();
  record.prompt_tokens = static_cast<std::uint32_t>(op.request.tokens.size());
  reused = std::min(reused, record.prompt_tokens);
  record.reused_tokens = reused;
  record.matched_tokens = std::min(
      std::max({match.matched, match.lost_match, op.request.held_tokens}), record.prompt_tokens);
  record.usable_tokens = match.usable;
  record.conversation = match.id;
  record.first_difference = record.matched_tokens;
  record.detail = match.detail;
  record.failed_tier = match.failed_tier;
  record.expected_load_seconds = match.expected_load_seconds;
  record.expected_read_seconds = match.expected_read_seconds;
  record.restore_seconds = op.restore_seconds;
  std::uint32_t from_tiers = 0;
  if (op.restored > 0) {
    std::size_t stages = 0;
    for (const PlannedPark& park : op.plan.parks) {
      const std::uint32_t end = std::min({park.tokens.end, reused, op.restored});
      if (end > park.tokens.begin) {
        record.hit_tokens[static_cast<std::size_t>(park.source)] += end - park.tokens.begin;
        from_tiers += end - park.tokens.begin;
      }
      std::size_t of_park = 0;
      for (const Stage& stage : park.stages->stages) {
        of_park += IsDraft(stage) ? 0 : 1;
      }
      stages = std::max(stages, of_park);
    }
    record.stage_sources.assign(stages, Source::kRam);
    for (std::size_t i = 0; i < op.plan.extents.size(); ++i) {
      if (!op.done[i]) continue;
      const PlannedExtent& extent = op.plan.extents[i];
      // The draft's stage comes last, and only if it was restored.
      if (extent.info.stage >= record.stage_sources.size()) {
        record.stage_sources.resize(extent.info.stage + 1u, Source::kRam);
      }
      Source& source = record.stage_sources[extent.info.stage];
      source = std::max(source, op.plan.parks[extent.park].source);
      record.restored_bytes += extent.info.raw_bytes;
    }
  }
  record.hit_tokens[static_cast<std::size_t>(Source::kSlot)] = reused - from_tiers;
  CountMisses(op, match, reused, &record);
  NameBoundary(op, &record);
  // Full: nothing was computed but the last token and what no tier had.
  const std::uint32_t computed = record.prompt_tokens - reused;
  const bool full = reused > 0 && computed == record.miss_tokens[Index(MissReason::kNew)];
  record.outcome = full         ? LookupOutcome::kFull
                   : reused > 0 ? LookupOutcome::kPartial
                                : LookupOutcome::kMiss;
  return record;
}

void CacheImpl::FinishLookup(std::unique_ptr<Restore> restore, std::uint32_t reused_tokens) {
  RestoreOp* op = static_cast<RestoreHandle*>(restore.get())->op();
  MatchReport match;
  double lookup_seconds = absl::ToDoubleSeconds(absl::Now() - op->started);
  Restore::State state;
  {
    absl::MutexLock lock(&op->mu);
    state = op->state;
    // What was matched so far is still being written by the thread that plans.
    if (state == Restore::State::kPlanning) op->cancelled = true;
  }
  if (state != Restore::State::kPlanning) {
    match = op->match;
    lookup_seconds = op->lookup_seconds;
  } else {
    match.looked_up = false;
  }
  if (state == Restore::State::kPlanning || state == Restore::State::kReading) {
    match.shortfall = MissReason::kIncomplete;
    match.detail = "the engine went on before the restore was done";
  }
  LookupRecord record = MakeRecord(*op, match, reused_tokens);
  record.changed = NameChange(*op, match, record);
  NameColdChange(*op, &record);
  record.lookup_seconds = lookup_seconds;
  if (op->restored > 0) {
    EmitRestored(*op, record);
    NotePartialUses(*op);
  }
  {
    absl::MutexLock lock(&mu_);
    const Handle handle = catalogue_.FindId(match.id);
    if (handle != kNoHandle) Touch(handle, op->restored > 0);
    NoteFront(*op);
    lookups_.push_front(record);
    if (lookups_.size() > kLookupsKept) lookups_.pop_back();
  }
  sink_->OnLookup(record);
  RenewShared(match.id);
}

RestoreTotals CacheImpl::FinishSession(std::unique_ptr<Restore> restore) {
  RestoreOp* op = static_cast<RestoreHandle*>(restore.get())->op();
  RestoreTotals totals;
  if (op->restored == 0) return totals;
  const LookupRecord record = MakeRecord(*op, op->match, op->restored);
  EmitRestored(*op, record);
  absl::MutexLock lock(&mu_);
  const Handle handle = catalogue_.FindId(op->match.id);
  if (handle != kNoHandle) Touch(handle, true);
  totals.tokens = op->restored;
  totals.bytes = record.restored_bytes;
  totals.seconds = record.restore_seconds;
  return totals;
}

void CacheImpl::EmitRestored(const RestoreOp& op, const LookupRecord& record) {
  std::uint64_t tier_bytes[kSources] = {};
  std::map<std::uint16_t, std::uint64_t> stage_bytes;
  for (std::size_t i = 0; i < op.plan.extents.size(); ++i) {
    if (!op.done[i]) continue;
    const PlannedExtent& extent = op.plan.extents[i];
    tier_bytes[static_cast<int>(op.plan.parks[extent.park].source)] += extent.info.raw_bytes;
    stage_bytes[extent.info.stage] += extent.info.raw_bytes;
  }
  for (TierKind kind : {TierKind::kRam, TierKind::kDisk, TierKind::kRemote}) {
    const std::uint64_t bytes = tier_bytes[static_cast<int>(SourceOf(kind))];
    if (bytes > 0) sink_->OnRestore(kind, bytes, record.restore_seconds);
  }
  for (const auto& [stage, bytes] : stage_bytes) sink_->OnStageRestored(stage, bytes);
}

}  // namespace parkade
