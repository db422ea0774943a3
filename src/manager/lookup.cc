// From a prompt to a plan: longest match, deepest usable position, fastest place of every part.

#include <algorithm>
#include <utility>

#include "src/format/page_hash.h"
#include "src/format/row_cut.h"
#include "src/manager/cache_impl.h"
#include "src/manager/completeness.h"
#include "src/manager/restore_handle.h"

namespace parkade {
namespace {

// How many forks are compared past the last full page.
constexpr std::size_t kContinuations = 16;
// A plan is made again this often when a part of it turns out to be gone.
constexpr int kPlanAttempts = 4;
// How many tokens after the match are read, so that they are in memory when the answer is parked.
constexpr std::uint32_t kFollowingTokens = 4096;

std::uint32_t CommonPrefix(const Token* a, const Token* b, std::uint32_t count) {
  std::uint32_t i = 0;
  while (i < count && a[i] == b[i]) ++i;
  return i;
}

}  // namespace

std::vector<std::uint64_t> CacheImpl::PageHashes(const Digest128& identity,
                                                 absl::Span<const Token> tokens) const {
  std::vector<std::uint64_t> hashes(tokens.size() / kPageTokens);
  PageHasher hasher(secret_, identity, options_.page_hash_key);
  for (std::size_t page = 0; page < hashes.size(); ++page) {
    hashes[page] = hasher.Next(tokens.data() + page * kPageTokens);
  }
  return hashes;
}

std::unique_ptr<Restore> CacheImpl::Lookup(LookupRequest request) {
  auto op = std::make_shared<RestoreOp>();
  op->request = std::move(request);
  op->started = absl::Now();
  const LookupRequest& asked = op->request;
  bool candidate = false;
  if (asked.enabled) {
    op->hashes = PageHashes(
        asked.identity,
        absl::MakeConstSpan(asked.tokens)
            .subspan(0, std::min<std::size_t>(asked.cacheable_tokens, asked.tokens.size())));
    const bool may_ask = MayAskShared(op.get(), 0);
    absl::MutexLock lock(&mu_);
    if (UseIdentity(asked.identity)) {
      op->layout = identities_[asked.identity].layout;
      candidate = asked.session.IsZero() ? may_ask || catalogue_.MatchPages(op->hashes).pages > 0
                                         : catalogue_.FindId(asked.session) != kNoHandle;
    }
  }
  if (candidate) {
    SubmitPlan(op);
  } else {
    op->lookup_seconds = absl::ToDoubleSeconds(absl::Now() - op->started);
    op->SetState(Restore::State::kMiss);
  }
  return std::make_unique<RestoreHandle>(this, std::move(op));
}

void CacheImpl::Prefetch(const Digest128& identity, absl::Span<const Token> tokens) {
  const std::vector<std::uint64_t> hashes = PageHashes(identity, tokens);
  std::vector<std::pair<std::size_t, ParkKey>> wanted;
  {
    absl::MutexLock lock(&mu_);
    const Catalogue::PageMatch match = catalogue_.MatchPages(hashes);
    if (match.pages == 0) return;
    const std::uint32_t limit = match.pages * kPageTokens;
    for (const PathPark& step : catalogue_.Path(match.conversation, limit)) {
      const ParkState* park = catalogue_.Get(step.conversation)->FindPark(step.key.park);
      if (park->pending != nullptr) continue;
      for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
        if ((park->tiers & Bit(tier)) == 0) continue;
        if (static_cast<int>(tier) != ram_tier_) wanted.emplace_back(tier, step.key);
        break;
      }
    }
  }
  if (wanted.empty()) return;
  absl::MutexLock lock(&reader_mu_);
  to_warm_.push_back(std::move(wanted));
}

