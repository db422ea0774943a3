#include "src/cli/commands.h"

#include <exception>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/cli/metrics_text.h"
#include "src/cli/tables.h"

namespace parkade {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPage = 1000;
constexpr int kShownLookups = 50;

absl::StatusOr<std::string> AskText(const HttpCall& call, const HttpRequest& request) {
  absl::StatusOr<HttpReply> reply = call(request);
  if (!reply.ok()) return reply.status();
  if (reply->status == 200) return std::move(reply->body);
  const Json json = Json::parse(reply->body, nullptr, /*allow_exceptions=*/false);
  std::string message = absl::StrCat("the server answers ", reply->status);
  if (json.is_object() && json.contains("error") && json["error"].is_object()) {
    absl::StrAppend(&message, ": ", json["error"].value("message", ""));
  }
  if (reply->status == 401) absl::StrAppend(&message, "; give the key with --api-key");
  if (reply->status == 404 && request.path.rfind("/conversations", 0) == 0 && !json.is_object()) {
    absl::StrAppend(&message, "; is it a parkade-server?");
  }
  return absl::UnknownError(message);
}

absl::StatusOr<Json> AskJson(const HttpCall& call, const HttpRequest& request) {
  const absl::StatusOr<std::string> text = AskText(call, request);
  if (!text.ok()) return text.status();
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::UnknownError("the server's answer is not a JSON object");
  return json;
}

// All pages as one answer.
absl::StatusOr<Json> GetConversations(const HttpCall& call) {
  Json all;
  std::string after;
  while (true) {
    absl::StatusOr<Json> page = AskJson(
        call,
        {absl::StrCat("/conversations?limit=", kPage, after.empty() ? "" : "&after=", after)});
    if (!page.ok()) return page.status();
    const Json& listed = page->at("conversations");
    const bool last = listed.size() < kPage;
    const std::string next = listed.empty() ? "" : listed.back().at("id").get<std::string>();
    if (all.is_null()) {
      all = *std::move(page);
    } else {
      for (const Json& conversation : listed) all["conversations"].push_back(conversation);
    }
    if (last || next == after) return all;
    after = next;
  }
}

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Text(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? "-" : value.get<std::string>();
}

double Number(const Json& json, const char* key) { return json.at(key).get<double>(); }

std::string Joined(const Json& words) {
  std::string out;
  for (const Json& word : words) {
    absl::StrAppend(&out, out.empty() ? "" : ",", word.get<std::string>());
  }
  return out.empty() ? "-" : out;
}

std::string Range(const Json& range) {
  return absl::StrCat(FormatCount(range.at(0).get<double>()), "-",
                      FormatCount(range.at(1).get<double>()));
}

std::string ConversationsTable(const Json& json, double now) {
  Table table({"ID", "NAME", ">TOKENS", ">DURABLE", ">SIZE", "TIERS", ">STAGES", ">HITS",
               ">LAST USED", ""});
  for (const Json& each : json.at("conversations")) {
    std::string marks = each.at("pinned").get<bool>() ? "pinned" : "";
    if (!each.at("forked_from").is_null()) marks.append(marks.empty() ? "fork" : ", fork");
    table.AddRow({Text(each, "id"), Text(each, "name"), FormatCount(Number(each, "tokens")),
                  FormatCount(Number(each, "durable_tokens")), FormatBytes(Number(each, "bytes")),
                  Joined(each.at("tiers")), FormatCount(Number(each, "stages")),
                  FormatCount(Number(each, "hits")), FormatAge(now - Number(each, "last_used")),
                  marks});
  }
  return table.Text();
}

std::string TiersTable(const Json& json) {
  Table table({"TIER", ">USED", ">BUDGET", ">PHYSICAL", ">FREE", ">CONVERSATIONS", "STATE"});
  for (const Json& tier : json.at("tiers")) {
    table.AddRow(
        {Text(tier, "tier"), FormatBytes(Number(tier, "used_bytes")),
         tier.at("budget_bytes").is_null() ? "-" : FormatBytes(Number(tier, "budget_bytes")),
         FormatBytes(Number(tier, "physical_bytes")), FormatBytes(Number(tier, "free_bytes")),
         FormatCount(Number(tier, "conversations")), Text(tier, "state")});
  }
  return table.Text();
}

std::string ConversationText(const Json& json, double now) {
  Table facts({"ID", Text(json, "id")});
  facts.AddRow({"name", Text(json, "name")});
  facts.AddRow({"pinned", json.at("pinned").get<bool>() ? "yes" : "no"});
  facts.AddRow({"tokens", absl::StrCat(FormatCount(Number(json, "tokens")), ", durable ",
                                       FormatCount(Number(json, "durable_tokens")))});
  facts.AddRow({"size", FormatBytes(Number(json, "bytes"))});
  facts.AddRow({"tiers", Joined(json.at("tiers"))});
  facts.AddRow({"created", FormatAge(now - Number(json, "created"))});
  facts.AddRow({"last used", FormatAge(now - Number(json, "last_used"))});
  facts.AddRow({"hits", FormatCount(Number(json, "hits"))});
  facts.AddRow({"evict rank", FormatCount(Number(json, "evict_rank"))});
  if (!json.at("forked_from").is_null()) {
    facts.AddRow({"fork of", absl::StrCat(Text(json, "forked_from"), " at token ",
                                          FormatCount(Number(json, "forked_at")))});
  }
  std::string checkpoints;
  for (const Json& position : json.at("checkpoints")) {
    absl::StrAppend(&checkpoints, checkpoints.empty() ? "" : ", ",
                    FormatCount(position.get<double>()));
  }
  facts.AddRow({"checkpoints", checkpoints.empty() ? "-" : checkpoints});

  Table stages({">STAGE", ">LAYERS", "DEVICE"});
  int stage_number = 0;
  for (const Json& stage : json.at("stage_map")) {
    stages.AddRow({std::to_string(stage_number++), std::to_string(stage.at("layers").size()),
                   Text(stage, "device")});
  }
  Table parks({">PARK", ">TOKENS", ">SIZE", ">STAGES", "TIERS"});
  for (const Json& park : json.at("parks")) {
    parks.AddRow({FormatCount(Number(park, "park")), Range(park.at("tokens")),
                  FormatBytes(Number(park, "bytes")), FormatCount(Number(park, "stages")),
                  Joined(park.at("tiers"))});
  }
  return absl::StrCat(facts.Text(), "\n", stages.Text(), "\n", parks.Text());
}

std::string LookupsTable(const Json& json, double now) {
  Table table(
      {">WHEN", "OUTCOME", ">PROMPT", ">REUSED", "FROM", "WHY NOT MORE", ">TIME", "CONVERSATION"});
  for (const Json& each : json.at("lookups")) {
    Json sources = Json::array();
    for (const auto& [tier, tokens] : each.at("hit_tokens").items()) sources.push_back(tier);
    std::string why = Text(each, "reason");
    if (!each.at("identity_field").is_null()) {
      absl::StrAppend(&why, " (", Text(each, "identity_field"), ")");
    } else if (!each.at("first_difference").is_null()) {
      absl::StrAppend(&why, " at ", FormatCount(Number(each, "first_difference")));
    }
    if (each.contains("changed") && !each.at("changed").is_null()) {
      absl::StrAppend(&why, " (", Text(each, "changed"), ")");
    }
    table.AddRow({FormatAge(now - Number(each, "time")), Text(each, "outcome"),
                  FormatCount(Number(each, "prompt_tokens")),
                  FormatCount(Number(each, "reused_tokens")), Joined(sources), why,
                  FormatSeconds(Number(each, "seconds")), Text(each, "conversation")});
  }
  return table.Text();
}

std::string CountersTable(const std::map<std::string, double>& samples) {
  const auto total = [&](const char* name) {
    const auto found = samples.find(name);
    return found == samples.end() ? 0.0 : found->second;
  };
  const double looked_up = total("parkade_lookup_tokens_total");
  Table table({"TOKENS", ">COUNT", ">SHARE"});
  const auto add = [&](const std::string& what, double tokens) {
    const double share = looked_up > 0 ? 100 * tokens / looked_up : 0;
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f %%", share);
    table.AddRow({what, FormatCount(tokens), text});
  };
  add("looked up", looked_up);
  for (const auto& [tier, tokens] : ByLabel(samples, "parkade_hit_tokens_total", "tier")) {
    if (tokens > 0) add(absl::StrCat("reused from ", tier), tokens);
  }
  for (const auto& [reason, tokens] : ByLabel(samples, "parkade_miss_tokens_total", "reason")) {
    if (tokens > 0) add(absl::StrCat("computed, ", reason), tokens);
  }
  return absl::StrCat(table.Text(),
                      "\nsaved reading time: ", FormatSeconds(total("parkade_saved_seconds_total")),
                      "\n");
}

absl::StatusOr<std::string> Stats(const CliArguments& arguments, const HttpCall& call) {
  absl::StatusOr<Json> listed = AskJson(call, {"/conversations?limit=1"});
  if (!listed.ok()) return listed.status();
  // Counters are a running server's.
  if (!arguments.disk.empty()) {
    return arguments.json ? Dump({{"tiers", listed->at("tiers")}}) : TiersTable(*listed);
  }
  const absl::StatusOr<std::string> text = AskText(call, {"/metrics"});
  if (!text.ok()) return text.status();
  const std::map<std::string, double> samples = ParseMetrics(*text, "parkade_");
  if (!arguments.json) {
    return absl::StrCat(TiersTable(*listed), "\n", CountersTable(samples));
  }
  return Dump({{"tiers", listed->at("tiers")}, {"metrics", samples}});
}

absl::StatusOr<std::string> Pin(const CliArguments& arguments, const HttpCall& call) {
  const bool pinned = arguments.command == CliCommand::kPin;
  const absl::StatusOr<Json> json =
      AskJson(call, {absl::StrCat("/conversations/", arguments.ids[0], "/pin"), "POST",
                     Json{{"pinned", pinned}}.dump()});
  if (!json.ok()) return json.status();
  if (arguments.json) return Dump(*json);
  return absl::StrCat(Text(*json, "id"), pinned ? " is pinned\n" : " is not pinned\n");
}

// Goes on after one that fails.
CliOutcome Forget(const CliArguments& arguments, const HttpCall& call) {
  CliOutcome outcome;
  Json deleted = Json::array();
  for (const std::string& id : arguments.ids) {
    const absl::StatusOr<Json> json = AskJson(call, {"/conversations/" + id, "DELETE"});
    if (!json.ok()) {
      outcome.exit_code = 1;
      absl::StrAppend(&outcome.error, outcome.error.empty() ? "" : "\n", id, ": ",
                      json.status().message());
      continue;
    }
    deleted.push_back(*json);
    if (arguments.json) continue;
    const double fork_tokens = Number(*json, "fork_tokens");
    absl::StrAppend(&outcome.out, id, " is forgotten");
    if (fork_tokens > 0) {
      absl::StrAppend(&outcome.out, "; ", FormatCount(fork_tokens), " tokens stay for forks of it");
    }
    outcome.out.push_back('\n');
  }
  if (arguments.json) outcome.out = Dump({{"deleted", deleted}});
  return outcome;
}

absl::StatusOr<std::string> Run(const CliArguments& arguments, const HttpCall& call, double now) {
  if (arguments.command == CliCommand::kStats) return Stats(arguments, call);
  if (arguments.command == CliCommand::kPin || arguments.command == CliCommand::kUnpin) {
    return Pin(arguments, call);
  }
  absl::StatusOr<Json> json = absl::InternalError("not a command for a cache");
  if (arguments.command == CliCommand::kList) {
    json = GetConversations(call);
  } else if (arguments.command == CliCommand::kShow) {
    json = AskJson(call, {"/conversations/" + arguments.ids[0]});
  } else if (arguments.command == CliCommand::kLookups) {
    json = AskJson(call, {absl::StrCat("/conversations/lookups?limit=", kShownLookups)});
  }
  if (!json.ok()) return json.status();
  if (arguments.json) return Dump(*json);
  if (arguments.command == CliCommand::kShow) return ConversationText(*json, now);
  if (arguments.command == CliCommand::kLookups) return LookupsTable(*json, now);
  return ConversationsTable(*json, now);
}

}  // namespace

CliOutcome RunCacheCommand(const CliArguments& arguments, const HttpCall& call,
                           double now_unix_seconds) {
  try {
    if (arguments.command == CliCommand::kForget) return Forget(arguments, call);
    absl::StatusOr<std::string> text = Run(arguments, call, now_unix_seconds);
    if (text.ok()) return {0, *std::move(text), ""};
    return {1, "", std::string(text.status().message())};
  } catch (const std::exception& error) {
    return {1, "", absl::StrCat("the server's answer has another shape: ", error.what())};
  }
}

}  // namespace parkade
