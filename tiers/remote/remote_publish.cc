// From a conversation that this machine holds to rows: what is not there is stored, in the order
// extents, row, boundaries, so that nobody finds a name of what is not there yet; what is there is
// renewed in the same order.

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "src/format/checksum.h"
#include "src/format/park_rows.h"
#include "src/format/segment.h"
#include "tiers/remote/tier_impl.h"

namespace parkade::remote {
namespace {

// Values on their way at the same time.
constexpr std::size_t kWriters = 4;

bool IsOne(const Reply& reply) { return reply.kind == Reply::Kind::kInteger && reply.integer == 1; }

// State of a position before the chain's end leaves that end where it is.
void Add(Chain* chain, const Digest128& row, const ConversationId& label, std::uint32_t end) {
  const std::uint32_t before = chain->steps.empty() ? 0 : chain->steps.back().end;
  chain->steps.push_back({row, label, std::max(before, end)});
}

// Refuses what no reader could use, before anything of it is stored.
absl::Status CheckPayload(const PublishPayload& payload) {
  const ParkRecord& record = payload.record;
  const absl::StatusOr<std::uint64_t> bytes = CheckedPayloadBytes(record, payload.extents);
  if (!bytes.ok()) return bytes.status();
  for (std::size_t i = 0; i < record.extents.size(); ++i) {
    if (record.extents[i].raw_bytes > kExtentBytes) {
      return absl::InvalidArgumentError(absl::StrCat("extent ", i, " is too large"));
    }
  }
  if (*bytes != record.summary.payload_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a park of ", record.summary.payload_bytes, " bytes has extents of ", *bytes));
  }
  return absl::OkStatus();
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

absl::StatusOr<bool> RemoteTier::Renew(const Place& place, const Chain& chain,
                                       absl::Span<const std::uint64_t> hashes,
                                       absl::Time deadline) {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < place.extents; ++i) names.push_back(keys_.Extent(place.row, i));
  names.push_back(keys_.Row(place.row));
  const auto needed = static_cast<std::ptrdiff_t>(names.size());
  for (const std::size_t page : BoundaryPages(place)) {
    if (page < hashes.size()) names.push_back(keys_.Boundary(hashes[page]));
  }
  const std::string ttl = TtlMs();
  std::vector<Command> commands;
  for (const std::string& name : names) commands.push_back({{"PEXPIRE", name, ttl}, name});
  const absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
  if (!replies.ok()) return replies.status();
  const auto boundaries = replies->begin() + needed;
  if (!std::all_of(replies->begin(), boundaries, IsOne)) {
    DiscardRow(place.row);
    return false;
  }
  if (std::all_of(boundaries, replies->end(), IsOne)) return true;
  // The store has dropped some: without them nobody finds the rest.
  const absl::Status set = SetBoundaries(chain, place, hashes, deadline);
  if (!set.ok()) return set;
  return true;
}

absl::Status RemoteTier::Known(const PublishRequest& request,
                               absl::Span<const std::uint64_t> hashes, absl::Time deadline,
                               Progress* progress) {
  for (; progress->next < request.steps.size(); ++progress->next) {
    const PublishStep& step = request.steps[progress->next];
    std::optional<Place> place = PlaceOf(step.key);
    if (!place.has_value() || Rejected(place->row)) return absl::OkStatus();
    if (absl::Now() - place->renewed > options_.ttl / kRenewals) {
      Chain with_this = progress->chain;
      Add(&with_this, place->row, place->label, place->end);
      const absl::StatusOr<bool> whole = Renew(*place, with_this, hashes, deadline);
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

absl::Status RemoteTier::Check(const PublishRequest& request, const Progress& progress,
                               absl::Time deadline, std::vector<ConversationId>* dead) {
  const std::string secret = keys_.Secret();
  const std::string own = OwnSecret();
  const Command set{{"SET", secret, own, "NX"}, secret};
  if (absl::Status s = Write(absl::MakeConstSpan(&set, 1), deadline); !s.ok()) return s;
  std::vector<std::string> names = {secret};
  // Of each name behind the secret, which row it belongs to: all of a park has to be there, or what
  // goes on behind it would be of no use to anybody.
  std::vector<Digest128> owners;
  for (const ChainStep& step : progress.chain.steps) {
    names.push_back(keys_.Row(step.row));
    owners.push_back(step.row);
  }
  for (std::size_t i = 0; i < progress.next; ++i) {
    const std::optional<Place> place = PlaceOf(request.steps[i].key);
    if (!place.has_value()) continue;  // cut otherwise by others
    for (std::uint32_t extent = 0; extent < place->extents; ++extent) {
      names.push_back(keys_.Extent(place->row, extent));
      owners.push_back(place->row);
    }
  }
  const std::size_t rows_end = names.size();
  std::vector<ConversationId> labels;
  for (std::size_t i = progress.next; i < request.steps.size(); ++i) {
    const ConversationId& label = request.steps[i].key.conversation;
    if (labels.empty() || !(label == labels.back())) labels.push_back(label);
  }
  for (const ConversationId& label : labels) names.push_back(keys_.Tombstone(label));
  std::vector<Command> commands = {{{"GET", names[0]}, names[0]}};
  for (std::size_t i = 1; i < names.size(); ++i) {
    commands.push_back({{"EXISTS", names[i]}, names[i]});
  }
  const absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
  if (!replies.ok()) return replies.status();
  const absl::StatusOr<bool> another = AdoptSecret(replies->front());
  if (!another.ok()) return another.status();
  const auto rows = replies->begin() + 1;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const Reply& reply = (*replies)[rows_end + i];
    // An error is no proof that it may be stored.
    if (reply.kind != Reply::Kind::kInteger || reply.integer != 0) dead->push_back(labels[i]);
  }
  if (!dead->empty()) return absl::OkStatus();
  bool gone = *another;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (IsOne(rows[static_cast<std::ptrdiff_t>(i)])) continue;
    DiscardRow(owners[i]);
    gone = true;
  }
  if (!gone) return absl::OkStatus();
  return absl::AbortedError("the store has lost what was there; it is stored anew");
}

absl::Status RemoteTier::UploadExtents(const Digest128& row, const PublishPayload& payload,
                                       RowValue* value) {
  const std::size_t count = payload.extents.size();
  value->extents.resize(count);
  if (value->sealer != nullptr) value->headers.resize(count);
  std::atomic<std::size_t> next{0};
  std::vector<absl::Status> done(count);
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
      extent.codec = packing_.Pack(raw, &stored);
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
      const absl::Time begin = absl::Now();
      done[i] =
          redis_->Set(keys_.Extent(row, extent.ordinal), bytes,
                      absl::ToInt64Milliseconds(options_.ttl), TransferDeadline(bytes.size()));
      if (!done[i].ok()) {
        next = count;
        return;
      }
      packing_.NoteSent(bytes.size(), absl::Now() - begin);
      written_bytes_.fetch_add(bytes.size(), std::memory_order_relaxed);
    }
  };
  std::vector<std::thread> writers;
  for (std::size_t i = 1; i < std::min(kWriters, count); ++i) writers.emplace_back(write);
  write();
  for (std::thread& writer : writers) writer.join();
  absl::Status all;
  for (const absl::Status& one : done) all.Update(one);
  return all;
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
  {
    // A lookup may have found the one before useless.
    absl::MutexLock lock(&mu_);
    for (const std::string& name : names) discarded_.erase(name);
  }
  return Write(commands, deadline);
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
    const absl::StatusOr<std::string> bytes = EncodeRow(row, value);
    status = bytes.status();
    if (bytes.ok()) {
      status = redis_->Set(keys_.Row(row), *bytes, absl::ToInt64Milliseconds(options_.ttl),
                           TransferDeadline(bytes->size()));
    }
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
    return NotedWrite(status);
  }
  Add(chain, row, step.key.conversation, step.end);
  SetPlace(step.key, place);
  return absl::OkStatus();
}

