// From a conversation that this machine holds to rows: what is not there is stored, in the order
// extents, row, boundaries, so that nobody finds a name of what is not there yet; what is there is
// renewed in the same order.

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "src/format/checksum.h"
#include "src/format/segment.h"
#include "tiers/remote/tier_impl.h"

namespace parkade::remote {
namespace {

// Values on their way at the same time.
constexpr std::size_t kWriters = 4;
// What is used is renewed when this part of its time to live is over.
constexpr int kRenewals = 8;
// A store that is full is left alone for so long.
constexpr absl::Duration kFullFor = absl::Seconds(10);
// Tombstones outlive everything that was there before them.
constexpr int kTombstoneTtls = 2;

bool IsFull(const Reply& reply) {
  return reply.kind == Reply::Kind::kError && reply.bytes.substr(0, 3) == "OOM";
}

absl::Status AsStatus(const Reply& reply) {
  if (reply.kind != Reply::Kind::kError) return absl::OkStatus();
  if (IsFull(reply)) return absl::ResourceExhaustedError(reply.bytes);
  return absl::InternalError(reply.bytes);
}

// State of a position before the chain's end leaves that end where it is.
void Add(Chain* chain, const Digest128& row, const ConversationId& label, std::uint32_t end) {
  const std::uint32_t before = chain->steps.empty() ? 0 : chain->steps.back().end;
  chain->steps.push_back({row, label, std::max(before, end)});
}

}  // namespace

std::vector<std::size_t> RemoteTier::BoundaryPages(const Place& place) {
  std::vector<std::size_t> pages;
  const std::uint32_t every = kBoundaryTokens;
  for (std::uint32_t at = place.first / every * every + every; at <= place.end; at += every) {
    pages.push_back(at / kPageTokens - 1);
  }
  const std::size_t last = place.end / kPageTokens;
  // Also before the park's own tokens: what it adds behind the last full page is found by it.
  if (last > 0 && (pages.empty() || pages.back() != last - 1)) pages.push_back(last - 1);
  return pages;
}

absl::StatusOr<bool> RemoteTier::Renew(const Place& place, absl::Span<const std::uint64_t> hashes,
                                       absl::Time deadline) {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < place.extents; ++i) names.push_back(keys_.Extent(place.row, i));
  names.push_back(keys_.Row(place.row));
  const std::size_t needed = names.size();
  for (const std::size_t page : BoundaryPages(place)) {
    if (page < hashes.size()) names.push_back(keys_.Boundary(hashes[page]));
  }
  const std::string ttl = TtlMs();
  std::vector<Command> commands;
  for (const std::string& name : names) commands.push_back({{"PEXPIRE", name, ttl}, name});
  const absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
  if (!replies.ok()) return replies.status();
  return std::all_of(
      replies->begin(), replies->begin() + static_cast<std::ptrdiff_t>(needed),
      [](const Reply& reply) { return reply.kind == Reply::Kind::kInteger && reply.integer == 1; });
}

absl::Status RemoteTier::Known(const PublishRequest& request,
                               absl::Span<const std::uint64_t> hashes, absl::Time deadline,
                               Progress* progress) {
  for (; progress->next < request.steps.size(); ++progress->next) {
    const PublishStep& step = request.steps[progress->next];
    std::optional<Place> place = PlaceOf(step.key);
    if (!place.has_value()) return absl::OkStatus();
    if (absl::Now() - place->renewed > options_.ttl / kRenewals) {
      const absl::StatusOr<bool> whole = Renew(*place, hashes, deadline);
      if (!whole.ok()) return whole.status();
      if (!*whole) {
        // What stands on it is written again, too: its chain names a row that is not there.
        for (std::size_t i = progress->next; i < request.steps.size(); ++i) {
          ErasePlace(request.steps[i].key);
        }
        return absl::OkStatus();
      }
      place->renewed = absl::Now();
      SetPlace(step.key, *place);
    }
    Add(&progress->chain, place->row, place->label, step.end);
  }
  return absl::OkStatus();
}

