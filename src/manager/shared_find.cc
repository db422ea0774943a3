// What a shared tier has of a prompt becomes part of the catalogue; from then on the one lookup
// path goes its way, and reads it like any other tier.

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "src/format/checksum.h"
#include "src/manager/cache_impl.h"

namespace parkade {

void CacheImpl::StartShared() {
  if (shared_tier_ < 0) return;
  for (int i = 0; i < options_.finder_threads; ++i) {
    threads_.emplace_back([this] { FinderLoop(); });
  }
  for (int i = 0; i < options_.far_reader_threads; ++i) {
    threads_.emplace_back([this] { FarReaderLoop(); });
  }
  threads_.emplace_back([this] { PublishLoop(); });
}

bool CacheImpl::MayAskShared(RestoreOp* op, std::uint32_t matched) {
  const LookupRequest& request = op->request;
  if (shared_tier_ < 0 || op->asked_shared || !request.enabled || !request.session.IsZero()) {
    return false;
  }
  const std::uint32_t held = std::max(matched, request.held_tokens);
  const auto tokens = static_cast<std::uint32_t>(
      std::min<std::size_t>(request.cacheable_tokens, request.tokens.size()));
  // Boundaries stand at the ends of pages, and what goes on behind one may be found by it.
  const bool beyond = op->hashes.size() * kPageTokens > held;
  if (!beyond || tokens < held + options_.min_gain_tokens) return false;
  op->shared_answered = Shared()->reachable();
  return op->shared_answered && IsWorthAsking({held, tokens});
}

std::vector<ParkKey> CacheImpl::FarParks(const RestoreOp& op) const {
  std::vector<ParkKey> far;
  if (shared_tier_ < 0 || !op.request.session.IsZero()) return far;
  const std::uint8_t only = Bit(static_cast<std::size_t>(shared_tier_));
  absl::MutexLock lock(&mu_);
  const Catalogue::PageMatch match = catalogue_.MatchPages(op.hashes);
  if (match.pages == 0) return far;
  const std::uint32_t limit = (match.pages + 1) * kPageTokens;
  for (const PathPark& step : catalogue_.Path(match.conversation, limit)) {
    const ParkState* park = catalogue_.Get(step.conversation)->FindPark(step.key.park);
    if (park->tiers == only && park->pending == nullptr) far.push_back(step.key);
  }
  return far;
}

void CacheImpl::SubmitFind(const std::shared_ptr<RestoreOp>& op) {
  absl::MutexLock lock(&reader_mu_);
  to_find_.push_back(op);
}

void CacheImpl::FinderLoop() {
  while (true) {
    std::shared_ptr<RestoreOp> op;
    {
      absl::MutexLock lock(&reader_mu_);
      auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(reader_mu_) {
        return readers_stop_ || !to_find_.empty();
      };
      reader_mu_.Await(absl::Condition(&work));
      if (readers_stop_) return;
      op = std::move(to_find_.front());
      to_find_.pop_front();
    }
    op->may_wait = true;
    if (!op->cancelled) {
      if (const std::vector<ParkKey> far = FarParks(*op); !far.empty()) {
        Shared()->Prepare(far);
        FindBestMatch(op.get());
      }
      if (MayAskShared(op.get(), op->match.matched)) Ask(op.get());
    }
    MakePlan(op);
    if (op->cancelled) Unpin(op.get());
  }
}

void CacheImpl::NoteFindTime(absl::Duration took) {
  const double seconds = absl::ToDoubleSeconds(took);
  absl::MutexLock lock(&mu_);
  // Down at once, up slowly: one that waited for something else says little.
  find_seconds_ = seconds < find_seconds_ ? seconds : find_seconds_ + (seconds - find_seconds_) / 8;
}

void CacheImpl::Ask(RestoreOp* op) {
  op->asked_shared = true;
  const auto tier = static_cast<std::size_t>(shared_tier_);
  const absl::Span<const Token> tokens =
      absl::MakeConstSpan(op->request.tokens)
          .subspan(0,
                   std::min<std::size_t>(op->request.cacheable_tokens, op->request.tokens.size()));
  const absl::Time begin = absl::Now();
  const absl::StatusOr<FoundWay> found =
      Shared()->Find(op->request.identity, tokens, op->match.matched);
  op->shared_answered = found.ok();
  if (!found.ok()) return ReportTierError(tier, "read", found.status());
  // What was waited for in vain is the breaker's business: when that lets through, it is over.
  NoteFindTime(absl::Now() - begin);
  if (found->damaged) {
    sink_->OnCorrupt(TierKind::kRemote);
    ReportTierError(tier, "read", absl::DataLossError("a row or boundary was damaged; removed"));
  }
  if (found->lost_tokens > op->match.matched) {
    op->match.lost_match = std::max(op->match.lost_match, found->lost_tokens);
    op->match.shortfall = found->damaged ? MissReason::kCorrupt : MissReason::kRemote;
    op->match.failed_tier = Source::kRemote;
    op->match.detail = found->damaged ? "what the remote tier has of the prompt is damaged"
                                      : "the remote tier has lost a part of the prompt";
  }
  Adopt(op, found->parks);
}

void CacheImpl::FarReaderLoop() {
  while (true) {
    std::shared_ptr<RestoreOp> read;
    {
      absl::MutexLock lock(&reader_mu_);
      auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(reader_mu_) {
        return readers_stop_ || std::any_of(to_read_.begin(), to_read_.end(),
                                            [](const auto& op) { return op->far; });
      };
      reader_mu_.Await(absl::Condition(&work));
      if (readers_stop_) return;
      read = TakeRead(true);
    }
    if (read == nullptr) continue;
    ReadOne(read);
    --read->readers;
  }
}

// The parks that this cache lacks, and what they stand on: the last of the found positions that
// the local match reaches.
AdoptSpot CacheImpl::SpotFor(const RestoreOp& op, const std::vector<FoundPark>& found) const {
  AdoptSpot spot;
  const Conversation* matched = catalogue_.Get(op.match.conversation);
  if (matched == nullptr || !(matched->identity == op.request.identity)) return spot;
  const std::vector<PathPark> path = catalogue_.Path(op.match.conversation, op.match.matched);
  const bool same = !path.empty() && path.size() <= op.match.path.size() &&
                    path.back().tokens.end == op.match.matched &&
                    std::equal(path.begin(), path.end(), op.match.path.begin(),
                               [](const PathPark& a, const ParkKey& b) { return a.key == b; });
  if (!same) return spot;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool tokens = found[i].record.summary.token_count > 0;
    if (!tokens || found[i].end > op.match.matched) continue;
    spot.first = i + 1;
    spot.begin = found[i].end;
  }
  if (spot.begin == 0) return spot;
  spot.conversation = op.match.conversation;
  while (catalogue_.Get(spot.conversation)->parent != kNoHandle &&
         spot.begin <= catalogue_.Get(spot.conversation)->parent_tokens) {
    spot.conversation = catalogue_.Get(spot.conversation)->parent;
  }
  return spot;
}

