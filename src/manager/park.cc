// The park path on the serving thread: find what is new, copy it once, queue it.

#include <algorithm>
#include <utility>

#include "src/format/checksum.h"
#include "src/manager/cache_impl.h"

namespace parkade {
namespace {

// The queue may hold what the durable tier writes in this time.
constexpr double kDrainSeconds = 5.0;
// Window rows kept before a boundary, in windows: one that a restore needs and one more, so that a
// client that leaves the conversation a little earlier still finds a whole window.
constexpr std::uint32_t kWindowsKept = 2;

std::uint64_t PayloadBytes(const std::vector<ExtentInfo>& extents) {
  std::uint64_t bytes = 0;
  for (const ExtentInfo& extent : extents) bytes += extent.raw_bytes;
  return bytes;
}

}  // namespace

void CacheImpl::CountSkippedPark(SkipReason reason, std::uint32_t tokens) {
  sink_->OnSkippedPark(reason, tokens);
}

bool CacheImpl::QueueHasRoom() const {
  const double limit = std::max(64e6, kDrainSeconds * spill_bytes_per_second_);
  return durable_tier_ < 0 || static_cast<double>(pending_bytes_) < limit;
}

// How many tokens after `position` (less than a page) go on like the conversation, as far as its
// tokens are in memory.
std::uint32_t CacheImpl::ExtensionInMemory(Handle handle, std::uint32_t position,
                                           absl::Span<const Token> tokens) {
  const std::uint32_t limit =
      std::min<std::uint32_t>(catalogue_.Get(handle)->tip(), position + kPageTokens);
  std::uint32_t matched = position;
  for (const PathPark& step : catalogue_.Path(handle, limit)) {
    if (step.tokens.end <= matched) continue;
    const ParkState* park = catalogue_.Get(step.conversation)->FindPark(step.key.park);
    SharedTokens known = park->pending != nullptr
                             ? SharedTokens(park->pending->record, &park->pending->record->tokens)
                             : tokens_.Find(step.key);
    if (known == nullptr) break;
    const std::uint32_t end = std::min(step.tokens.end, static_cast<std::uint32_t>(tokens.size()));
    while (matched < end && (*known)[matched - step.tokens.begin] == tokens[matched]) ++matched;
    if (matched < end) break;
  }
  return matched;
}

CacheImpl::ParkSpot CacheImpl::LocateForPark(absl::Span<const Token> tokens,
                                             const std::vector<std::uint64_t>& hashes) {
  ParkSpot spot;
  const Catalogue::PageMatch pages = catalogue_.MatchPages(hashes);
  if (pages.pages == 0) return spot;
  const std::uint32_t position = pages.pages * kPageTokens;
  spot.conversation = pages.conversation;
  spot.matched = position;
  for (Handle handle : catalogue_.Continuations(pages.conversation, position, 16)) {
    const std::uint32_t matched = ExtensionInMemory(handle, position, tokens);
    if (matched > spot.matched) spot = ParkSpot{handle, matched};
  }
  // The conversation that owns the last matched token.
  const Conversation* owner = catalogue_.Get(spot.conversation);
  while (owner->parent != kNoHandle && spot.matched <= owner->parent_tokens) {
    spot.conversation = owner->parent;
    owner = catalogue_.Get(spot.conversation);
  }
  return spot;
}

// Cuts the new rows into pieces of at most one park each.
std::vector<CacheImpl::CapturePiece> CacheImpl::PlanCapture(EngineSequence& sequence,
                                                            const ParkRequest& request,
                                                            std::uint32_t matched,
                                                            const Coverage& coverage) {
  const StateLayout& layout = sequence.layout();
  const StageMap& stages = sequence.stages();
  const std::uint32_t end = static_cast<std::uint32_t>(request.tokens.size());
  std::vector<CapturePiece> pieces;
  std::uint64_t token_bytes = 0;
  for (const Stage& stage : stages.stages) {
    token_bytes += GroupRowBytes(layout, stage, RowGroup::kFull);
  }
  CapturePiece last;
  last.tokens = TokenRange{matched, matched};
  // Whole extents a piece: the number of rows that fit, rounded down to full extents of 256.
  std::uint32_t piece_rows = end - matched;
  if (token_bytes > 0) {
    piece_rows = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(1, std::min<std::uint64_t>(kParkBytes / token_bytes, 1u << 20)));
    if (piece_rows > kExtentRows) piece_rows -= piece_rows % kExtentRows;
  }
  for (std::uint32_t at = matched; at < end; at += piece_rows) {
    CapturePiece piece;
    piece.tokens = TokenRange{at, std::min(end, at + piece_rows)};
    piece.extents = CutIntoExtents(layout, stages, RowGroup::kFull, piece.tokens);
    piece.bytes = PayloadBytes(piece.extents);
    pieces.push_back(std::move(piece));
  }
  std::vector<ExtentInfo> extra;
  std::vector<TokenRange> window_rows;
  std::vector<std::uint32_t> checkpoints;
  if (request.boundary && layout.has_group(RowGroup::kWindow)) {
    const std::uint32_t need = WindowNeedBegin(end, layout.window_tokens);
    const std::uint32_t live = sequence.WindowBegin();
    std::uint32_t keep = end;
    for (std::uint32_t i = 0; i < kWindowsKept; ++i) {
      keep = WindowNeedBegin(keep, layout.window_tokens);
    }
    if (live <= need) {
      window_rows = Uncovered(coverage.window_rows, TokenRange{std::max(live, keep), end});
    }
    for (const TokenRange& range : window_rows) {
      const auto cut = CutIntoExtents(layout, stages, RowGroup::kWindow, range);
      extra.insert(extra.end(), cut.begin(), cut.end());
    }
  }
  if (request.boundary && layout.has_group(RowGroup::kState) &&
      (coverage.checkpoints.empty() || coverage.checkpoints.back() != end)) {
    checkpoints.push_back(end);
    const auto cut = CutIntoExtents(layout, stages, RowGroup::kState, TokenRange{end, end + 1});
    extra.insert(extra.end(), cut.begin(), cut.end());
  }
  if (extra.empty()) return pieces;
  const std::uint64_t extra_bytes = PayloadBytes(extra);
  if (pieces.empty() || pieces.back().bytes + extra_bytes > kParkBytes) {
    CapturePiece piece;
    piece.tokens = TokenRange{end, end};
    pieces.push_back(std::move(piece));
  }
  CapturePiece& tail = pieces.back();
  tail.extents.insert(tail.extents.end(), extra.begin(), extra.end());
  tail.window_rows = std::move(window_rows);
  tail.checkpoints = std::move(checkpoints);
  tail.bytes += extra_bytes;
  return pieces;
}

