// The park path on the serving thread: find what is new, copy it once, queue it.

#include <algorithm>
#include <iterator>
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
// A park that grows in the queue has at most this many extents, so that a segment's headers and
// rows stay small beside its payload however short the pieces are.
constexpr std::size_t kMostGrownExtents = 512;

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
  absl::MutexLock lock(&mu_);
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
    if (known == nullptr || known->size() < step.tokens.size()) break;
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
    if (matched > spot.matched) {
      spot.conversation = handle;
      spot.matched = matched;
    }
  }
  // The conversation that owns the last matched token.
  const Conversation* owner = catalogue_.Get(spot.conversation);
  while (owner->parent != kNoHandle && spot.matched <= owner->parent_tokens) {
    spot.conversation = owner->parent;
    owner = catalogue_.Get(spot.conversation);
  }
  spot.id = owner->id;
  spot.last = catalogue_.Path(spot.conversation, spot.matched).back().key;
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
  // A piece is captured whole or not at all, and a pool charges at most twice the bytes of a large
  // extent: half the pool always fits once it is empty.
  const std::uint64_t piece_bytes = std::min(kParkBytes, capture_pool_->limit_bytes() / 2);
  std::uint64_t token_bytes = 0;
  for (const Stage& stage : stages.stages) {
    token_bytes += GroupRowBytes(layout, stage, RowGroup::kFull);
  }
  // Whole extents a piece: the number of rows that fit, rounded down to full extents of 256.
  std::uint32_t piece_rows = end - matched;
  if (token_bytes > 0) {
    piece_rows = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(1, std::min<std::uint64_t>(piece_bytes / token_bytes, 1u << 20)));
    if (piece_rows > kExtentRows) piece_rows -= piece_rows % kExtentRows;
  }
  std::vector<CapturePiece> pieces;
  if (request.boundary && matched > 0) {
    // Window rows of tokens that are there already go where those are, so that every conversation
    // that shares the tokens finds them and stores them no second time.
    PlanWindowRows(sequence, end, {0, matched}, coverage, piece_bytes, &pieces);
  }
  for (std::uint32_t at = matched; at < end; at += piece_rows) {
    CapturePiece piece;
    piece.tokens = TokenRange{at, std::min(end, at + piece_rows)};
    piece.extents = CutIntoExtents(layout, stages, RowGroup::kFull, piece.tokens);
    piece.bytes = PayloadBytes(piece.extents);
    pieces.push_back(std::move(piece));
  }
  if (request.boundary) {
    PlanWindowRows(sequence, end, {matched, end}, coverage, piece_bytes, &pieces);
    PlanCheckpoint(sequence, end, coverage, piece_bytes, &pieces);
  }
  return pieces;
}

// Adds those of the window rows that a restore to `end` needs which lie in `within` and no park
// has: to the last piece, and in pieces without tokens what does not fit into it.
void CacheImpl::PlanWindowRows(EngineSequence& sequence, std::uint32_t end, TokenRange within,
                               const Coverage& coverage, std::uint64_t piece_bytes,
                               std::vector<CapturePiece>* pieces) {
  const StateLayout& layout = sequence.layout();
  const StageMap& stages = sequence.stages();
  std::uint64_t row_bytes = 0;
  for (const Stage& stage : stages.stages) {
    row_bytes += GroupRowBytes(layout, stage, RowGroup::kWindow);
  }
  const std::uint32_t live = sequence.WindowBegin();
  if (row_bytes == 0 || live > WindowNeedBegin(end, layout.window_tokens)) return;
  std::uint32_t keep = end;
  for (std::uint32_t i = 0; i < kWindowsKept; ++i) {
    keep = WindowNeedBegin(keep, layout.window_tokens);
  }
  const std::uint32_t from = std::max({live, keep, within.begin});
  for (const TokenRange& range : Uncovered(coverage.window_rows, TokenRange{from, within.end})) {
    TokenRange part{range.begin, range.begin};
    for (; part.begin < range.end; part.begin = part.end) {
      // All stages of a row go into one park: its list of window rows speaks for every layer.
      const std::uint64_t used = pieces->empty() ? piece_bytes : pieces->back().bytes;
      std::uint64_t rows = (piece_bytes - std::min(piece_bytes, used)) / row_bytes;
      if (rows == 0) {
        pieces->push_back(CapturePiece{TokenRange{within.end, within.end}, {}, {}, {}, 0});
        rows = std::max<std::uint64_t>(1, piece_bytes / row_bytes);
      }
      part.end = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(range.end, std::uint64_t{part.begin} + rows));
      CapturePiece& piece = pieces->back();
      const auto cut = CutIntoExtents(layout, stages, RowGroup::kWindow, part);
      piece.extents.insert(piece.extents.end(), cut.begin(), cut.end());
      piece.bytes += PayloadBytes(cut);
      AddRange(&piece.window_rows, part);
    }
  }
}

