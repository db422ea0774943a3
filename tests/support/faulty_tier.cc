#include "tests/support/faulty_tier.h"

#include <algorithm>
#include <utility>

#include "tests/support/heap_buffer.h"

namespace parkade::test {
namespace {

bool Matches(const Fault& fault, const CallSubject& subject) {
  if (fault.call != subject.call) return false;
  if (fault.key &&
      std::find(subject.keys.begin(), subject.keys.end(), *fault.key) == subject.keys.end()) {
    return false;
  }
  // For ReadExtents the number says which extent to omit, not which call to hit.
  return !fault.extent || !subject.extent || *fault.extent == *subject.extent;
}

bool Before(const std::optional<Fault>& fault) {
  return fault && fault->kind == Fault::Kind::kFail;
}
bool After(const std::optional<Fault>& fault) {
  return fault && fault->kind == Fault::Kind::kFailAfter;
}

ExtentBytes Spoil(const Fault& fault, const ExtentBytes& bytes) {
  const std::string_view view = ViewOf(bytes);
  if (view.empty()) return bytes;
  if (fault.kind == Fault::Kind::kShorten) return CopyToHeap(view.substr(0, view.size() - 1));
  auto copy = MakeHeapBuffer(view.size());
  std::copy(view.begin(), view.end(), copy->data());
  copy->data()[fault.at % view.size()] ^= 1;
  return copy;
}

}  // namespace

FaultyTier::FaultyTier(std::unique_ptr<Tier> inner) : inner_(std::move(inner)) {}
FaultyTier::~FaultyTier() = default;

void FaultyTier::AddFault(Fault fault) {
  absl::MutexLock lock(&mu_);
  scripts_.push_back({std::move(fault), 0});
}

void FaultyTier::ClearFaults() {
  absl::MutexLock lock(&mu_);
  scripts_.clear();
}

void FaultyTier::SetObserver(std::function<void(const CallSubject&)> observer) {
  absl::MutexLock lock(&mu_);
  observer_ = std::move(observer);
}

std::uint64_t FaultyTier::calls(TierCall call) const {
  absl::MutexLock lock(&mu_);
  return calls_[static_cast<std::size_t>(call)];
}

std::uint64_t FaultyTier::payload_bytes_read() const {
  absl::MutexLock lock(&mu_);
  return payload_bytes_read_;
}

std::uint64_t FaultyTier::payload_bytes_written() const {
  absl::MutexLock lock(&mu_);
  return payload_bytes_written_;
}

std::uint64_t FaultyTier::faults_hit() const {
  absl::MutexLock lock(&mu_);
  return faults_hit_;
}

std::optional<Fault> FaultyTier::Enter(TierCall call, absl::Span<const ParkKey> keys,
                                       std::optional<std::uint32_t> extent) const {
  const CallSubject subject{call, keys, extent};
  std::optional<Fault> hit;
  std::function<void(const CallSubject&)> observer;
  {
    absl::MutexLock lock(&mu_);
    ++calls_[static_cast<std::size_t>(call)];
    observer = observer_;
    for (Script& script : scripts_) {
      if (!Matches(script.fault, subject)) continue;
      const std::uint64_t number = script.matched++;
      if (number < script.fault.skip || number - script.fault.skip >= script.fault.times) continue;
      hit = script.fault;
      ++faults_hit_;
      break;
    }
  }
  if (observer) observer(subject);
  return hit;
}

template <typename Forward>
absl::Status FaultyTier::Run(const std::optional<Fault>& fault, const Forward& forward) const {
  if (Before(fault)) return fault->status;
  const absl::Status status = forward();
  return status.ok() && After(fault) ? fault->status : status;
}

absl::Status FaultyTier::Enumerate(const std::function<void(const ParkSummary&)>& visit) {
  return Run(Enter(TierCall::kEnumerate, {}), [&] { return inner_->Enumerate(visit); });
}

absl::Status FaultyTier::EnumerateAttributes(
    const std::function<void(const ConversationAttributes&)>& visit) {
  return Run(Enter(TierCall::kEnumerateAttributes, {}),
             [&] { return inner_->EnumerateAttributes(visit); });
}

absl::Status FaultyTier::EnumerateIdentities(
    const std::function<void(const Digest128&, const StoredIdentity&)>& visit) {
  return Run(Enter(TierCall::kEnumerateIdentities, {}),
             [&] { return inner_->EnumerateIdentities(visit); });
}

absl::StatusOr<std::vector<Token>> FaultyTier::ReadTokens(const ParkKey& key) {
  const auto fault = Enter(TierCall::kReadTokens, {&key, 1});
  if (Before(fault)) return fault->status;
  auto tokens = inner_->ReadTokens(key);
  if (tokens.ok() && After(fault)) return fault->status;
  return tokens;
}

absl::StatusOr<std::vector<ExtentInfo>> FaultyTier::ReadExtents(const ParkKey& key) {
  const auto fault = Enter(TierCall::kReadExtents, {&key, 1});
  if (Before(fault)) return fault->status;
  auto extents = inner_->ReadExtents(key);
  if (!extents.ok() || !fault) return extents;
  if (After(fault)) return fault->status;
  if (fault->kind == Fault::Kind::kOmit && !extents->empty()) {
    const std::size_t last = extents->size() - 1;
    const std::size_t index = std::min<std::size_t>(fault->extent.value_or(last), last);
    extents->erase(extents->begin() + static_cast<std::ptrdiff_t>(index));
  }
  return extents;
}

std::uint64_t FaultyTier::Shortfall(std::uint64_t payload_bytes) const {
  const auto fault = Enter(TierCall::kShortfall, {});
  return fault ? UINT64_MAX : inner_->Shortfall(payload_bytes);
}

absl::Status FaultyTier::Store(const ParkRecord& record, absl::Span<const ExtentBytes> payload) {
  const ParkKey key = record.summary.key;
  const auto fault = Enter(TierCall::kStore, {&key, 1});
  std::vector<ExtentBytes> spoilt;
  if (fault && fault->kind == Fault::Kind::kFlip && !payload.empty()) {
    spoilt.assign(payload.begin(), payload.end());
    ExtentBytes& one = spoilt[fault->extent.value_or(0) % spoilt.size()];
    one = Spoil(*fault, one);
    payload = spoilt;
  }
  const absl::Status status = Run(fault, [&] { return inner_->Store(record, payload); });
  if (status.ok()) {
    absl::MutexLock lock(&mu_);
    for (const ExtentBytes& bytes : payload) payload_bytes_written_ += bytes->size();
  }
  return status;
}

absl::StatusOr<ExtentBytes> FaultyTier::ReadExtent(
    const ParkKey& key, std::uint32_t extent,
    const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) {
  const auto fault = Enter(TierCall::kReadExtent, {&key, 1}, extent);
  if (Before(fault)) return fault->status;
  auto bytes = inner_->ReadExtent(key, extent, allocate);
  if (!bytes.ok()) return bytes;
  if (After(fault)) return fault->status;
  if (fault && (fault->kind == Fault::Kind::kFlip || fault->kind == Fault::Kind::kShorten)) {
    *bytes = Spoil(*fault, *bytes);
  }
  absl::MutexLock lock(&mu_);
  payload_bytes_read_ += (*bytes)->size();
  return bytes;
}

void FaultyTier::WillRead(absl::Span<const ParkKey> keys) {
  if (!Before(Enter(TierCall::kWillRead, keys))) inner_->WillRead(keys);
}

absl::Status FaultyTier::Remove(absl::Span<const ParkKey> keys) {
  return Run(Enter(TierCall::kRemove, keys), [&] { return inner_->Remove(keys); });
}

absl::Status FaultyTier::Forget(const ConversationId& conversation,
                                absl::Span<const ParkKey> keys) {
  return Run(Enter(TierCall::kForget, keys), [&] { return inner_->Forget(conversation, keys); });
}

absl::Status FaultyTier::PutIdentity(const Digest128& digest, const StoredIdentity& identity) {
  return Run(Enter(TierCall::kPutIdentity, {}),
             [&] { return inner_->PutIdentity(digest, identity); });
}

absl::Status FaultyTier::WriteAttributes(absl::Span<const ConversationAttributes> attributes,
                                         bool durable) {
  return Run(Enter(TierCall::kWriteAttributes, {}),
             [&] { return inner_->WriteAttributes(attributes, durable); });
}

void FaultyTier::Tick() {
  if (!Before(Enter(TierCall::kTick, {}))) inner_->Tick();
}

}  // namespace parkade::test