SharedTokens CacheImpl::TokensOf(const ParkKey& key, std::uint32_t count, std::uint8_t tiers) {
  SharedTokens tokens = tokens_.Find(key);
  if (tokens != nullptr) return tokens;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    if ((tiers & Bit(tier)) == 0) continue;
    absl::StatusOr<std::vector<Token>> read = tiers_[tier]->ReadTokens(key);
    absl::Status status = read.status();
    if (read.ok() && read->size() != count) status = absl::DataLossError("wrong number of tokens");
    if (!status.ok()) {
      GiveUpCopy(tier, key, status);
      continue;
    }
    tokens = std::make_shared<const std::vector<Token>>(*std::move(read));
    tokens_.Insert(key, tokens);
    return tokens;
  }
  return nullptr;
}

CacheImpl::TokenSource CacheImpl::TokenSourceOf(const PathPark& step) const {
  const ParkState* park = catalogue_.Get(step.conversation)->FindPark(step.key.park);
  TokenSource source{step, park->count, park->tiers, nullptr};
  if (park->pending != nullptr) {
    source.queued = SharedTokens(park->pending->record, &park->pending->record->tokens);
  }
  return source;
}

std::vector<CacheImpl::MatchCandidate> CacheImpl::GatherCandidates(RestoreOp* op) {
  std::vector<MatchCandidate> candidates;
  const ConversationId& session = op->request.session;
  absl::MutexLock lock(&mu_);
  std::vector<Handle> handles;
  std::uint32_t position = 0;
  if (session.IsZero()) {
    const Catalogue::PageMatch pages = catalogue_.MatchPages(op->hashes);
    op->match.pages = pages.pages;
    if (pages.pages == 0) return candidates;
    position = pages.pages * kPageTokens;
    handles = catalogue_.Continuations(pages.conversation, position, kContinuations);
  } else if (const Handle handle = catalogue_.FindId(session); handle != kNoHandle) {
    handles.push_back(handle);
  }
  for (Handle handle : handles) {
    MatchCandidate candidate;
    candidate.conversation = handle;
    const std::uint32_t tip = catalogue_.Get(handle)->tip();
    const std::uint32_t limit = session.IsZero() ? std::min(tip, position + kPageTokens) : tip;
    for (const PathPark& step : catalogue_.Path(handle, limit)) {
      candidate.path.push_back(step.key);
      // The first candidate is compared from the start, the others share that.
      if (!candidates.empty() && step.tokens.end <= position) continue;
      candidate.sources.push_back(TokenSourceOf(step));
    }
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// How far the prompt goes on like the candidate, from `matched` on. *differs: it does not end with
// the candidate, nor with the prompt; *stored_next: what the candidate has there instead.
std::uint32_t CacheImpl::CompareTokens(RestoreOp* op, const MatchCandidate& candidate,
                                       std::uint32_t matched, bool* differs,
                                       std::vector<Token>* stored_next) {
  const std::vector<Token>& prompt = op->request.tokens;
  const std::uint32_t limit = std::min<std::uint32_t>(op->request.cacheable_tokens, prompt.size());
  *differs = false;
  stored_next->clear();
  for (const TokenSource& source : candidate.sources) {
    const TokenRange range = source.step.tokens;
    const std::uint32_t from = std::max(range.begin, matched);
    if (from >= limit) break;
    SharedTokens tokens = source.queued != nullptr
                              ? source.queued
                              : TokensOf(source.step.key, source.count, source.tiers);
    *differs = true;
    if (tokens == nullptr || tokens->size() < range.size()) {
      op->match.lost_match = std::max(op->match.lost_match, op->match.pages * kPageTokens);
      op->match.shortfall = MissReason::kCorrupt;
      op->match.detail = "the tokens of a park can't be read";
      break;
    }
    // Tokens that nobody compared must not count as equal.
    if (range.begin > matched) break;
    const std::uint32_t count = std::min(range.end, limit) - from;
    const std::uint32_t same =
        CommonPrefix(tokens->data() + (from - range.begin), prompt.data() + from, count);
    matched = from + same;
    *differs = same < count;
    if (!*differs) continue;
    const auto next = tokens->begin() + (matched - range.begin);
    stored_next->assign(next,
                        next + std::min<std::ptrdiff_t>(tokens->end() - next, kExplainTokens));
    break;
  }
  return matched;
}

// Sets op->match. False: nothing matches.
bool CacheImpl::FindBestMatch(RestoreOp* op) {
  op->match.conversation = kNoHandle;
  op->match.matched = 0;
  op->match.usable = 0;
  std::vector<MatchCandidate> candidates = GatherCandidates(op);
  const std::uint32_t position = op->match.pages * kPageTokens;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    bool differs = false;
    std::vector<Token> stored_next;
    const std::uint32_t matched =
        CompareTokens(op, candidates[i], i == 0 ? 0 : position, &differs, &stored_next);
    if (matched > op->match.matched || op->match.conversation == kNoHandle) {
      op->match.matched = matched;
      op->match.conversation = candidates[i].conversation;
      op->match.path = std::move(candidates[i].path);
      op->match.at_tip = !differs;
      op->match.stored_next = std::move(stored_next);
    }
    if (i == 0 && matched < position) break;  // the index and the tokens disagree
  }
  return op->match.matched > 0;
}

// Chooses the usable boundary and the place of every park below it, and pins those parks.
CacheImpl::Choice CacheImpl::ChooseSources(RestoreOp* op) {
  absl::MutexLock lock(&mu_);
  const Conversation* leaf = catalogue_.Get(op->match.conversation);
  if (leaf == nullptr || !(leaf->identity == op->request.identity)) return Choice::kChanged;
  // Cut, forgotten or another conversation since its tokens were compared?
  const std::vector<PathPark> path = catalogue_.Path(op->match.conversation, op->match.matched);
  const bool same = path.size() <= op->match.path.size() && !path.empty() &&
                    path.back().tokens.end == op->match.matched &&
                    std::equal(path.begin(), path.end(), op->match.path.begin(),
                               [](const PathPark& a, const ParkKey& b) { return a.key == b; });
  const Handle visible = catalogue_.Visible(op->match.conversation, op->match.matched);
  if (!same || visible == kNoHandle) return Choice::kChanged;
  op->match.id = catalogue_.Get(visible)->id;
  const std::uint32_t prompt_tokens = static_cast<std::uint32_t>(op->request.tokens.size());
  const std::vector<TokenRange>& whole = op->request.whole_ranges;
  const std::uint32_t limit =
      OutsideOf(whole, std::min({op->match.matched, prompt_tokens - 1, op->most_tokens}));
  if (!PlanUpTo(op, limit)) return Choice::kNotWorth;
  const std::uint32_t worth = WorthUpTo(op);
  if (worth == op->plan.boundary) return Choice::kGo;
  const std::uint32_t usable = op->match.usable;
  for (const PlannedPark& park : op->plan.parks) catalogue_.Pin(park.conversation, park.key, -1);
  op->plan.parks.clear();
  const bool planned = worth > 0 && PlanUpTo(op, OutsideOf(whole, worth));
  op->match.usable = usable;
  return planned ? Choice::kGo : Choice::kNotWorth;
}

// False: nothing up to there is worth a restore, whatever it costs.
bool CacheImpl::PlanUpTo(RestoreOp* op, std::uint32_t limit) {
  const std::vector<TokenRange>& whole = op->request.whole_ranges;
  const Coverage coverage = catalogue_.CoverageOf(op->match.conversation, limit);
  RestorePlan& plan = op->plan;
  plan = RestorePlan();
  plan.boundary = UsableBoundary(op->layout, coverage, limit);
  while (OutsideOf(whole, plan.boundary) != plan.boundary) {
    plan.boundary = UsableBoundary(op->layout, coverage, OutsideOf(whole, plan.boundary));
  }
  op->match.usable = plan.boundary;
  const std::uint64_t least = op->request.session.IsZero() ? options_.min_gain_tokens : 1;
  if (plan.boundary == 0 || plan.boundary < op->request.held_tokens + least) return false;
  const bool window = op->layout.has_group(RowGroup::kWindow);
  plan.window_begin =
      window ? WindowNeedBegin(plan.boundary, op->layout.window_tokens) : plan.boundary;
  PlanParks(op);
  return true;
}

void CacheImpl::PlanParks(RestoreOp* op) {
  RestorePlan& plan = op->plan;
  const bool window = op->layout.has_group(RowGroup::kWindow);
  Handle handle = op->match.conversation;
  std::uint32_t reach = plan.boundary;
  while (handle != kNoHandle) {
    Conversation* conversation = catalogue_.Get(handle);
    for (auto it = conversation->parks.rbegin(); it != conversation->parks.rend(); ++it) {
      ParkState& park = *it;
      const TokenRange tokens{park.first, std::min(park.end(), reach)};
      bool needed = !tokens.empty();
      for (const TokenRange& rows : park.window_rows) {
        needed = needed || (window && rows.end > plan.window_begin && rows.begin < reach);
      }
      // Valid in every continuation that shares the tokens before it. A state too large for one
      // park stands in several, of which only the last is marked.
      const bool at_boundary = reach == plan.boundary;
      for (std::uint32_t at : park.checkpoints) {
        needed = needed || (at_boundary && at == plan.boundary);
      }
      needed = needed || (at_boundary && park.count == 0 && park.first == plan.boundary);
      if (!needed) continue;
      PlannedPark planned;
      planned.conversation = handle;
      planned.key = ParkKey{conversation->id, park.park};
      planned.tokens = tokens.empty() ? TokenRange{} : tokens;
      planned.valid_end = reach;
      planned.stages = park.stages;
      planned.bytes = park.bytes;
      planned.own_tokens = park.count;
      if (park.pending != nullptr) {
        planned.queued = park.pending->record;
        planned.queued_payload = park.pending->payload;
      } else {
        for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
          if ((park.tiers & Bit(tier)) == 0) continue;
          planned.tier = static_cast<int>(tier);
          planned.source = SourceOf(tiers_[tier]->kind());
          break;
        }
      }
      ++park.pins;
      plan.parks.push_back(std::move(planned));
    }
    reach = std::min(reach, conversation->parent_tokens);
    handle = conversation->parent;
  }
  std::reverse(plan.parks.begin(), plan.parks.end());
}