// Adds the recurrent state at `end`, in parks of its own, so that it can go alone when it is
// superseded. One that is larger than a park is spread over several, of which the last alone is
// marked: nobody looks for a state of which only a part was captured.
void CacheImpl::PlanCheckpoint(EngineSequence& sequence, std::uint32_t end,
                               const Coverage& coverage, std::uint64_t piece_bytes,
                               std::vector<CapturePiece>* pieces) {
  if (!coverage.checkpoints.empty() && coverage.checkpoints.back() == end) return;
  const auto state = CutIntoExtents(sequence.layout(), sequence.stages(), RowGroup::kState,
                                    TokenRange{end, end + 1});
  const std::size_t before = pieces->size();
  for (const ExtentInfo& extent : state) {
    if (pieces->size() == before || pieces->back().bytes + extent.raw_bytes > piece_bytes) {
      pieces->push_back(CapturePiece{TokenRange{end, end}, {}, {}, {}, 0});
    }
    pieces->back().extents.push_back(extent);
    pieces->back().bytes += extent.raw_bytes;
  }
  if (!state.empty()) pieces->back().checkpoints.push_back(end);
}

absl::Status CacheImpl::CapturePieceNow(EngineSequence& sequence, const CapturePiece& piece,
                                        std::vector<ExtentBytes>* payload) {
  payload->reserve(piece.extents.size());
  absl::Status status;
  for (const ExtentInfo& extent : piece.extents) {
    std::shared_ptr<ExtentBuffer> buffer = capture_pool_->TryAllocate(extent.raw_bytes);
    if (buffer == nullptr) {
      status = absl::ResourceExhaustedError("capture buffers are full");
      break;
    }
    const absl::Status exported = sequence.Export(extent, buffer->data());
    payload->push_back(std::move(buffer));
    if (exported.ok()) continue;
    status = absl::InternalError(exported.message());
    break;
  }
  // Also after a failure: what was begun is still being written to.
  const absl::Status copied = sequence.FinishExports();
  if (status.ok() && !copied.ok()) status = absl::InternalError(copied.message());
  return status;
}

