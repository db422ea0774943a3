#include "src/server/api_json.h"

#include <algorithm>
#include <optional>
#include <string>

#include "parkade/identity.h"
#include "src/server/lookup_line.h"

namespace parkade {
namespace {

double Seconds(std::int64_t unix_ms) { return static_cast<double>(unix_ms) / 1e3; }

Json NullIfEmpty(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json NullIfZero(const ConversationId& id) { return id.IsZero() ? Json() : Json(ToHex(id)); }

Json TierNames(const std::vector<TierKind>& tiers) {
  Json out = Json::array();
  for (const TierKind tier : tiers) out.push_back(TierName(tier));
  return out;
}

Json RangeJson(const TokenRange& range) { return Json::array({range.begin, range.end}); }

Json BoundaryJson(const LookupRecord& record) {
  if (record.boundary_kind == BoundaryKind::kNone) return Json();
  return {{"position", record.boundary_tokens}, {"kind", BoundaryKindName(record.boundary_kind)}};
}

Json ExpectedJson(const LookupRecord& record) {
  if (record.expected_read_seconds <= 0) return Json();
  return {{"load_seconds", record.expected_load_seconds},
          {"read_seconds", record.expected_read_seconds}};
}

Json ParkJson(const ConversationInfo::ParkDetail& park) {
  Json window_rows = Json::array();
  for (const TokenRange& range : park.window_rows) window_rows.push_back(RangeJson(range));
  return {{"park", park.park},
          {"tokens", RangeJson(park.tokens)},
          {"bytes", park.bytes},
          {"tiers", TierNames(park.tiers)},
          {"stages", park.stages},
          {"window_rows", std::move(window_rows)},
          {"checkpoints", park.checkpoints}};
}

}  // namespace

Json ConversationJson(const ConversationInfo& conversation) {
  return {{"id", ToHex(conversation.id)},
          {"name", NullIfEmpty(conversation.name)},
          {"pinned", conversation.pinned},
          {"tokens", conversation.tokens},
          {"durable_tokens", conversation.durable_tokens},
          {"stages", conversation.stages.stages.size()},
          {"bytes", conversation.bytes},
          {"tiers", TierNames(conversation.tiers)},
          {"created", Seconds(conversation.created_unix_ms)},
          {"last_used", Seconds(conversation.last_used_unix_ms)},
          {"hits", conversation.hits},
          {"forked_from", NullIfZero(conversation.forked_from.value_or(ConversationId()))},
          {"evict_rank", conversation.evict_rank}};
}

Json ConversationDetailJson(const ConversationInfo& conversation) {
  Json out = ConversationJson(conversation);
  out["forked_at"] = conversation.forked_from.has_value() ? Json(conversation.forked_at) : Json();
  Json stage_map = Json::array();
  for (const Stage& stage : conversation.stages.stages) {
    stage_map.push_back({{"device", stage.device}, {"layers", stage.layers}});
  }
  out["stage_map"] = std::move(stage_map);
  std::vector<std::uint32_t> checkpoints;
  Json parks = Json::array();
  for (const ConversationInfo::ParkDetail& park : conversation.parks) {
    checkpoints.insert(checkpoints.end(), park.checkpoints.begin(), park.checkpoints.end());
    parks.push_back(ParkJson(park));
  }
  std::sort(checkpoints.begin(), checkpoints.end());
  checkpoints.erase(std::unique(checkpoints.begin(), checkpoints.end()), checkpoints.end());
  out["checkpoints"] = checkpoints;
  out["checkpoint_bytes"] = conversation.checkpoint_bytes;
  out["window_rows"] = conversation.window_rows;
  out["window_bytes"] = conversation.window_bytes;
  out["parks"] = std::move(parks);
  return out;
}

Json TiersJson(const std::vector<TierInfo>& tiers) {
  Json out = Json::array();
  for (const TierInfo& tier : tiers) {
    const bool ours = tier.usage.budget_bytes != kNoBudgetBytes;
    out.push_back({{"tier", TierName(tier.kind)},
                   {"used_bytes", ours ? Json(tier.usage.used_bytes) : Json()},
                   {"budget_bytes", ours ? Json(tier.usage.budget_bytes) : Json()},
                   {"physical_bytes", tier.usage.physical_bytes},
                   {"free_bytes", tier.usage.free_bytes},
                   {"conversations", tier.conversations},
                   {"state", tier.usage.state}});
  }
  return out;
}

Json LookupJson(const LookupRecord& record) {
  Json hit_tokens = Json::object();
  for (int i = 0; i < kSources; ++i) {
    if (record.hit_tokens[i] == 0) continue;
    hit_tokens[std::string(SourceName(static_cast<Source>(i)))] = record.hit_tokens[i];
  }
  Json miss_tokens = Json::object();
  for (int i = 0; i < kMissReasons; ++i) {
    if (record.miss_tokens[i] == 0) continue;
    miss_tokens[std::string(MissReasonName(static_cast<MissReason>(i)))] = record.miss_tokens[i];
  }
  Json stage_tiers = Json::array();
  for (const Source source : record.stage_sources) stage_tiers.push_back(SourceName(source));
  const std::optional<MissReason> reason = MainMissReason(record);
  const bool explain = reason.has_value() && record.outcome != LookupOutcome::kFull;
  const bool differs = reason == MissReason::kDiverged || record.first_difference > 0;
  return {{"time", Seconds(record.unix_ms)},
          {"prompt_tokens", record.prompt_tokens},
          {"matched_tokens", record.matched_tokens},
          {"usable_tokens", record.usable_tokens},
          {"reused_tokens", record.reused_tokens},
          {"conversation", NullIfZero(record.conversation)},
          {"outcome", LookupOutcomeName(record.outcome)},
          {"boundary", BoundaryJson(record)},
          {"stage_tiers", std::move(stage_tiers)},
          {"seconds", record.lookup_seconds + record.restore_seconds},
          {"lookup_seconds", record.lookup_seconds},
          {"restore_seconds", record.restore_seconds},
          {"restored_bytes", record.restored_bytes},
          {"expected", ExpectedJson(record)},
          {"hit_tokens", std::move(hit_tokens)},
          {"miss_tokens", std::move(miss_tokens)},
          {"reason", explain ? Json(MissReasonName(*reason)) : Json()},
          {"first_difference", explain && differs ? Json(record.first_difference) : Json()},
          {"identity_field", NullIfEmpty(record.identity_field)},
          {"changed", NullIfEmpty(record.changed)},
          {"failed_tier",
           record.failed_tier.has_value() ? Json(SourceName(*record.failed_tier)) : Json()},
          {"detail", NullIfEmpty(record.detail)}};
}

}  // namespace parkade