void CacheImpl::Unpin(RestoreOp* op) {
  absl::MutexLock lock(&mu_);
  for (const PlannedPark& park : op->plan.parks) {
    catalogue_.Pin(park.conversation, park.key, -1);
  }
  op->plan.parks.clear();
}

// Reads one planned park's extents and checks that they are all there.
absl::StatusOr<std::vector<ExtentInfo>> CacheImpl::ExtentsOf(const RestoreOp& op,
                                                             const PlannedPark& park) {
  std::vector<ExtentInfo> infos;
  if (park.tier == kFromQueue) {
    infos = park.queued->extents;
  } else {
    // The slot's own rows must not go for what can't come.
    if (IsShared(park.tier) && !Shared()->reachable()) {
      return absl::UnavailableError("the remote tier can't be reached");
    }
    absl::StatusOr<std::vector<ExtentInfo>> read = tiers_[park.tier]->ReadExtents(park.key);
    if (!read.ok()) return read.status();
    infos = *std::move(read);
  }
  std::uint64_t bytes = 0;
  for (const ExtentInfo& info : infos) {
    if (info.stage >= park.stages->stages.size()) {
      return absl::DataLossError("an extent does not fit the stages");
    }
    const Stage& stage = park.stages->stages[info.stage];
    // Rows of another draft are nobody's business here.
    const bool foreign = IsDraft(stage) && !op.WantsDraft(stage);
    if (!foreign && SlicesOf(op.LayoutOf(stage), stage, info).empty()) {
      return absl::DataLossError("an extent does not fit the layout");
    }
    bytes += info.raw_bytes;
  }
  if (bytes != park.bytes) return absl::DataLossError("a park lacks extents");
  return infos;
}