ParkOutcome CacheImpl::Park(EngineSequence& sequence, const ParkRequest& request) {
  const std::uint32_t end = static_cast<std::uint32_t>(request.tokens.size());
  ParkOutcome outcome;
  if (end < options_.min_tokens && !request.always) {
    sink_->OnSkippedPark(SkipReason::kTooShort, end);
    return outcome;
  }
  if (ram_tier_ < 0 && durable_tier_ < 0) return outcome;
  const std::vector<std::uint64_t> hashes = PageHashes(request.identity, request.tokens);
  ParkSpot spot;
  Coverage coverage;
  {
    absl::MutexLock lock(&mu_);
    if (!UseIdentity(request.identity)) return outcome;
    const bool deleted =
        std::find(deleted_.begin(), deleted_.end(), request.conversation) != deleted_.end();
    if (deleted && !request.always) return outcome;
    spot = LocateForPark(request.tokens, hashes);
    if (spot.conversation != kNoHandle) {
      coverage = catalogue_.CoverageOf(spot.conversation, spot.matched);
      Touch(spot.conversation, false);
    }
    outcome.captured_tokens = spot.matched;
    outcome.conversation = spot.id;
    const bool rows_new = spot.matched < end;
    const StateLayout& layout = sequence.layout();
    const bool extra_new =
        request.boundary && !layout.rows_alone() && UsableBoundary(layout, coverage, end) != end;
    if (!rows_new && !extra_new) return outcome;
  }
  outcome.complete = QueueHasRoom();
  if (!outcome.complete) return outcome;
  const absl::Status held = sequence.BeginCapture(end);
  if (!held.ok()) {
    sink_->OnSkippedPark(SkipReason::kUnsupported, end - spot.matched);
    sink_->Log(LogLevel::kInfo, "not parked: " + std::string(Text(held)));
    return outcome;
  }
  for (const CapturePiece& piece : PlanCapture(sequence, request, spot.matched, coverage)) {
    const absl::Time begin = absl::Now();
    outcome.complete = QueueHasRoom();
    if (!outcome.complete) break;
    std::vector<ExtentBytes> payload;
    const absl::Status captured = CapturePieceNow(sequence, piece, &payload);
    if (!captured.ok() && !absl::IsResourceExhausted(captured)) {
      // The engine can't give these rows; asking again would not help.
      sink_->OnSkippedPark(SkipReason::kUnsupported, end - piece.tokens.begin);
      sink_->Log(LogLevel::kWarning, "capture failed: " + std::string(Text(captured)));
      break;
    }
    outcome.complete = captured.ok() && Enqueue(request, hashes, sequence.stages(), piece,
                                                std::move(payload), &spot, begin);
    if (!outcome.complete) break;
    outcome.captured_tokens = piece.tokens.end;
    outcome.conversation = spot.id;
  }
  sequence.EndCapture();
  return outcome;
}

// The record of a captured piece as a park of its own; key and parent are filled when it is queued.
std::shared_ptr<ParkRecord> CacheImpl::MakeParkRecord(const ParkRequest& request,
                                                      const std::vector<std::uint64_t>& hashes,
                                                      const StageMap& stages,
                                                      const CapturePiece& piece) {
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
  if (!piece.tokens.empty()) {
    record->tokens.assign(request.tokens.begin() + piece.tokens.begin,
                          request.tokens.begin() + piece.tokens.end);
  }
  record->extents = piece.extents;
  return record;
}

// The conversation's last park but for checkpoints, if no writer has begun it and the piece goes on
// where it ends.
ParkState* CacheImpl::GrowablePark(Conversation* conversation, const ParkRecord& piece) {
  if (IsCheckpoint(piece)) return nullptr;
  auto place = std::find_if_not(conversation->parks.rbegin(), conversation->parks.rend(),
                                [](const ParkState& park) { return park.IsCheckpoint(); });
  if (place == conversation->parks.rend()) return nullptr;
  ParkState& last = *place;
  if (last.pending == nullptr || last.pending->begun || last.end() != piece.summary.first_token) {
    return nullptr;
  }
  // Window rows that belong to a position of the path stay there when the tokens after it go.
  if (last.count == 0 && piece.summary.token_count > 0) return nullptr;
  const std::size_t extents = last.pending->record->extents.size() + piece.extents.size();
  if (last.bytes + piece.summary.payload_bytes > kParkBytes || extents > kMostGrownExtents ||
      !(*last.stages == piece.summary.stages)) {
    return nullptr;
  }
  return &last;
}

// The queued park takes the piece over. Plans made before keep the record and bytes they have: a
// grown record is another one, and extents keep their numbers.
void CacheImpl::GrowPending(Handle handle, ParkState* park, const ParkRecord& piece,
                            std::vector<ExtentBytes> payload) {
  PendingPark& pending = *park->pending;
  auto grown = std::make_shared<ParkRecord>(*pending.record);
  grown->tokens.insert(grown->tokens.end(), piece.tokens.begin(), piece.tokens.end());
  grown->extents.insert(grown->extents.end(), piece.extents.begin(), piece.extents.end());
  grown->summary = catalogue_.GrowPark(handle, park, grown->summary, piece.summary);
  pending.payload.insert(pending.payload.end(), std::make_move_iterator(payload.begin()),
                         std::make_move_iterator(payload.end()));
  pending.record = std::move(grown);
}

