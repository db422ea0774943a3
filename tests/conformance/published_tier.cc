#include "tests/conformance/published_tier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parkade::test {
namespace {

// Conversation of the parks that stand around the one that is stored.
constexpr std::uint64_t kAround = 0xa0a0;

// A park of tokens alone, which no other way has.
PublishPayload MakeAround(const ParkRecord& record, std::uint64_t way, std::uint32_t number,
                          TokenRange tokens) {
  PublishPayload around;
  ParkSummary& summary = around.record.summary;
  summary.key = {{kAround, way}, number};
  summary.identity = record.summary.identity;
  summary.first_token = tokens.begin;
  summary.token_count = tokens.size();
  summary.stages = record.summary.stages;
  for (std::uint32_t at = tokens.begin; at < tokens.end; ++at) {
    around.record.tokens.push_back(static_cast<Token>((way * 1009 + at) % 1'000'003));
    if ((at + 1) % kPageTokens == 0) summary.page_hashes.push_back(0);
  }
  return around;
}

// The park as a step of a root conversation that is long enough to have a boundary.
std::vector<PublishPayload> MakeWay(const ParkRecord& record, absl::Span<const ExtentBytes> payload,
                                    std::uint64_t number) {
  std::vector<PublishPayload> parks;
  const ParkSummary& summary = record.summary;
  if (summary.first_token > 0) {
    parks.push_back(MakeAround(record, number, 0, {0, summary.first_token}));
  }
  parks.push_back({record, {payload.begin(), payload.end()}});
  const std::uint32_t end = summary.end_token();
  if (end < kPageTokens) {
    parks.push_back(MakeAround(record, number, 1, {end, end + kPageTokens}));
  }
  return parks;
}

}  // namespace

PublishedTier::PublishedTier(std::unique_ptr<SharedTier> writer, std::unique_ptr<SharedTier> reader)
    : writer_(std::move(writer)), reader_(std::move(reader)) {}

TierUsage PublishedTier::usage() const {
  const TierUsage writer = writer_->usage();
  TierUsage usage = reader_->usage();
  usage.written_bytes += writer.written_bytes;
  usage.read_bytes += writer.read_bytes;
  if (usage.state == "up") usage.state = writer.state;
  return usage;
}

absl::Status PublishedTier::Enumerate(const std::function<void(const ParkSummary&)>& visit) {
  std::map<ParkKey, ParkSummary> held;
  {
    absl::MutexLock lock(&mu_);
    held = held_;
  }
  for (const auto& [key, summary] : held) visit(summary);
  return reader_->Enumerate(visit);
}

absl::Status PublishedTier::EnumerateAttributes(
    const std::function<void(const ConversationAttributes&)>& visit) {
  return reader_->EnumerateAttributes(visit);
}

absl::Status PublishedTier::EnumerateIdentities(
    const std::function<void(const Digest128&, const StoredIdentity&)>& visit) {
  return reader_->EnumerateIdentities(visit);
}

absl::StatusOr<std::vector<Token>> PublishedTier::ReadTokens(const ParkKey& key) {
  return reader_->ReadTokens(key);
}

absl::StatusOr<std::vector<ExtentInfo>> PublishedTier::ReadExtents(const ParkKey& key) {
  return reader_->ReadExtents(key);
}

std::uint64_t PublishedTier::Shortfall(std::uint64_t payload_bytes) const {
  return std::max(writer_->Shortfall(payload_bytes), reader_->Shortfall(payload_bytes));
}

absl::Status PublishedTier::Store(const ParkRecord& record, absl::Span<const ExtentBytes> payload) {
  const ParkKey& key = record.summary.key;
  {
    absl::MutexLock lock(&mu_);
    const auto free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !storing_.contains(key); };
    mu_.Await(absl::Condition(&free));
    if (held_.contains(key)) return absl::AlreadyExistsError("the park is held");
    storing_.insert(key);
  }
  const absl::StatusOr<FoundPark> found = PublishAndFind(record, payload);
  absl::MutexLock lock(&mu_);
  storing_.erase(key);
  if (!found.ok()) {
    // swallow: it only drops what it knows of the key, and says OK
    static_cast<void>(writer_->Remove({key}));
    return found.status();
  }
  reader_->Bind(key, *found);
  // All of it as the store gave it, but page hashes, which are every machine's own.
  ParkSummary summary = found->record.summary;
  summary.page_hashes = record.summary.page_hashes;
  held_.emplace(key, std::move(summary));
  return absl::OkStatus();
}