// Lists the extents of every planned park and checks that each one is there and that every layer
// has all rows. *failed_park: the park to give up, index in the plan.
absl::Status CacheImpl::CollectExtents(RestoreOp* op, std::uint32_t* failed_park) {
  RestorePlan& plan = op->plan;
  Completeness full(op->layout, RowGroup::kFull);
  Completeness window(op->layout, RowGroup::kWindow);
  Completeness state(op->layout, RowGroup::kState);
  Completeness draft(op->request.draft_layout, RowGroup::kFull);
  std::vector<PlannedExtent> draft_extents;
  for (std::uint32_t i = 0; i < plan.parks.size(); ++i) {
    const PlannedPark& park = plan.parks[i];
    *failed_park = i;
    const absl::StatusOr<std::vector<ExtentInfo>> infos = ExtentsOf(*op, park);
    if (!infos.ok()) return infos.status();
    for (std::uint32_t ordinal = 0; ordinal < infos->size(); ++ordinal) {
      const ExtentInfo& info = (*infos)[ordinal];
      const Stage& stage = park.stages->stages[info.stage];
      const bool of_draft = IsDraft(stage);
      if (of_draft && (info.group != RowGroup::kFull || !op->WantsDraft(stage))) continue;
      if (info.group == RowGroup::kState) {
        if (info.first != plan.boundary || plan.boundary > park.valid_end) continue;
        state.Add(park.stages, info);
        plan.extents.push_back(PlannedExtent{i, ordinal, info, info.rows});
      } else {
        const bool full_rows = info.group == RowGroup::kFull;
        const std::uint32_t begin = full_rows ? park.tokens.begin : plan.window_begin;
        const std::uint32_t end = full_rows ? park.tokens.end : park.valid_end;
        if (info.first >= end || info.first + info.rows <= begin) continue;
        const std::uint32_t rows = std::min(info.rows, end - info.first);
        (of_draft ? draft : full_rows ? full : window).Add(park.stages, FirstRows(info, rows));
        // The engine itself leaves out what is beyond the boundary; beyond the position where a
        // fork leaves, the rows are another continuation's and must not be seen.
        const bool cut = park.valid_end < plan.boundary;
        (of_draft ? draft_extents : plan.extents)
            .push_back(PlannedExtent{i, ordinal, info, cut ? rows : info.rows});
      }
      if (!of_draft) plan.bytes += info.raw_bytes;
    }
  }
  if (!full.Covers({0, plan.boundary}) ||
      (op->layout.has_group(RowGroup::kWindow) &&
       !window.Covers({plan.window_begin, plan.boundary})) ||
      (op->layout.has_group(RowGroup::kState) &&
       !state.Covers({plan.boundary, plan.boundary + 1}))) {
    return absl::DataLossError("a layer lacks rows");
  }
  // Full rows first and in order, so that a failure keeps the longest prefix.
  std::stable_sort(plan.extents.begin(), plan.extents.end(),
                   [](const PlannedExtent& a, const PlannedExtent& b) {
                     if (a.info.group != b.info.group) return a.info.group < b.info.group;
                     return a.info.first < b.info.first;
                   });
  plan.draft_begin = static_cast<std::uint32_t>(plan.extents.size());
  if (draft_extents.empty() || !draft.Covers({0, plan.boundary})) return absl::OkStatus();
  for (const PlannedExtent& extent : draft_extents) plan.bytes += extent.info.raw_bytes;
  plan.extents.insert(plan.extents.end(), draft_extents.begin(), draft_extents.end());
  return absl::OkStatus();
}

