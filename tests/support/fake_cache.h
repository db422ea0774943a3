// A cache of two conversations and a RAM tier, for whoever answers requests about one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parkade/conversation_cache.h"

namespace parkade {

class FakeCache : public ConversationCache {
 public:
  static constexpr ConversationId kFirst = {0x1, 0xa};
  static constexpr ConversationId kSecond = {0x2, 0xb};

  FakeCache() {
    ConversationInfo first;
    first.id = kFirst;
    first.tokens = 300;
    first.durable_tokens = 256;
    first.bytes = 12345;
    first.tiers = {TierKind::kRam, TierKind::kDisk};
    first.created_unix_ms = 1700000000123;
    first.last_used_unix_ms = 1700000001000;
    first.hits = 4;
    first.evict_rank = 1;
    first.stages.stages = {{"GPU0", {0, 1}}, {"RPC[a]", {2}}};
    conversations[kFirst] = first;
    ConversationInfo second;
    second.id = kSecond;
    second.name = "caf\xc3\xa9 \xff";  // not UTF-8
    second.pinned = true;
    second.forked_from = kFirst;
    second.forked_at = 192;
    conversations[kSecond] = second;
    TierInfo ram;
    ram.kind = TierKind::kRam;
    ram.usage = {10, 20, 0, 30, 1, 2, 0, "up"};
    ram.conversations = 2;
    tiers = {ram};
  }

  absl::StatusOr<Digest128> RegisterIdentity(const Identity&, const StateLayout&) override {
    return Digest128();
  }
  std::unique_ptr<Restore> Lookup(LookupRequest) override { return nullptr; }
  void Prefetch(const Digest128&, absl::Span<const Token>) override {}
  void NotePromptRead(std::uint32_t, std::uint32_t, double) override {}
  void FinishLookup(std::unique_ptr<Restore>, std::uint32_t) override {}
  RestoreTotals FinishSession(std::unique_ptr<Restore>) override { return {}; }
  absl::StatusOr<SavedSession> SaveSession(const ConversationId&, std::uint32_t, const std::string&,
                                           std::int64_t) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<SavedSession> FindSession(const std::string&) override {
    return absl::UnimplementedError("");
  }
  std::string DifferentField(const Digest128&, const Digest128&) const override { return ""; }
  ParkOutcome Park(EngineSequence&, const ParkRequest&) override { return {}; }
  void CountSkippedPark(SkipReason, std::uint32_t) override {}

  std::vector<ConversationInfo> List(std::uint32_t limit,
                                     const ConversationId& after) const override {
    listed_limit = limit;
    std::vector<ConversationInfo> out;
    for (const auto& [id, conversation] : conversations) {
      if (out.size() < limit && (after.IsZero() || id > after)) out.push_back(conversation);
    }
    return out;
  }
  std::optional<ConversationInfo> Get(const ConversationId& id) const override {
    const auto found = conversations.find(id);
    if (found == conversations.end()) return std::nullopt;
    return found->second;
  }
  std::vector<LookupRecord> Lookups(std::uint32_t limit) const override {
    listed_limit = limit;
    return lookups;
  }
  std::vector<TierInfo> Tiers() const override {
    if (throws) throw std::runtime_error("broken");
    return tiers;
  }
  QueueInfo Queue() const override { return {}; }
  absl::StatusOr<std::uint32_t> Forget(const ConversationId& id) override {
    if (conversations.erase(id) == 0) return absl::NotFoundError("no such conversation");
    return 192;
  }
  absl::Status Pin(const ConversationId& id, bool pinned,
                   const std::optional<std::string>& name) override {
    if (!refuse.ok()) return refuse;
    if (!conversations.contains(id)) return absl::NotFoundError("no such conversation");
    conversations.at(id).pinned = pinned;
    conversations.at(id).name = name.value_or(conversations.at(id).name);
    return absl::OkStatus();
  }
  void UseHostMemory(std::shared_ptr<HostMemory> /*memory*/) override {}
  absl::Status SetBudget(TierKind tier, std::uint64_t budget_bytes) override {
    if (!refuse.ok()) return refuse;
    for (TierInfo& info : tiers) {
      if (info.kind == tier) info.usage.budget_bytes = budget_bytes;
    }
    return absl::OkStatus();
  }
  void Drain(std::int64_t) override {}

  std::map<ConversationId, ConversationInfo> conversations;
  std::vector<LookupRecord> lookups;
  std::vector<TierInfo> tiers;
  absl::Status refuse;
  bool throws = false;
  mutable std::uint32_t listed_limit = 0;
};

}  // namespace parkade