absl::StatusOr<FoundPark> PublishedTier::PublishAndFind(const ParkRecord& record,
                                                        absl::Span<const ExtentBytes> payload) {
  const ParkKey& key = record.summary.key;
  const std::vector<PublishPayload> parks = MakeWay(record, payload, next_way_.fetch_add(1));
  PublishRequest way;
  way.identity = record.summary.identity;
  std::vector<ParkKey> around;
  for (const PublishPayload& park : parks) {
    const ParkSummary& summary = park.record.summary;
    const TokenRange tokens{summary.first_token, summary.end_token()};
    way.steps.push_back({summary.key, tokens, tokens.end});
    way.tokens.insert(way.tokens.end(), park.record.tokens.begin(), park.record.tokens.end());
    if (summary.key != key) around.push_back(summary.key);
  }
  way.read = [&parks](const PublishStep& step) -> absl::StatusOr<PublishPayload> {
    for (const PublishPayload& park : parks) {
      if (park.record.summary.key == step.key) return park;
    }
    return absl::InternalError("asked for a park that is not on the way");
  };
  PublishOutcome outcome;
  const absl::Status published = writer_->Publish(way, &outcome);
  // swallow: it only drops what it knows of them, and says OK
  static_cast<void>(writer_->Remove(around));
  if (!published.ok()) return published;
  if (outcome.steps != way.steps.size()) {
    return absl::InternalError(
        absl::StrCat("published ", outcome.steps, " of ", way.steps.size(), " steps"));
  }
  if (std::find(outcome.bound.begin(), outcome.bound.end(), key) == outcome.bound.end()) {
    return absl::InternalError("published, and not bound");
  }
  // Whoever asks has at least one token more.
  way.tokens.push_back(0);
  absl::StatusOr<FoundWay> found = reader_->Find(way.identity, way.tokens, 0);
  if (!found.ok()) return found.status();
  if (found->lost_tokens != 0 || found->damaged || found->parks.size() != parks.size()) {
    return absl::InternalError(absl::StrCat("another machine finds ", found->parks.size(), " of ",
                                            parks.size(), " parks, ", found->lost_tokens,
                                            " tokens lost"));
  }
  for (FoundPark& park : found->parks) {
    if (park.record.summary.key == key) return std::move(park);
  }
  return absl::InternalError("another machine finds other parks");
}

absl::StatusOr<ExtentBytes> PublishedTier::ReadExtent(
    const ParkKey& key, std::uint32_t extent,
    const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) {
  return reader_->ReadExtent(key, extent, allocate);
}

void PublishedTier::WillRead(absl::Span<const ParkKey> keys) { reader_->WillRead(keys); }

std::vector<ParkKey> PublishedTier::TakeOut(absl::Span<const ParkKey> keys) {
  std::vector<ParkKey> gone;
  for (const ParkKey& key : keys) {
    if (storing_.contains(key)) continue;
    held_.erase(key);
    gone.push_back(key);
  }
  return gone;
}

// The tiers forget under the lock, which waits for nothing: a store of the key that comes next
// binds it anew.
absl::Status PublishedTier::Remove(absl::Span<const ParkKey> keys) {
  absl::MutexLock lock(&mu_);
  const std::vector<ParkKey> gone = TakeOut(keys);
  absl::Status status = writer_->Remove(gone);
  status.Update(reader_->Remove(gone));
  return status;
}

absl::Status PublishedTier::Forget(const ConversationId& conversation,
                                   absl::Span<const ParkKey> keys) {
  absl::MutexLock lock(&mu_);
  const std::vector<ParkKey> gone = TakeOut(keys);
  absl::Status status = writer_->Forget(conversation, gone);
  status.Update(reader_->Forget(conversation, gone));
  return status;
}

absl::Status PublishedTier::PutIdentity(const Digest128& digest, const StoredIdentity& identity) {
  return writer_->PutIdentity(digest, identity);
}

absl::Status PublishedTier::WriteAttributes(absl::Span<const ConversationAttributes> attributes,
                                            bool durable) {
  return writer_->WriteAttributes(attributes, durable);
}

void PublishedTier::Tick() {
  writer_->Tick();
  reader_->Tick();
}

}  // namespace parkade::test