void RemoteTier::UseFound(const PublishRequest& request, const std::vector<FoundPark>& found,
                          Progress* progress) {
  std::size_t same = 0;
  Chain chain;
  for (; same < std::min(found.size(), request.steps.size()); ++same) {
    const PublishStep& step = request.steps[same];
    const ParkSummary& summary = found[same].record.summary;
    if (summary.first_token != step.tokens.begin || summary.token_count != step.tokens.size() ||
        found[same].end < step.end) {
      break;
    }
    Bind(step.key, found[same]);
    Add(&chain, found[same].row, summary.key.conversation, step.end);
  }
  *progress = {chain, same};
  if (same == request.steps.size()) return;
  // Cut in other places: what goes beyond them stands on theirs.
  std::uint32_t covered = 0;
  for (const FoundPark& park : found) covered = std::max(covered, park.end);
  covered = std::min<std::uint32_t>(covered, static_cast<std::uint32_t>(request.tokens.size()));
  std::size_t next = same;
  while (next < request.steps.size() && request.steps[next].tokens.size() > 0 &&
         request.steps[next].end <= covered) {
    ++next;
  }
  if (next == same) return;
  const std::uint32_t begin =
      next < request.steps.size() ? request.steps[next].tokens.begin : covered;
  chain.steps.clear();
  for (const FoundPark& park : found) {
    if (park.record.summary.first_token >= begin) break;
    Add(&chain, park.row, park.record.summary.key.conversation, std::min(park.end, begin));
  }
  *progress = {chain, next};
}

absl::StatusOr<bool> RemoteTier::Erased(const PublishRequest& request, std::size_t from,
                                        absl::Time deadline) {
  std::vector<std::string> names = {keys_.Secret()};
  for (std::size_t i = from; i < request.steps.size(); ++i) {
    const ConversationId& label = request.steps[i].key.conversation;
    if (i > from && label == request.steps[i - 1].key.conversation) continue;
    names.push_back(keys_.Tombstone(label));
  }
  std::vector<Command> commands = {{{"GET", names[0]}, names[0]}};
  for (std::size_t i = 1; i < names.size(); ++i) {
    commands.push_back({{"EXISTS", names[i]}, names[i]});
  }
  const absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
  if (!replies.ok()) return replies.status();
  if (AdoptSecret(replies->front())) {
    return absl::AbortedError("the store was begun anew; what it lacks is stored the next time");
  }
  return std::any_of(replies->begin() + 1, replies->end(), [](const Reply& reply) {
    return reply.kind != Reply::Kind::kInteger || reply.integer != 0;
  });
}

absl::Status RemoteTier::UploadExtents(const Digest128& row, const PublishPayload& payload,
                                       RowValue* value) {
  const std::size_t count = payload.extents.size();
  value->extents.resize(count);
  if (value->sealer != nullptr) value->headers.resize(count);
  std::atomic<std::size_t> next{0};
  absl::Mutex mu;
  absl::Status failed;
  const auto write = [&] {
    std::string stored;
    while (true) {
      const std::size_t i = next.fetch_add(1);
      if (i >= count) return;
      StoredExtent& extent = value->extents[i];
      extent.info = payload.record.extents[i];
      extent.ordinal = static_cast<std::uint32_t>(i);
      const absl::Span<const char> raw(payload.extents[i]->data(), extent.info.raw_bytes);
      stored.clear();
      extent.codec = Compress(options_.codec, raw, &stored);
      extent.stored_bytes = extent.codec == Codec::kRaw ? extent.info.raw_bytes
                                                        : static_cast<std::uint32_t>(stored.size());
      absl::Span<const char> bytes =
          extent.codec == Codec::kRaw ? raw : absl::MakeConstSpan(stored.data(), stored.size());
      if (value->sealer != nullptr) {
        if (extent.codec == Codec::kRaw) stored.resize(raw.size());
        value->headers[i] =
            SealExtent(*value->sealer, value->record.summary.key, extent, bytes, stored.data());
        bytes = absl::MakeConstSpan(stored.data(), stored.size());
      }
      const absl::Status set =
          redis_->Set(keys_.Extent(row, extent.ordinal), bytes,
                      absl::ToInt64Milliseconds(options_.ttl), TransferDeadline(bytes.size()));
      if (set.ok()) {
        written_bytes_.fetch_add(bytes.size(), std::memory_order_relaxed);
        continue;
      }
      next = count;
      absl::MutexLock lock(&mu);
      failed.Update(set);
    }
  };
  std::vector<std::thread> writers;
  for (std::size_t i = 1; i < std::min(kWriters, count); ++i) writers.emplace_back(write);
  write();
  for (std::thread& writer : writers) writer.join();
  return failed;
}