void CacheImpl::StartReading(const std::shared_ptr<RestoreOp>& op) {
  op->lookup_seconds = absl::ToDoubleSeconds(absl::Now() - op->started);
  op->done.assign(op->plan.extents.size(), false);
  op->far = std::any_of(op->plan.parks.begin(), op->plan.parks.end(), [this](const auto& park) {
    return park.tier != kFromQueue && park.tier == shared_tier_;
  });
  PreparePromotions(op.get());
  {
    absl::MutexLock lock(&op->mu);
    // Abandoned before this line: nobody will read `ready`; the reader loop unpins.
    op->read_limit = op->cancelled ? 0 : static_cast<std::uint32_t>(op->plan.extents.size());
    op->progress = absl::Now();
    op->state = Restore::State::kReading;
  }
  SubmitReads(op);
}

// A planned park turned out to be damaged or gone. True: a new plan may do without it.
bool CacheImpl::GiveUpPark(RestoreOp* op, std::uint32_t index, const absl::Status& status) {
  const PlannedPark park = op->plan.parks[index];
  op->match.shortfall = absl::IsDataLoss(status) ? MissReason::kCorrupt
                        : IsShared(park.tier)    ? MissReason::kRemote
                                                 : MissReason::kIncomplete;
  op->match.detail = std::string(Text(status));
  op->match.lost_match = std::max(op->match.lost_match, op->match.matched);
  op->match.failed_tier = park.source;
  const std::uint32_t boundary = op->plan.boundary;
  Unpin(op);
  if (park.tier == kFromQueue) return false;
  if (GiveUpCopy(static_cast<std::size_t>(park.tier), park.key, status)) return true;
  // What lies before it may be nearer.
  if (!IsShared(park.tier)) return false;
  op->most_tokens = park.tokens.empty() ? boundary - 1 : park.tokens.begin;
  return op->most_tokens > 0;
}

