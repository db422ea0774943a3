// From a prompt to a plan: longest match, deepest usable position, fastest place of every part.

#include <algorithm>
#include <utility>

#include "src/format/checksum.h"
#include "src/manager/cache_impl.h"
#include "src/manager/completeness.h"
#include "src/manager/restore_handle.h"

namespace parkade {
namespace {

// How many forks are compared past the last full page.
constexpr std::size_t kContinuations = 16;
// A plan is made again this often when a part of it turns out to be gone.
constexpr int kPlanAttempts = 4;

struct TokenSource {
  PathPark step;
  std::uint8_t tiers = 0;
  SharedTokens queued;
};

std::uint32_t CommonPrefix(const Token* a, const Token* b, std::uint32_t count) {
  std::uint32_t i = 0;
  while (i < count && a[i] == b[i]) ++i;
  return i;
}

}  // namespace

std::vector<std::uint64_t> CacheImpl::PageHashes(const Digest128& identity,
                                                 absl::Span<const Token> tokens) const {
  std::vector<std::uint64_t> hashes(tokens.size() / kPageTokens);
  std::uint64_t previous = ChainSeed(secret_, identity);
  for (std::size_t page = 0; page < hashes.size(); ++page) {
    previous = ChainHash(previous, tokens.data() + page * kPageTokens);
    hashes[page] = previous;
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
    absl::MutexLock lock(&mu_);
    auto known = identities_.find(asked.identity);
    if (known != identities_.end()) {
      op->layout = known->second.layout;
      candidate = catalogue_.MatchPages(op->hashes).pages > 0;
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

SharedTokens CacheImpl::TokensOf(const ParkKey& key, std::uint8_t tiers) {
  SharedTokens tokens = tokens_.Find(key);
  if (tokens != nullptr) return tokens;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    if ((tiers & Bit(tier)) == 0) continue;
    absl::StatusOr<std::vector<Token>> read = tiers_[tier]->ReadTokens(key);
    if (!read.ok()) {
      if (absl::IsDataLoss(read.status())) sink_->OnCorrupt(tiers_[tier]->kind());
      sink_->Log(LogLevel::kWarning, Text(read.status()));
      continue;
    }
    tokens = std::make_shared<const std::vector<Token>>(*std::move(read));
    tokens_.Insert(key, tokens);
    return tokens;
  }
  return nullptr;
}

// Sets op->match. False: nothing matches.
bool CacheImpl::FindBestMatch(RestoreOp* op) {
  std::vector<std::pair<Handle, std::vector<TokenSource>>> candidates;
  std::uint32_t position = 0;
  {
    absl::MutexLock lock(&mu_);
    const Catalogue::PageMatch pages = catalogue_.MatchPages(op->hashes);
    if (pages.pages == 0) return false;
    position = pages.pages * kPageTokens;
    op->match.pages = pages.pages;
    for (Handle handle : catalogue_.Continuations(pages.conversation, position, kContinuations)) {
      const Conversation* conversation = catalogue_.Get(handle);
      const std::uint32_t limit = std::min(conversation->tip(), position + kPageTokens);
      std::vector<TokenSource> sources;
      for (const PathPark& step : catalogue_.Path(handle, limit)) {
        // The first candidate is compared from the start, the others share that.
        if (!candidates.empty() && step.tokens.end <= position) continue;
        const ParkState* park = catalogue_.Get(step.conversation)->FindPark(step.key.park);
        TokenSource source{step, park->tiers, nullptr};
        if (park->pending != nullptr) {
          source.queued = SharedTokens(park->pending->record, &park->pending->record->tokens);
        }
        sources.push_back(std::move(source));
      }
      candidates.emplace_back(handle, std::move(sources));
    }
  }
  const std::vector<Token>& prompt = op->request.tokens;
  const std::uint32_t limit = std::min<std::uint32_t>(op->request.cacheable_tokens, prompt.size());
  op->match.matched = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    std::uint32_t matched = i == 0 ? 0 : position;
    bool differs = false;
    for (const TokenSource& source : candidates[i].second) {
      SharedTokens tokens =
          source.queued != nullptr ? source.queued : TokensOf(source.step.key, source.tiers);
      const TokenRange range = source.step.tokens;
      const std::uint32_t from = std::max(range.begin, matched);
      if (from >= limit || differs) break;
      if (tokens == nullptr || tokens->size() < range.size()) {
        differs = true;  // can't be compared: ends the match here
        break;
      }
      const std::uint32_t count = std::min(range.end, limit) - from;
      const std::uint32_t same =
          CommonPrefix(tokens->data() + (from - range.begin), prompt.data() + from, count);
      matched = from + same;
      differs = same < count;
    }
    if (matched > op->match.matched || op->match.conversation == kNoHandle) {
      op->match.matched = matched;
      op->match.conversation = candidates[i].first;
      op->match.at_tip = !differs;
    }
    if (i == 0 && matched < position) break;  // the index and the tokens disagree
  }
  return op->match.matched > 0;
}

// Chooses the usable boundary and the place of every park below it, and pins those parks.
bool CacheImpl::ChooseSources(RestoreOp* op) {
  absl::MutexLock lock(&mu_);
  const Conversation* leaf = catalogue_.Get(op->match.conversation);
  if (leaf == nullptr || !(leaf->identity == op->request.identity)) return false;
  op->match.id = leaf->id;
  const std::uint32_t prompt_tokens = static_cast<std::uint32_t>(op->request.tokens.size());
  const std::uint32_t limit = std::min(op->match.matched, prompt_tokens - 1);
  const Coverage coverage = catalogue_.CoverageOf(op->match.conversation, limit);
  RestorePlan& plan = op->plan;
  plan = RestorePlan();
  plan.boundary = UsableBoundary(op->layout, coverage, limit);
  op->match.usable = plan.boundary;
  if (plan.boundary < op->request.held_tokens + options_.min_gain_tokens) return false;
  const bool window = op->layout.has_group(RowGroup::kWindow);
  plan.window_begin =
      window ? WindowNeedBegin(plan.boundary, op->layout.window_tokens) : plan.boundary;

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
      for (std::uint32_t at : park.checkpoints) needed = needed || at == plan.boundary;
      if (!needed) continue;
      PlannedPark planned;
      planned.conversation = handle;
      planned.key = ParkKey{conversation->id, park.park};
      planned.tokens = tokens.empty() ? TokenRange{} : tokens;
      planned.stages = park.stages;
      planned.bytes = park.bytes;
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
  return true;
}

void CacheImpl::Unpin(RestoreOp* op) {
  absl::MutexLock lock(&mu_);
  for (const PlannedPark& park : op->plan.parks) {
    // A handle may have been given to another conversation meanwhile.
    const Conversation* conversation = catalogue_.Get(park.conversation);
    if (conversation != nullptr && conversation->id == park.key.conversation) {
      catalogue_.Pin(park.conversation, park.key.park, -1);
    }
  }
  op->plan.parks.clear();
}

// Lists the extents of every planned park and checks that each one is there and that every layer
// has all rows. *failed_park: the park to give up, index in the plan.
absl::Status CacheImpl::CollectExtents(RestoreOp* op, std::uint32_t* failed_park) {
  RestorePlan& plan = op->plan;
  Completeness full(op->layout, RowGroup::kFull);
  Completeness window(op->layout, RowGroup::kWindow);
  Completeness state(op->layout, RowGroup::kState);
  for (std::uint32_t i = 0; i < plan.parks.size(); ++i) {
    PlannedPark& park = plan.parks[i];
    *failed_park = i;
    std::vector<ExtentInfo> infos;
    if (park.tier == kFromQueue) {
      infos = park.queued->extents;
    } else {
      absl::StatusOr<std::vector<ExtentInfo>> read = tiers_[park.tier]->ReadExtents(park.key);
      if (!read.ok()) return read.status();
      infos = *std::move(read);
    }
    for (std::uint32_t ordinal = 0; ordinal < infos.size(); ++ordinal) {
      const ExtentInfo& info = infos[ordinal];
      if (info.stage >= park.stages->stages.size() ||
          SlicesOf(op->layout, park.stages->stages[info.stage], info).empty()) {
        return absl::DataLossError("an extent does not fit the layout");
      }
      bool wanted = false;
      const std::uint32_t end = info.first + info.rows;
      if (info.group == RowGroup::kFull) {
        wanted = info.first < park.tokens.end && end > park.tokens.begin;
        if (wanted) full.Add(park.stages, info);
      } else if (info.group == RowGroup::kWindow) {
        wanted = info.first < plan.boundary && end > plan.window_begin;
        if (wanted) window.Add(park.stages, info);
      } else {
        wanted = info.first == plan.boundary;
        if (wanted) state.Add(park.stages, info);
      }
      if (!wanted) continue;
      plan.extents.push_back(PlannedExtent{i, ordinal, info});
      plan.bytes += info.raw_bytes;
    }
  }
  if (!full.Covers({0, plan.boundary}) ||
      (op->layout.has_group(RowGroup::kWindow) &&
       !window.Covers({plan.window_begin, plan.boundary})) ||
      (op->layout.has_group(RowGroup::kState) &&
       !state.Covers({plan.boundary, plan.boundary + 1}))) {
    *failed_park = static_cast<std::uint32_t>(plan.parks.size());
    return absl::FailedPreconditionError("a layer lacks rows");
  }
  // Full rows first and in order, so that a failure keeps the longest prefix.
  std::stable_sort(plan.extents.begin(), plan.extents.end(),
                   [](const PlannedExtent& a, const PlannedExtent& b) {
                     if (a.info.group != b.info.group) return a.info.group < b.info.group;
                     return a.info.first < b.info.first;
                   });
  return absl::OkStatus();
}

void CacheImpl::MakePlan(const std::shared_ptr<RestoreOp>& op) {
  for (int attempt = 0; attempt < kPlanAttempts && !op->cancelled; ++attempt) {
    op->match.conversation = kNoHandle;
    if (!FindBestMatch(op.get()) || !ChooseSources(op.get())) break;
    std::uint32_t failed = 0;
    const absl::Status status = CollectExtents(op.get(), &failed);
    if (status.ok()) {
      op->lookup_seconds = absl::ToDoubleSeconds(absl::Now() - op->started);
      op->done.assign(op->plan.extents.size(), false);
      PreparePromotions(op.get());
      {
        absl::MutexLock lock(&op->mu);
        op->read_limit = static_cast<std::uint32_t>(op->plan.extents.size());
        op->progress = absl::Now();
        op->state = Restore::State::kReading;
      }
      SubmitReads(op);
      return;
    }
    op->match.shortfall = absl::IsDataLoss(status) ? MissReason::kCorrupt : MissReason::kIncomplete;
    op->match.detail = std::string(Text(status));
    if (failed < op->plan.parks.size() && op->plan.parks[failed].tier != kFromQueue) {
      const PlannedPark park = op->plan.parks[failed];
      Unpin(op.get());
      DropPark(static_cast<std::size_t>(park.tier), park.key, EvictReason::kCorrupt);
      continue;
    }
    Unpin(op.get());
    break;
  }
  Unpin(op.get());
  op->lookup_seconds = absl::ToDoubleSeconds(absl::Now() - op->started);
  op->SetState(Restore::State::kMiss);
}

}  // namespace parkade