bool CacheImpl::CapturePieceNow(EngineSequence& sequence, const CapturePiece& piece,
                                std::vector<ExtentBytes>* payload) {
  payload->reserve(piece.extents.size());
  for (const ExtentInfo& extent : piece.extents) {
    std::shared_ptr<ExtentBuffer> buffer = capture_pool_->TryAllocate(extent.raw_bytes);
    if (buffer == nullptr) return false;
    const absl::Status status = sequence.Export(extent, buffer->data());
    if (!status.ok()) {
      sink_->Log(LogLevel::kWarning, "capture failed: " + std::string(Text(status)));
      return false;
    }
    payload->push_back(std::move(buffer));
  }
  return true;
}

ParkOutcome CacheImpl::Park(EngineSequence& sequence, const ParkRequest& request) {
  const absl::Time begin = absl::Now();
  const std::uint32_t end = static_cast<std::uint32_t>(request.tokens.size());
  ParkOutcome outcome;
  if (end < options_.min_tokens) {
    sink_->OnSkippedPark(SkipReason::kTooShort, end);
    return outcome;
  }
  if (tiers_.empty()) return outcome;
  const std::vector<std::uint64_t> hashes = PageHashes(request.identity, request.tokens);
  ParkSpot spot;
  Coverage coverage;
  {
    absl::MutexLock lock(&mu_);
    if (identities_.count(request.identity) == 0) return outcome;
    spot = LocateForPark(request.tokens, hashes);
    if (spot.conversation != kNoHandle) {
      coverage = catalogue_.CoverageOf(spot.conversation, spot.matched);
      Touch(spot.conversation, false);
    }
    outcome.captured_tokens = spot.matched;
    const bool rows_new = spot.matched < end;
    const StateLayout& layout = sequence.layout();
    const bool extra_new =
        request.boundary &&
        (layout.has_group(RowGroup::kWindow) || layout.has_group(RowGroup::kState)) &&
        UsableBoundary(layout, coverage, end) != end;
    if (!rows_new && !extra_new) return outcome;
    if (!QueueHasRoom()) {
      outcome.complete = false;
      return outcome;
    }
  }
  const absl::Status held = sequence.BeginCapture(end);
  if (!held.ok()) {
    sink_->OnSkippedPark(SkipReason::kUnsupported, end - spot.matched);
    sink_->Log(LogLevel::kInfo, "not parked: " + std::string(Text(held)));
    return outcome;
  }
  Handle target = spot.conversation;
  for (const CapturePiece& piece : PlanCapture(sequence, request, spot.matched, coverage)) {
    const absl::Time piece_begin = absl::Now();
    std::vector<ExtentBytes> payload;
    if (!CapturePieceNow(sequence, piece, &payload)) {
      outcome.complete = false;
      break;
    }
    Enqueue(request, hashes, sequence.stages(), piece, std::move(payload), &target,
            absl::ToDoubleSeconds(absl::Now() - piece_begin));
    outcome.captured_tokens = piece.tokens.end;
  }
  sequence.EndCapture();
  (void)begin;
  return outcome;
}

