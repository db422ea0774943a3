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

absl::Status RemoteTier::FetchRows(const Chain& chain, absl::Time deadline,
                                   std::vector<SharedRow>* rows, std::size_t* dead) {
  rows->assign(chain.steps.size(), nullptr);
  *dead = chain.steps.size();
  std::vector<std::string> names;
  names.reserve(2 * chain.steps.size());
  std::vector<Command> commands;
  std::vector<std::size_t> asked;  // step of each row that is asked for
  std::vector<std::size_t> first_of_label;
  for (std::size_t i = 0; i < chain.steps.size(); ++i) {
    (*rows)[i] = rows_.Find(chain.steps[i].row);
    if ((*rows)[i] != nullptr) continue;
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
  absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
  if (!replies.ok()) return replies.status();
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Reply& reply = (*replies)[i];
    if (reply.kind != Reply::Kind::kBytes) continue;
    const Digest128& row = chain.steps[asked[i]].row;
    absl::StatusOr<RowValue> value = DecodeRow(row, reply.bytes, options_.key.get());
    // swallow: damage, or another key's: the way ends before it, like where a row has expired.
    if (!value.ok()) continue;
    (*rows)[asked[i]] = std::make_shared<const RowValue>(*std::move(value));
    rows_.Insert(row, (*rows)[asked[i]]);
  }
  for (std::size_t i = 0; i < first_of_label.size(); ++i) {
    const Reply& reply = (*replies)[asked.size() + i];
    // An error is no proof that it may be used.
    if (reply.kind == Reply::Kind::kInteger && reply.integer == 0) continue;
    *dead = std::min(*dead, first_of_label[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FoundPark>> RemoteTier::Resolve(Chain chain, const Digest128& identity,
                                                           absl::Span<const Token> tokens,
                                                           absl::Time deadline) {
  std::vector<SharedRow> rows;
  std::size_t dead = 0;
  if (absl::Status s = FetchRows(chain, deadline, &rows, &dead); !s.ok()) return s;
  while (!chain.whole) {
    // What lies before stands in the first row.
    if (rows.empty() || rows.front() == nullptr || chain.steps.size() > kMostChainSteps) {
      return std::vector<FoundPark>();
    }
    const Chain before = rows.front()->before;
    if (before.steps.empty()) return std::vector<FoundPark>();
    std::vector<SharedRow> more;
    std::size_t more_dead = 0;
    if (absl::Status s = FetchRows(before, deadline, &more, &more_dead); !s.ok()) return s;
    dead = more_dead < more.size() ? more_dead : more.size() + dead;
    chain.whole = before.whole;
    chain.steps.insert(chain.steps.begin(), before.steps.begin(), before.steps.end());
    rows.insert(rows.begin(), more.begin(), more.end());
  }
  std::vector<FoundPark> found;
  std::uint32_t position = 0;
  for (std::size_t i = 0; i < dead; ++i) {
    if (rows[i] == nullptr) break;
    const ParkSummary& summary = rows[i]->record.summary;
    const std::uint32_t end = std::min(chain.steps[i].end, summary.end_token());
    const bool goes_on = summary.token_count == 0
                             ? summary.first_token <= position
                             : summary.first_token == position && end > position;
    if (!(summary.identity == identity) || !goes_on) break;
    if (!(summary.key.conversation == chain.steps[i].label)) break;
    if (position >= tokens.size()) break;
    found.push_back({chain.steps[i].row, rows[i]->record, std::max(end, position)});
    if (summary.token_count == 0) continue;
    const std::uint32_t same =
        CommonPrefix(absl::MakeConstSpan(rows[i]->record.tokens).subspan(0, end - position),
                     tokens.subspan(position));
    if (same == 0) found.pop_back();
    if (same < end - position) break;
    position = end;
  }
  return found;
}

absl::StatusOr<std::vector<FoundPark>> RemoteTier::Find(const Digest128& identity,
                                                        absl::Span<const Token> tokens,
                                                        std::uint32_t beyond) {
  const absl::Time deadline = absl::Now() + options_.deadline;
  std::vector<FoundPark> best;
  for (int round = 0; round < 2; ++round) {
    const absl::StatusOr<Digest128> secret = Secret(false, deadline);
    if (!secret.ok()) return secret.status();
    if (secret->IsZero()) return best;  // nobody has stored anything
    const std::vector<std::uint64_t> hashes = PageHashes(*secret, identity, tokens);
    const std::size_t first = beyond / kPageTokens;
    if (first >= hashes.size()) return best;
    std::vector<std::string> names = {keys_.Secret()};
    for (std::size_t page = first; page < hashes.size(); ++page) {
      names.push_back(keys_.Boundary(hashes[page]));
    }
    std::vector<Command> commands;
    for (const std::string& name : names) commands.push_back({{"GET", name}, name});
    const absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
    if (!replies.ok()) return replies.status();
    // Another secret than this machine knew: the store was wiped and begun anew by others.
    if (AdoptSecret(replies->front())) continue;
    int tries = 0;
    for (std::size_t i = names.size() - 1; i > 0 && tries < kMostTries; --i) {
      const Reply& reply = (*replies)[i];
      if (reply.kind != Reply::Kind::kBytes) continue;
      absl::StatusOr<Chain> chain = DecodeBoundary(reply.bytes);
      // swallow: damaged, or a newer program's: a shallower one may do.
      if (!chain.ok()) continue;
      ++tries;
      absl::StatusOr<std::vector<FoundPark>> found =
          Resolve(*std::move(chain), identity, tokens, deadline);
      if (!found.ok()) return found.status();
      if (Matched(*found, tokens) > std::max(beyond, Matched(best, tokens))) {
        best = *std::move(found);
      }
      if (!best.empty()) return best;
    }
    return best;
  }
  return best;
}

absl::StatusOr<SharedRow> RemoteTier::RowOf(const Digest128& row, absl::Time deadline) {
  SharedRow known = rows_.Find(row);
  if (known != nullptr) return known;
  const std::string name = keys_.Row(row);
  const Command get{{"GET", name}, name};
  const absl::StatusOr<std::vector<Reply>> replies = Ask(absl::MakeConstSpan(&get, 1), deadline);
  if (!replies.ok()) return replies.status();
  if (replies->front().kind != Reply::Kind::kBytes) {
    return absl::NotFoundError("a row is gone from the store");
  }
  absl::StatusOr<RowValue> value = DecodeRow(row, replies->front().bytes, options_.key.get());
  if (!value.ok()) return absl::DataLossError(value.status().message());
  auto shared = std::make_shared<const RowValue>(*std::move(value));
  rows_.Insert(row, shared);
  return SharedRow(shared);
}

}  // namespace parkade::remote
