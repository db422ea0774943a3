// Small rows: identities, last uses, pins and names.
#include <algorithm>

#include "tiers/disk/tier_impl.h"

namespace parkade::disk {
namespace {

bool SameName(const ConversationAttributes& a, const ConversationAttributes& b) {
  return a.pinned == b.pinned && a.name == b.name && a.name_tokens == b.name_tokens;
}

// The part that may be lost with the catalogue.
ConversationAttributes UsageOnly(const ConversationAttributes& attributes) {
  ConversationAttributes usage;
  usage.conversation = attributes.conversation;
  usage.last_used_unix_ms = attributes.last_used_unix_ms;
  usage.hits = attributes.hits;
  return usage;
}

}  // namespace

DiskTier::AttributesTurn::AttributesTurn(DiskTier* tier) : tier_(tier) {
  absl::MutexLock lock(&tier->mutex_);
  const auto free = [tier]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(tier->mutex_) {
    return !tier->attributes_taken_;
  };
  tier->mutex_.Await(absl::Condition(&free));
  tier->attributes_taken_ = true;
}

DiskTier::AttributesTurn::~AttributesTurn() {
  absl::MutexLock lock(&tier_->mutex_);
  tier_->attributes_taken_ = false;
}

absl::Status DiskTier::PutIdentity(const Digest128& digest, const StoredIdentity& identity) {
  std::string value = EncodeIdentity(identity);
  if (absl::Status s = DecodeIdentity(value).status(); !s.ok()) {
    return absl::InvalidArgumentError(s.message());
  }
  {
    absl::MutexLock lock(&mutex_);
    const auto it = identities_.find(digest);
    if (it != identities_.end() && it->second == value) return absl::OkStatus();
  }
  if (absl::Status s = Writable(); !s.ok()) return s;
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  if (!db.ok()) return db.status();
  RowBatch batch;
  batch.puts.push_back({Family::kIdentity, DigestKey(digest), value});
  if (absl::Status s = (*db)->Write(batch, true); !s.ok()) {
    Fail(s);
    return s;
  }
  absl::MutexLock lock(&mutex_);
  identities_[digest] = std::move(value);
  return absl::OkStatus();
}

absl::Status DiskTier::EnumerateAttributes(
    const std::function<void(const ConversationAttributes&)>& visit) {
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  if (!db.ok()) return db.status();
  absl::flat_hash_map<ConversationId, ConversationAttributes, DigestHash> names;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, entry] : names_) names[id] = entry.attributes;
  }
  const absl::Status scanned = (*db)->Scan(Family::kUsage, "", "", [&](auto key, auto value) {
    const absl::StatusOr<ConversationId> id = ParseConversationKey(key);
    if (!id.ok()) return true;
    absl::StatusOr<ConversationAttributes> attributes = DecodeAttributes(*id, value);
    if (!attributes.ok()) return true;
    const auto it = names.find(*id);
    if (it != names.end()) {
      attributes->pinned = it->second.pinned;
      attributes->name = it->second.name;
      attributes->name_tokens = it->second.name_tokens;
      names.erase(it);
    }
    visit(*attributes);
    return true;
  });
  if (!scanned.ok()) return scanned;
  // Their usage rows were lost with a catalogue.
  for (const auto& [id, attributes] : names) visit(attributes);
  return absl::OkStatus();
}

std::vector<ConversationAttributes> DiskTier::ChangedNames(
    absl::Span<const ConversationAttributes> attributes) const {
  static const auto& kNoName = *new ConversationAttributes();
  std::vector<ConversationAttributes> changed;
  absl::MutexLock lock(&mutex_);
  for (const ConversationAttributes& wanted : attributes) {
    const auto it = names_.find(wanted.conversation);
    // A name that was taken away keeps its row: the newest one counts when rows are put together
    // from segments.
    const ConversationAttributes& held = it == names_.end() ? kNoName : it->second.attributes;
    if (!SameName(wanted, held)) changed.push_back(wanted);
  }
  return changed;
}

absl::Status DiskTier::WriteNames(CatalogueDb* db, std::vector<ConversationAttributes> changed,
                                  RowBatch* batch, std::vector<std::uint64_t>* replaced) {
  std::vector<CatalogueRow> inner;
  for (const ConversationAttributes& attributes : changed) {
    inner.push_back(
        {Family::kName, ConversationKey(attributes.conversation), EncodeAttributes(attributes)});
  }
  const RowsSegment segment =
      BuildRowsSegment(writer_.TakeNumber(), inner, NewSegmentSealer(directory_->key()));
  absl::StatusOr<std::uint64_t> block_bytes = writer_.Write(segment);
  if (!block_bytes.ok()) return block_bytes.status();
  batch->puts.insert(batch->puts.end(), segment.rows.begin(), segment.rows.end());
  if (absl::Status s = db->Write(*batch, true); !s.ok()) {
    // swallow: a file that no row names goes at the next open.
    (void)directory_->Unlink(segment.ref.segment);
    return s;
  }
  ledger_.AddSegment(*block_bytes);
  absl::MutexLock lock(&mutex_);
  absl::flat_hash_set<std::uint64_t> before;
  for (ConversationAttributes& attributes : changed) {
    NameEntry& entry = names_[attributes.conversation];
    before.insert(entry.ref.segment);
    entry = {segment.ref, std::move(attributes)};
  }
  for (const auto& [id, entry] : names_) before.erase(entry.ref.segment);
  before.erase(0);
  replaced->assign(before.begin(), before.end());
  return absl::OkStatus();
}

absl::Status DiskTier::WriteAttributes(absl::Span<const ConversationAttributes> attributes,
                                       bool durable) {
  if (attributes.empty()) return absl::OkStatus();
  if (absl::Status s = Writable(); !s.ok()) return s;
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  if (!db.ok()) return db.status();
  const AttributesTurn turn(this);
  RowBatch batch;
  for (const ConversationAttributes& one : attributes) {
    batch.puts.push_back(
        {Family::kUsage, ConversationKey(one.conversation), EncodeAttributes(UsageOnly(one))});
  }
  std::vector<ConversationAttributes> changed = ChangedNames(attributes);
  std::vector<std::uint64_t> replaced;
  const absl::Status written = changed.empty()
                                   ? (*db)->Write(batch, durable)
                                   : WriteNames(&**db, std::move(changed), &batch, &replaced);
  if (!written.ok()) {
    Fail(written);
    return written;
  }
  writer_.Reach("attributes.rows");
  Unlink(replaced);
  return absl::OkStatus();
}

}  // namespace parkade::disk