// Adds the captured piece to the spot's conversation, at its tip, to a fork where it leaves
// earlier, or to a new one: to its last park where that still waits, else as a park of its own.
// From the return on it can be looked up.
bool CacheImpl::Enqueue(const ParkRequest& request, const std::vector<std::uint64_t>& hashes,
                        const StageMap& stages, const CapturePiece& piece,
                        std::vector<ExtentBytes> payload, ParkSpot* spot, absl::Time begin) {
  const std::shared_ptr<ParkRecord> record = MakeParkRecord(request, hashes, stages, piece);
  ParkSummary& summary = record->summary;
  ParkEvent event;
  {
    absl::MutexLock lock(&mu_);
    // Dropped while the piece was captured?
    if (!identities_.contains(request.identity)) return false;
    if (!ChooseTarget(request.identity, piece.tokens, summary.created_unix_ms, spot)) return false;
    Conversation* conversation = catalogue_.Get(spot->conversation);
    ParkState* park = GrowablePark(conversation, *record);
    if (park != nullptr) {
      GrowPending(spot->conversation, park, *record, std::move(payload));
    } else {
      summary.key = ParkKey{conversation->id, conversation->next_park};
      if (conversation->parent != kNoHandle) {
        summary.parent = catalogue_.Get(conversation->parent)->id;
        summary.parent_tokens = conversation->parent_tokens;
      }
      auto pending = std::make_shared<PendingPark>();
      pending->conversation = spot->conversation;
      pending->record = record;
      pending->payload = std::move(payload);
      park = catalogue_.AddPark(spot->conversation, summary, 0);
      catalogue_.SetPending(spot->conversation, park, pending);
      ++pending_parks_;
      (ram_tier_ >= 0 ? seal_queue_ : spill_queue_).push_back(std::move(pending));
    }
    Touch(spot->conversation, false);
    pending_bytes_ += piece.bytes;
    const std::shared_ptr<const ParkRecord>& queued = park->pending->record;
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    event = ParkEvent{queued->summary.key, piece.tokens.size(), piece.bytes, seconds};
    if (!piece.tokens.empty()) spot->last = event.key;
    // Under the lock, so that a Forget that follows finds them.
    tokens_.Insert(event.key, SharedTokens(queued, &queued->tokens));
  }
  sink_->OnPark(event);
  return true;
}

// Makes *spot the conversation that the piece is added to. False: since it was located, what the
// piece stands on was forgotten or evicted, or is not found any more.
bool CacheImpl::ChooseTarget(const Digest128& identity, TokenRange piece, std::int64_t now_unix_ms,
                             ParkSpot* spot) {
  Conversation* conversation = nullptr;
  if (spot->conversation != kNoHandle) {
    conversation = catalogue_.Get(spot->conversation);
    if (conversation == nullptr || !(conversation->id == spot->id) ||
        conversation->tip() < piece.begin || !conversation->indexed) {
      return false;
    }
    if (spot->last.has_value()) {
      const Handle owner = catalogue_.FindId(spot->last->conversation);
      if (owner == kNoHandle || catalogue_.Get(owner)->FindPark(spot->last->park) == nullptr) {
        return false;
      }
    }
    // Window rows and state belong to their position, wherever the conversation ends.
    const bool append = piece.begin == conversation->tip() || piece.empty();
    if (append && !conversation->forgotten) return true;
  }
  spot->id = RandomDigest();
  spot->conversation =
      catalogue_.Create(spot->id, identity, spot->conversation, piece.begin, now_unix_ms);
  return true;
}

}  // namespace parkade