absl::Status RemoteTier::SetBoundaries(const Chain& chain, const Place& place,
                                       absl::Span<const std::uint64_t> hashes,
                                       absl::Time deadline) {
  const std::string value = EncodeBoundary(Shortened(chain));
  const std::string ttl = TtlMs();
  std::vector<std::string> names;
  for (const std::size_t page : BoundaryPages(place)) {
    if (page < hashes.size()) names.push_back(keys_.Boundary(hashes[page]));
  }
  std::vector<Command> commands;
  for (const std::string& name : names) {
    commands.push_back({{"SET", name, value, "PX", ttl}, name});
  }
  if (commands.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
  if (!replies.ok()) return replies.status();
  absl::Status status;
  for (const Reply& reply : *replies) status.Update(AsStatus(reply));
  return status;
}

absl::Status RemoteTier::Upload(const PublishStep& step, const PublishPayload& payload,
                                absl::Span<const std::uint64_t> hashes, Chain* chain) {
  const Digest128 row = RandomDigest();
  RowValue value;
  value.record = payload.record;
  value.sealer = NewSegmentSealer(options_.key);
  value.before = Shortened(*chain);
  absl::Status status = UploadExtents(row, payload, &value);
  const Place place{row,
                    step.key.conversation,
                    step.tokens.begin,
                    payload.record.summary.end_token(),
                    static_cast<std::uint32_t>(payload.extents.size()),
                    absl::Now(),
                    0};
  if (status.ok()) {
    absl::StatusOr<std::string> bytes = EncodeRow(row, value);
    if (!bytes.ok()) return bytes.status();
    status = redis_->Set(keys_.Row(row), *bytes, absl::ToInt64Milliseconds(options_.ttl),
                         TransferDeadline(bytes->size()));
  }
  if (status.ok()) {
    Chain with_this = *chain;
    Add(&with_this, row, step.key.conversation, place.end);
    status = SetBoundaries(with_this, place, hashes, absl::Now() + options_.deadline);
  }
  if (!status.ok()) {
    // Nobody knows the row yet. swallow: what is left of it expires.
    std::vector<std::string> names = {keys_.Row(row)};
    for (std::uint32_t i = 0; i < place.extents; ++i) names.push_back(keys_.Extent(row, i));
    std::vector<Command> commands;
    for (const std::string& name : names) commands.push_back({{"UNLINK", name}, name});
    (void)Ask(commands, absl::Now() + options_.deadline);
    return Noted(status);
  }
  Add(chain, row, step.key.conversation, step.end);
  SetPlace(step.key, place);
  return absl::OkStatus();
}

absl::Status RemoteTier::Publish(const PublishRequest& request, PublishOutcome* outcome) {
  *outcome = PublishOutcome();
  if (!breaker_.closed()) return absl::UnavailableError(breaker_.reason());
  {
    absl::MutexLock lock(&mu_);
    if (absl::Now() < full_until_) return absl::ResourceExhaustedError(full_reason_);
  }
  const absl::StatusOr<Digest128> secret = Secret(true, absl::Now() + options_.deadline);
  if (!secret.ok()) return secret.status();
  if (secret->IsZero()) return absl::DataLossError("the store's secret is not readable");
  const std::vector<std::uint64_t> hashes = PageHashes(*secret, request.identity, request.tokens);
  const absl::Status status = PublishSteps(request, hashes, outcome);
  for (std::uint32_t i = 0; i < outcome->steps; ++i) {
    if (PlaceOf(request.steps[i].key).has_value()) outcome->bound.push_back(request.steps[i].key);
  }
  return status;
}

absl::Status RemoteTier::PublishSteps(const PublishRequest& request,
                                      absl::Span<const std::uint64_t> hashes,
                                      PublishOutcome* outcome) {
  Progress progress;
  absl::Status status = Known(request, hashes, absl::Now() + options_.deadline, &progress);
  if (!status.ok()) return status;
  outcome->steps = static_cast<std::uint32_t>(progress.next);
  if (progress.next == request.steps.size()) return absl::OkStatus();
  if (progress.next == 0) {
    const absl::StatusOr<std::vector<FoundPark>> found = Find(request.identity, request.tokens, 0);
    if (!found.ok()) return found.status();
    UseFound(request, *found, &progress);
    outcome->steps = static_cast<std::uint32_t>(progress.next);
    if (progress.next == request.steps.size()) return absl::OkStatus();
  }
  const absl::StatusOr<bool> erased =
      Erased(request, progress.next, absl::Now() + options_.deadline);
  if (!erased.ok()) return erased.status();
  if (*erased) return absl::OkStatus();
  for (; progress.next < request.steps.size(); ++progress.next) {
    const PublishStep& step = request.steps[progress.next];
    const absl::StatusOr<PublishPayload> payload = request.read(step);
    if (!payload.ok()) return payload.status();
    status = Upload(step, *payload, hashes, &progress.chain);
    if (absl::IsResourceExhausted(status)) {
      absl::MutexLock lock(&mu_);
      full_until_ = absl::Now() + kFullFor;
      full_reason_ = std::string(status.message());
    }
    if (!status.ok()) return status;
    ++outcome->steps;
    ++outcome->written_parks;
    outcome->written_bytes += payload->record.summary.payload_bytes;
  }
  return absl::OkStatus();
}

// The tombstone first: whatever is left undone after it is found by nobody.
absl::Status RemoteTier::Erase(const ConversationId& conversation, const Digest128& identity,
                               absl::Span<const Token> tokens,
                               absl::Span<const PublishStep> steps) {
  const absl::Time deadline = absl::Now() + options_.deadline;
  const absl::StatusOr<Digest128> secret = Secret(true, deadline);
  if (!secret.ok()) return secret.status();
  const std::vector<std::uint64_t> hashes = PageHashes(*secret, identity, tokens);
  std::vector<Place> places;
  bool all_known = true;
  for (const PublishStep& step : steps) {
    if (!(step.key.conversation == conversation)) continue;
    if (const std::optional<Place> place = PlaceOf(step.key))
      places.push_back(*place);
    else
      all_known = false;
  }
  if (!all_known) {
    // Stored before this process began.
    const absl::StatusOr<std::vector<FoundPark>> found = Find(identity, tokens, 0);
    if (!found.ok()) return found.status();
    for (const FoundPark& park : *found) {
      const ParkSummary& summary = park.record.summary;
      if (!(summary.key.conversation == conversation)) continue;
      places.push_back({park.row, conversation, summary.first_token, summary.end_token(),
                        static_cast<std::uint32_t>(park.record.extents.size()), absl::Time(), 0});
    }
  }
  std::vector<ConversationId> labels = {conversation};
  for (const Place& place : places) {
    if (std::find(labels.begin(), labels.end(), place.label) == labels.end()) {
      labels.push_back(place.label);
    }
  }
  const std::string ttl = std::to_string(absl::ToInt64Milliseconds(options_.ttl) * kTombstoneTtls);
  std::vector<std::string> names;
  for (const ConversationId& label : labels) names.push_back(keys_.Tombstone(label));
  std::vector<Command> commands;
  for (const std::string& name : names) commands.push_back({{"SET", name, "1", "PX", ttl}, name});
  absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
  if (!replies.ok()) return replies.status();
  for (const Reply& reply : *replies) {
    if (absl::Status s = AsStatus(reply); !s.ok()) return s;
  }
  return EraseRows(places, hashes, deadline);
}

absl::Status RemoteTier::EraseRows(const std::vector<Place>& places,
                                   absl::Span<const std::uint64_t> hashes, absl::Time deadline) {
  std::vector<std::string> names;
  for (const Place& place : places) {
    for (const std::size_t page : BoundaryPages(place)) {
      if (page < hashes.size()) names.push_back(keys_.Boundary(hashes[page]));
    }
  }
  std::vector<Command> commands;
  for (const std::string& name : names) commands.push_back({{"GET", name}, name});
  absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
  if (!replies.ok()) return replies.status();
  // A boundary of others, who share the tokens before it, stays.
  const auto is_ours = [&places](const Reply& reply) {
    if (reply.kind != Reply::Kind::kBytes) return false;
    const absl::StatusOr<Chain> chain = DecodeBoundary(reply.bytes);
    return chain.ok() && std::any_of(places.begin(), places.end(), [&chain](const Place& place) {
             return chain->steps.back().row == place.row;
           });
  };
  std::vector<std::string> gone;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (is_ours((*replies)[i])) gone.push_back(names[i]);
  }
  for (const Place& place : places) {
    gone.push_back(keys_.Row(place.row));
    for (std::uint32_t i = 0; i < place.extents; ++i) gone.push_back(keys_.Extent(place.row, i));
    rows_.Erase(place.row);
  }
  commands.clear();
  for (const std::string& name : gone) commands.push_back({{"UNLINK", name}, name});
  return Ask(commands, deadline).status();
}

}  // namespace parkade::remote