void CacheImpl::AdoptFrom(const RestoreOp& op, const AdoptSpot& spot,
                          const std::vector<FoundPark>& found,
                          const std::vector<std::vector<std::uint64_t>>& hashes) {
  Handle handle = spot.conversation;
  // A conversation that ends there goes on; otherwise a fork of it does.
  bool append = handle != kNoHandle && catalogue_.Get(handle)->tip() == spot.begin &&
                !catalogue_.Get(handle)->forgotten && catalogue_.Get(handle)->indexed;
  std::uint32_t position = spot.begin;
  for (std::size_t i = spot.first; i < found.size(); ++i) {
    const ParkSummary& theirs = found[i].record.summary;
    if (!append) {
      ConversationId id = theirs.key.conversation;
      if (catalogue_.FindId(id) != kNoHandle) id = RandomDigest();
      handle = catalogue_.Create(id, op.request.identity, handle, position, theirs.created_unix_ms);
    }
    Conversation* conversation = catalogue_.Get(handle);
    ParkSummary summary = theirs;
    summary.key = ParkKey{conversation->id, conversation->next_park};
    summary.parent = ConversationId();
    summary.parent_tokens = 0;
    if (conversation->parent != kNoHandle) {
      summary.parent = catalogue_.Get(conversation->parent)->id;
      summary.parent_tokens = conversation->parent_tokens;
    }
    summary.page_hashes = hashes[i];
    Shared()->Bind(summary.key, found[i]);
    catalogue_.AddPark(handle, summary, Bit(static_cast<std::size_t>(shared_tier_)));
    append = found[i].end == theirs.end_token() || theirs.token_count == 0;
    if (theirs.token_count > 0) position = found[i].end;
  }
  if (handle != kNoHandle) Touch(handle, false);
}

// Page hashes of every found park, as this cache's index has them.
void CacheImpl::Adopt(RestoreOp* op, const std::vector<FoundPark>& found) {
  if (found.empty()) return;
  std::vector<std::vector<std::uint64_t>> hashes(found.size());
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const ParkSummary& summary = found[i].record.summary;
    if (summary.token_count == 0) continue;
    if (summary.first_token != tokens.size()) return;
    tokens.insert(tokens.end(), found[i].record.tokens.begin(), found[i].record.tokens.end());
    const std::size_t first = summary.first_token / kPageTokens;
    const std::size_t end = summary.end_token() / kPageTokens;
    // The prompt's own pages are hashed already; what a park has beyond it is not.
    const bool in_prompt =
        end <= op->hashes.size() && std::equal(tokens.begin() + summary.first_token, tokens.end(),
                                               op->request.tokens.begin() + summary.first_token);
    const std::vector<std::uint64_t> all =
        in_prompt ? std::vector<std::uint64_t>() : PageHashes(op->request.identity, tokens);
    const std::vector<std::uint64_t>& from = in_prompt ? op->hashes : all;
    hashes[i].assign(from.begin() + static_cast<std::ptrdiff_t>(first),
                     from.begin() + static_cast<std::ptrdiff_t>(end));
    tokens.resize(found[i].end);
  }
  {
    absl::MutexLock lock(&mu_);
    if (!UseIdentity(op->request.identity)) return;
    // Somebody who asked at the same time may have taken them in.
    const std::uint32_t there = catalogue_.MatchPages(op->hashes).pages * kPageTokens;
    if (there > op->match.matched) return;
    const AdoptSpot spot = SpotFor(*op, found);
    if (spot.first < found.size()) AdoptFrom(*op, spot, found, hashes);
  }
  TrimIndex();
}

}  // namespace parkade