// Makes the captured piece a park of `*target`: appended at its tip, to a fork where it leaves
// earlier, or to a new conversation. From the return on it can be looked up.
void CacheImpl::Enqueue(const ParkRequest& request, const std::vector<std::uint64_t>& hashes,
                        const StageMap& stages, const CapturePiece& piece,
                        std::vector<ExtentBytes> payload, Handle* target, double seconds) {
  auto record = std::make_shared<ParkRecord>();
  ParkSummary& summary = record->summary;
  summary.identity = request.identity;
  summary.first_token = piece.tokens.begin;
  summary.token_count = piece.tokens.size();
  summary.payload_bytes = piece.bytes;
  summary.created_unix_ms = NowUnixMs();
  summary.window_rows = piece.window_rows;
  summary.checkpoints = piece.checkpoints;
  summary.stages = stages;
  for (std::uint32_t page = piece.tokens.begin / kPageTokens;
       (page + 1) * kPageTokens <= piece.tokens.end; ++page) {
    summary.page_hashes.push_back(hashes[page]);
  }
  record->tokens.assign(request.tokens.begin() + piece.tokens.begin,
                        request.tokens.begin() + piece.tokens.end);
  record->extents = piece.extents;
  auto pending = std::make_shared<PendingPark>();
  pending->payload = std::move(payload);
  ParkEvent event;
  {
    absl::MutexLock lock(&mu_);
    Conversation* conversation = *target == kNoHandle ? nullptr : catalogue_.Get(*target);
    const bool append = conversation != nullptr && !conversation->forgotten &&
                        (piece.tokens.begin == conversation->tip() || piece.tokens.empty());
    if (!append) {
      *target = catalogue_.Create(RandomDigest(), request.identity, *target, piece.tokens.begin,
                                  summary.created_unix_ms);
      conversation = catalogue_.Get(*target);
    }
    summary.key = ParkKey{conversation->id, conversation->next_park};
    if (conversation->parent != kNoHandle) {
      summary.parent = catalogue_.Get(conversation->parent)->id;
      summary.parent_tokens = conversation->parent_tokens;
    }
    ParkState* park = catalogue_.AddPark(*target, summary, 0);
    pending->conversation = *target;
    pending->record = record;
    park->pending = pending;
    Touch(*target, false);
    pending_bytes_ += piece.bytes;
    ++pending_parks_;
    if (ram_tier_ >= 0) {
      seal_queue_.push_back(pending);
    } else {
      spill_queue_.push_back(pending);
    }
    event = ParkEvent{summary.key, summary.token_count, summary.payload_bytes, seconds};
  }
  tokens_.Insert(event.key, SharedTokens(record, &record->tokens));
  sink_->OnPark(event);
}

}  // namespace parkade
