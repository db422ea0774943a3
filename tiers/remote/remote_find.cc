// From a prompt to rows: all boundaries in one pipeline, then rows and tombstones in another.

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "tiers/remote/tier_impl.h"

namespace parkade::remote {
namespace {

// How many boundaries are tried, deepest first, when rows behind one are gone.
constexpr int kMostTries = 3;
// Chains are fetched kMostSteps at a time; longer ones than this are not followed.
constexpr std::size_t kMostChainSteps = 4096;

std::uint32_t CommonPrefix(absl::Span<const Token> a, absl::Span<const Token> b) {
  const std::size_t count = std::min(a.size(), b.size());
  std::size_t i = 0;
  while (i < count && a[i] == b[i]) ++i;
  return static_cast<std::uint32_t>(i);
}

std::uint32_t Matched(const std::vector<FoundPark>& found, absl::Span<const Token> tokens) {
  std::uint32_t matched = 0;
  for (const FoundPark& park : found) {
    const ParkSummary& summary = park.record.summary;
    if (summary.token_count == 0) continue;
    const std::uint32_t same = CommonPrefix(
        absl::MakeConstSpan(park.record.tokens).subspan(0, park.end - summary.first_token),
        tokens.subspan(summary.first_token));
    matched = summary.first_token + same;
  }
  return matched;
}

}  // namespace

SharedRow RemoteTier::TakeRow(const Digest128& row, const Reply& reply, RowFaults* faults) {
  const bool foreign = IsForeign(reply);
  if (reply.kind != Reply::Kind::kBytes && !foreign) return nullptr;
  absl::StatusOr<RowValue> value =
      DecodeRow(row, foreign ? std::string_view() : reply.bytes, options_.key.get());
  if (!value.ok()) {
    const bool damaged = absl::IsDataLoss(value.status());
    // A newer program's is left to it.
    (damaged ? faults->damaged : faults->newer) = true;
    if (damaged) DiscardRow(row);
    return nullptr;
  }
  auto shared = std::make_shared<const RowValue>(*std::move(value));
  rows_.Insert(row, shared);
  return shared;
}

absl::StatusOr<RemoteTier::Rows> RemoteTier::FetchRows(const Chain& chain, absl::Time deadline) {
  Rows found;
  found.rows.resize(chain.steps.size());
  found.dead = chain.steps.size();
  std::vector<std::string> names;
  names.reserve(2 * chain.steps.size());
  std::vector<Command> commands;
  std::vector<std::size_t> asked;  // step of each row that is asked for
  std::vector<std::size_t> first_of_label;
  for (std::size_t i = 0; i < chain.steps.size(); ++i) {
    if (Rejected(chain.steps[i].row)) continue;
    found.rows[i] = rows_.Find(chain.steps[i].row);
    if (found.rows[i] != nullptr) continue;
    names.push_back(keys_.Row(chain.steps[i].row));
    commands.push_back({{"GET", names.back()}, names.back()});
    asked.push_back(i);
  }
  for (std::size_t i = 0; i < chain.steps.size(); ++i) {
    if (i > 0 && chain.steps[i].label == chain.steps[i - 1].label) continue;
    names.push_back(keys_.Tombstone(chain.steps[i].label));
    commands.push_back({{"EXISTS", names.back()}, names.back()});
    first_of_label.push_back(i);
  }
  const absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
  if (!replies.ok()) return replies.status();
  for (std::size_t i = 0; i < asked.size(); ++i) {
    found.rows[asked[i]] = TakeRow(chain.steps[asked[i]].row, (*replies)[i], &found.faults);
  }
  for (std::size_t i = 0; i < first_of_label.size(); ++i) {
    const Reply& reply = (*replies)[asked.size() + i];
    // An error is no proof that it may be used.
    if (reply.kind == Reply::Kind::kInteger && reply.integer == 0) continue;
    found.dead = std::min(found.dead, first_of_label[i]);
  }
  return found;
}

absl::StatusOr<FoundWay> RemoteTier::Resolve(Chain chain, const Digest128& identity,
                                             absl::Span<const Token> tokens,
                                             std::uint32_t boundary_tokens, absl::Time deadline,
                                             bool* gap, bool* newer) {
  FoundWay way;
  *gap = true;
  absl::StatusOr<Rows> fetched = FetchRows(chain, deadline);
  if (!fetched.ok()) return fetched.status();
  std::vector<SharedRow>& rows = fetched->rows;
  *newer = fetched->faults.newer;
  way.lost_tokens = boundary_tokens;
  while (!chain.whole) {
    // What lies before stands in the first row.
    way.damaged = fetched->faults.damaged;
    if (rows.empty() || rows.front() == nullptr || chain.steps.size() > kMostChainSteps) return way;
    const Chain before = rows.front()->before;
    if (before.steps.empty()) return way;
    absl::StatusOr<Rows> more = FetchRows(before, deadline);
    if (!more.ok()) return more.status();
    fetched->faults.damaged = fetched->faults.damaged || more->faults.damaged;
    *newer = *newer || more->faults.newer;
    fetched->dead = more->dead < more->rows.size() ? more->dead : more->rows.size() + fetched->dead;
    chain.whole = before.whole;
    chain.steps.insert(chain.steps.begin(), before.steps.begin(), before.steps.end());
    rows.insert(rows.begin(), more->rows.begin(), more->rows.end());
  }
  std::uint32_t position = 0;
  *gap = false;
  bool left = false;
  for (std::size_t i = 0; i < fetched->dead && !*gap && !left; ++i) {
    *gap = rows[i] == nullptr;
    if (*gap || position >= tokens.size()) break;
    const ParkSummary& summary = rows[i]->record.summary;
    const std::uint32_t end = std::min(chain.steps[i].end, summary.end_token());
    const bool goes_on = summary.token_count == 0
                             ? summary.first_token <= position
                             : summary.first_token == position && end > position;
    *gap = !goes_on || !(summary.identity == identity) ||
           !(summary.key.conversation == chain.steps[i].label);
    if (*gap) break;
    const std::uint32_t same =
        summary.token_count == 0
            ? 0
            : CommonPrefix(absl::MakeConstSpan(rows[i]->record.tokens).subspan(0, end - position),
                           tokens.subspan(position));
    left = summary.token_count > 0 && same < end - position;
    if (same > 0 || !left) {
      way.parks.push_back({chain.steps[i].row, rows[i]->record, std::max(end, position)});
    }
    position += same;
  }
  // Erased is not lost; other tokens than the boundary's mean that it is another one's value.
  const bool erased = !*gap && !left && fetched->dead < chain.steps.size();
  if (position >= boundary_tokens || erased) way.lost_tokens = 0;
  way.damaged = fetched->faults.damaged || (way.lost_tokens > 0 && !*gap);
  return way;
}

absl::StatusOr<FoundWay> RemoteTier::ResolveDeepest(const Digest128& identity,
                                                    absl::Span<const Token> tokens,
                                                    std::size_t first, std::uint32_t beyond,
                                                    absl::Span<const std::string> names,
                                                    absl::Span<const Reply> replies,
                                                    absl::Time deadline) {
  FoundWay best;
  int tries = 0;
  for (std::size_t i = names.size(); i > 0 && tries < kMostTries; --i) {
    const Reply& reply = replies[i - 1];
    if (reply.kind != Reply::Kind::kBytes && !IsForeign(reply)) continue;
    const auto boundary_tokens = static_cast<std::uint32_t>((first + i) * kPageTokens);
    const absl::StatusOr<Chain> chain =
        DecodeBoundary(IsForeign(reply) ? std::string_view() : reply.bytes);
    if (!chain.ok()) {
      // A newer program's is left to it; a shallower one may do.
      if (!absl::IsDataLoss(chain.status())) continue;
      Discard(names[i - 1]);
      best.damaged = true;
      best.lost_tokens = std::max(best.lost_tokens, boundary_tokens);
      continue;
    }
    ++tries;
    bool gap = false, newer = false;
    absl::StatusOr<FoundWay> way =
        Resolve(*chain, identity, tokens, boundary_tokens, deadline, &gap, &newer);
    if (!way.ok()) return way.status();
    // What leads nowhere would lead everybody there, and nobody who comes later further. What leads
    // to a newer program's row leads that program there.
    if (gap && newer) {
      way->lost_tokens = 0;
    } else if (gap || way->lost_tokens > 0) {
      Discard(names[i - 1]);
    }
    best.lost_tokens = std::max(best.lost_tokens, way->lost_tokens);
    best.damaged = best.damaged || way->damaged;
    if (Matched(way->parks, tokens) <= beyond) continue;
    best.parks = std::move(way->parks);
    break;
  }
  return best;
}

absl::StatusOr<FoundWay> RemoteTier::Find(const Digest128& identity, absl::Span<const Token> tokens,
                                          std::uint32_t beyond) {
  const absl::Time deadline = absl::Now() + options_.deadline;
  for (int round = 0; round < 2; ++round) {
    const absl::StatusOr<Digest128> secret = Secret(false, deadline);
    if (!secret.ok()) return secret.status();
    if (secret->IsZero()) break;  // nobody has stored anything
    const std::vector<std::uint64_t> hashes = PageHashes(*secret, identity, tokens);
    const std::size_t first = beyond / kPageTokens;
    if (first >= hashes.size()) break;
    std::vector<std::string> names = {keys_.Secret()};
    for (std::size_t page = first; page < hashes.size(); ++page) {
      names.push_back(keys_.Boundary(hashes[page]));
    }
    std::vector<Command> commands;
    for (const std::string& name : names) commands.push_back({{"GET", name}, name});
    const absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
    if (!replies.ok()) return replies.status();
    const absl::StatusOr<bool> another = AdoptSecret(replies->front());
    if (!another.ok()) return another.status();
    // The store was wiped, and begun anew by others.
    if (*another) continue;
    absl::StatusOr<FoundWay> way =
        ResolveDeepest(identity, tokens, first, beyond, absl::MakeConstSpan(names).subspan(1),
                       absl::MakeConstSpan(*replies).subspan(1), deadline);
    if (way.ok()) breaker_.Trust();
    return way;
  }
  return FoundWay();
}

// What is not read here costs a wait of its own later, or is found missing.
void RemoteTier::Prepare(absl::Span<const ParkKey> keys) {
  std::vector<Digest128> rows;
  std::vector<std::string> names;
  for (const ParkKey& key : keys) {
    const std::optional<Place> place = PlaceOf(key);
    if (!place.has_value() || Rejected(place->row) || rows_.Find(place->row) != nullptr) continue;
    rows.push_back(place->row);
    names.push_back(keys_.Row(place->row));
  }
  if (rows.empty()) return;
  std::vector<Command> commands;
  for (const std::string& name : names) commands.push_back({{"GET", name}, name});
  const absl::StatusOr<std::vector<Reply>> replies = Ask(commands, absl::Now() + options_.deadline);
  // swallow: the breaker knows, and who reads the parks is told
  if (!replies.ok()) return;
  RowFaults faults;
  for (std::size_t i = 0; i < rows.size(); ++i) TakeRow(rows[i], (*replies)[i], &faults);
}

absl::StatusOr<SharedRow> RemoteTier::RowOf(const Digest128& row, absl::Time deadline) {
  if (Rejected(row)) return absl::NotFoundError("something of a park is gone from the store");
  SharedRow known = rows_.Find(row);
  if (known != nullptr) return known;
  const std::string name = keys_.Row(row);
  const Command get{{"GET", name}, name};
  const absl::StatusOr<std::vector<Reply>> replies = Ask(absl::MakeConstSpan(&get, 1), deadline);
  if (!replies.ok()) return replies.status();
  RowFaults faults;
  SharedRow value = TakeRow(row, replies->front(), &faults);
  if (value != nullptr) return value;
  if (faults.damaged) return absl::DataLossError("a row of the store is damaged");
  return absl::NotFoundError("a row is gone from the store");
}

}  // namespace parkade::remote
