// Names, pins and last uses on their way to the tiers.
//
// A tier has a conversation's attributes while it holds a park of it, and not longer: its own
// Remove takes them along with the last park. So none are written where no park is, and whoever has
// written some looks again afterwards, for what went, or was named, meanwhile.

#include <utility>

#include "src/manager/cache_impl.h"

namespace parkade {
namespace {

// Attributes are written at most this often a conversation.
constexpr std::int64_t kAttributesEveryMs = 60000;

bool SameMarks(const ConversationAttributes& a, const ConversationAttributes& b) {
  return a.pinned == b.pinned && a.name == b.name && a.name_tokens == b.name_tokens;
}

// What a restart must not lose: a pin, a name, that it was forgotten.
bool HasMarks(const ConversationAttributes& attributes) {
  return !SameMarks(attributes, ConversationAttributes());
}

}  // namespace

void CacheImpl::WriteAttributes(bool all) {
  if (durable_tier_ < 0) return;
  const std::size_t tier = static_cast<std::size_t>(durable_tier_);
  std::vector<ConversationAttributes> dirty;
  {
    absl::MutexLock lock(&mu_);
    const std::int64_t now = NowUnixMs();
    for (const auto& [id, handle] : catalogue_.by_id()) {
      Conversation* conversation = catalogue_.Get(handle);
      if (!conversation->attributes_dirty || conversation->forgotten) continue;
      if (conversation->parks_in[tier] == 0) continue;
      if (!all && now - conversation->written_unix_ms < kAttributesEveryMs) continue;
      conversation->attributes_dirty = false;
      conversation->written_unix_ms = now;
      dirty.push_back(conversation->attributes);
    }
  }
  if (dirty.empty()) return;
  const absl::Status written = tiers_[tier]->WriteAttributes(dirty, false);
  if (!written.ok()) ReportTierError(tier, "write", written);
  for (const ConversationAttributes& row : dirty) {
    const absl::Status settled = StoreAttributesInto(tier, row.conversation, &row);
    if (!settled.ok()) ReportTierError(tier, "write", settled);
  }
}

absl::Status CacheImpl::StoreAttributes(const ConversationId& id) {
  absl::Status stored;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    stored.Update(StoreAttributesInto(tier, id, nullptr));
  }
  absl::MutexLock lock(&mu_);
  const bool gone = catalogue_.FindId(id) == kNoHandle;
  return gone ? absl::NotFoundError("no such conversation") : stored;
}

// *written: what the tier was given last; null: nothing.
absl::Status CacheImpl::StoreAttributesInto(std::size_t tier, const ConversationId& id,
                                            const ConversationAttributes* written) {
  ConversationAttributes last;
  bool forgotten = false;
  while (true) {
    ConversationAttributes wanted;
    {
      absl::MutexLock lock(&mu_);
      const Handle handle = catalogue_.FindId(id);
      const Conversation* conversation = handle == kNoHandle ? nullptr : catalogue_.Get(handle);
      forgotten = conversation == nullptr || conversation->forgotten;
      if (conversation == nullptr || conversation->parks_in[tier] == 0) break;
      wanted = conversation->attributes;
    }
    if (written != nullptr && SameMarks(*written, wanted)) return absl::OkStatus();
    const absl::Status done = tiers_[tier]->WriteAttributes(absl::MakeConstSpan(&wanted, 1), true);
    last = std::move(wanted);
    written = &last;
    if (!done.ok()) return done;
  }
  if (written == nullptr) return absl::OkStatus();
  // Of one that was forgotten no text may stay.
  if (forgotten) return tiers_[tier]->Forget(id, {});
  const ParkKey any{id, 0};
  return tiers_[tier]->Remove(absl::MakeConstSpan(&any, 1));
}

// Before its first park, so that no crash brings back one that was forgotten, or loses a pin.
absl::Status CacheImpl::StoreWithAttributes(std::size_t tier, const ParkRecord& record,
                                            const std::vector<ExtentBytes>& payload) {
  const ConversationId& id = record.summary.key.conversation;
  std::optional<ConversationAttributes> marks;
  if (tiers_[tier]->durable()) marks = MarksWithoutPark(tier, id);
  absl::Status stored;
  if (marks.has_value()) {
    stored = tiers_[tier]->WriteAttributes(absl::MakeConstSpan(&*marks, 1), true);
  }
  if (stored.ok()) stored = tiers_[tier]->Store(record, payload);
  if (stored.ok() || !marks.has_value()) return stored;
  const absl::Status undone = StoreAttributesInto(tier, id, &*marks);
  if (!undone.ok()) ReportTierError(tier, "remove", undone);
  return stored;
}

std::optional<ConversationAttributes> CacheImpl::MarksWithoutPark(std::size_t tier,
                                                                  const ConversationId& id) const {
  absl::MutexLock lock(&mu_);
  const Handle handle = catalogue_.FindId(id);
  if (handle == kNoHandle) return std::nullopt;
  const Conversation* conversation = catalogue_.Get(handle);
  if (conversation->parks_in[tier] > 0 || !HasMarks(conversation->attributes)) return std::nullopt;
  return conversation->attributes;
}

}  // namespace parkade
