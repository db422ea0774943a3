#include "tests/support/memory_shared_tier.h"

#include <algorithm>

#include "src/format/checksum.h"
#include "tests/support/heap_buffer.h"

namespace parkade::test {
namespace {

std::uint32_t CommonPrefix(absl::Span<const Token> a, absl::Span<const Token> b) {
  const std::size_t count = std::min(a.size(), b.size());
  return static_cast<std::uint32_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin()).first -
      a.begin());
}

}  // namespace

MemoryStore::Way MemoryStore::Longest(const Digest128& identity,
                                      absl::Span<const Token> tokens) const {
  absl::MutexLock lock(&mu_);
  std::uint32_t most = 0;
  Way best;
  for (const Way& way : ways_) {
    const std::uint32_t same = CommonPrefix(way.tokens, tokens);
    if (!(way.identity == identity) || same <= most) continue;
    most = same;
    best = way;
  }
  return best;
}

void MemoryStore::Add(Way way) {
  absl::MutexLock lock(&mu_);
  ways_.push_back(std::move(way));
}

void MemoryStore::Put(const Digest128& row, PublishPayload payload) {
  absl::MutexLock lock(&mu_);
  rows_[row] = std::make_shared<const PublishPayload>(std::move(payload));
}

std::shared_ptr<const PublishPayload> MemoryStore::Get(const Digest128& row) const {
  absl::MutexLock lock(&mu_);
  const auto found = rows_.find(row);
  return found == rows_.end() ? nullptr : found->second;
}

std::size_t MemoryStore::ways() const {
  absl::MutexLock lock(&mu_);
  return ways_.size();
}

void MemoryStore::LoseAll() {
  absl::MutexLock lock(&mu_);
  ways_.clear();
  rows_.clear();
}

std::size_t MemorySharedTier::bound() const {
  absl::MutexLock lock(&mu_);
  return places_.size();
}

TierUsage MemorySharedTier::usage() const {
  TierUsage usage;
  usage.budget_bytes = kNoBudgetBytes;
  return usage;
}

absl::StatusOr<std::shared_ptr<const PublishPayload>> MemorySharedTier::Find(
    const ParkKey& key) const {
  absl::MutexLock lock(&mu_);
  const auto place = places_.find(key);
  if (place == places_.end()) return absl::NotFoundError("not bound");
  std::shared_ptr<const PublishPayload> payload = store_->Get(place->second);
  if (payload == nullptr) return absl::NotFoundError("not in the store");
  return payload;
}

absl::StatusOr<std::vector<Token>> MemorySharedTier::ReadTokens(const ParkKey& key) {
  const auto found = Find(key);
  if (!found.ok()) return found.status();
  return (*found)->record.tokens;
}

absl::StatusOr<std::vector<ExtentInfo>> MemorySharedTier::ReadExtents(const ParkKey& key) {
  const auto found = Find(key);
  if (!found.ok()) return found.status();
  return (*found)->record.extents;
}

absl::StatusOr<ExtentBytes> MemorySharedTier::ReadExtent(
    const ParkKey& key, std::uint32_t extent,
    const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) {
  const auto found = Find(key);
  if (!found.ok()) return found.status();
  if (extent >= (*found)->extents.size()) return absl::NotFoundError("no such extent");
  const ExtentBytes& bytes = (*found)->extents[extent];
  std::shared_ptr<ExtentBuffer> buffer = allocate(bytes->size());
  std::copy_n(bytes->data(), bytes->size(), buffer->data());
  return ExtentBytes(buffer);
}

absl::Status MemorySharedTier::Remove(absl::Span<const ParkKey> keys) {
  absl::MutexLock lock(&mu_);
  for (const ParkKey& key : keys) places_.erase(key);
  return absl::OkStatus();
}

absl::StatusOr<FoundWay> MemorySharedTier::Find(const Digest128& identity,
                                                absl::Span<const Token> tokens,
                                                std::uint32_t beyond) {
  FoundWay found;
  const MemoryStore::Way way = store_->Longest(identity, tokens);
  const std::uint32_t same = CommonPrefix(way.tokens, tokens);
  if (same <= beyond) return found;
  for (const MemoryStore::Step& step : way.steps) {
    const auto payload = store_->Get(step.row);
    if (payload == nullptr || payload->record.summary.first_token >= same) break;
    found.parks.push_back({step.row, payload->record, step.end});
  }
  return found;
}

void MemorySharedTier::Bind(const ParkKey& key, const FoundPark& park) {
  absl::MutexLock lock(&mu_);
  places_[key] = park.row;
}

absl::Status MemorySharedTier::Publish(const PublishRequest& request, PublishOutcome* outcome) {
  *outcome = PublishOutcome();
  MemoryStore::Way way{request.identity, request.tokens, {}};
  for (const PublishStep& step : request.steps) {
    Digest128 row;
    {
      absl::MutexLock lock(&mu_);
      const auto known = places_.find(step.key);
      if (known != places_.end()) row = known->second;
    }
    if (row.IsZero() || store_->Get(row) == nullptr) {
      absl::StatusOr<PublishPayload> payload = request.read(step);
      if (!payload.ok()) return payload.status();
      row = RandomDigest();
      outcome->written_bytes += payload->record.summary.payload_bytes;
      ++outcome->written_parks;
      // Bytes may be a local tier's own memory.
      for (ExtentBytes& bytes : payload->extents)
        bytes = CopyToHeap({bytes->data(), bytes->size()});
      store_->Put(row, *std::move(payload));
      absl::MutexLock lock(&mu_);
      places_[step.key] = row;
    }
    way.steps.push_back({row, step.end});
    ++outcome->steps;
    outcome->bound.push_back(step.key);
  }
  store_->Add(std::move(way));
  return absl::OkStatus();
}

}  // namespace parkade::test