absl::Status RemoteTier::Publish(const PublishRequest& request, PublishOutcome* outcome) {
  *outcome = PublishOutcome();
  if (!breaker_.closed()) return absl::UnavailableError(breaker_.reason());
  if (!writable()) return absl::ResourceExhaustedError("the store takes no writes");
  // Before boundaries are written under the same names.
  RemoveDiscarded();
  const absl::StatusOr<Digest128> secret = Secret(true, absl::Now() + options_.deadline);
  if (!secret.ok()) return secret.status();
  if (secret->IsZero()) return absl::AbortedError("the store's secret is not readable");
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
    const absl::StatusOr<FoundWay> found = Find(request.identity, request.tokens, 0);
    if (!found.ok()) return found.status();
    // What it found useless has its names written anew below.
    RemoveDiscarded();
    UseFound(request, found->parks, &progress);
    outcome->steps = static_cast<std::uint32_t>(progress.next);
    if (progress.next == request.steps.size()) return absl::OkStatus();
  }
  std::vector<ConversationId> dead;
  status = Check(request, progress, absl::Now() + options_.deadline, &dead);
  if (!status.ok()) return status;
  if (!dead.empty()) return EraseDead(request, dead, hashes, absl::Now() + options_.deadline);
  for (; progress.next < request.steps.size(); ++progress.next) {
    const PublishStep& step = request.steps[progress.next];
    const absl::StatusOr<PublishPayload> payload = request.read(step);
    if (!payload.ok()) return payload.status();
    if (absl::Status s = CheckPayload(*payload); !s.ok()) return s;
    status = Upload(step, *payload, hashes, &progress.chain);
    if (!status.ok()) return status;
    ++outcome->steps;
    ++outcome->written_parks;
    outcome->written_bytes += payload->record.summary.payload_bytes;
  }
  return absl::OkStatus();
}

}  // namespace parkade::remote