// An answer that is given again is recognised past its last full page only if its tokens are in
// memory then: the park path reads nothing.
void CacheImpl::ReadFollowingTokens(Handle conversation, std::uint32_t matched) {
  std::vector<TokenSource> sources;
  {
    absl::MutexLock lock(&mu_);
    const Conversation* found = catalogue_.Get(conversation);
    if (found == nullptr) return;
    const std::uint32_t limit = std::min(found->tip(), matched + kFollowingTokens);
    for (const PathPark& step : catalogue_.Path(conversation, limit)) {
      if (step.tokens.end > matched) sources.push_back(TokenSourceOf(step));
    }
  }
  for (const TokenSource& source : sources) {
    if (source.queued == nullptr) (void)TokensOf(source.step.key, source.count, source.tiers);
  }
}

void CacheImpl::MakePlan(const std::shared_ptr<RestoreOp>& op) {
  if (!op->may_wait && !FarParks(*op).empty()) return SubmitFind(op);
  for (int attempt = 0; attempt < kPlanAttempts && !op->cancelled; ++attempt) {
    const bool matches = FindBestMatch(op.get());
    if (!op->may_wait && MayAskShared(op.get(), op->match.matched)) return SubmitFind(op);
    if (!matches) break;
    const Choice choice = ChooseSources(op.get());
    if (choice == Choice::kChanged) continue;
    if (choice == Choice::kNotWorth) break;
    std::uint32_t failed = 0;
    const absl::Status status = CollectExtents(op.get(), &failed);
    if (status.ok()) {
      const Handle conversation = op->match.conversation;
      const std::uint32_t matched = op->match.matched;
      StartReading(op);
      return ReadFollowingTokens(conversation, matched);
    }
    if (!GiveUpPark(op.get(), failed, status)) break;
  }
  Unpin(op.get());
  const Handle conversation = op->match.conversation;
  const std::uint32_t matched = op->match.matched;
  op->lookup_seconds = absl::ToDoubleSeconds(absl::Now() - op->started);
  op->SetState(Restore::State::kMiss);
  if (matched > 0) ReadFollowingTokens(conversation, matched);
}

}  // namespace parkade
