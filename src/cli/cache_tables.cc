#include "src/cli/cache_tables.h"

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/cli/help_text.h"
#include "src/cli/metrics_text.h"
#include "src/cli/tables.h"

namespace parkade {
namespace {

// Of an id in a narrow table.
constexpr std::size_t kLeastShownDigits = 8;

std::string Joined(const CliJson& words) {
  std::string out;
  for (const CliJson& word : words) {
    absl::StrAppend(&out, out.empty() ? "" : ",", word.get<std::string>());
  }
  return out.empty() ? "-" : out;
}

std::string Range(const CliJson& range) {
  return absl::StrCat(FormatCount(range.at(0).get<double>()), "-",
                      FormatCount(range.at(1).get<double>()));
}

std::string Percent(double part, double all) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", all > 0 ? 100 * part / all : 0);
  return text;
}

// The sum of a family's samples, or the sample without labels.
double Total(const std::map<std::string, double>& samples, const std::string& family) {
  double sum = 0;
  for (const auto& [series, value] : samples) {
    if (series == family || series.rfind(family + "{", 0) == 0) sum += value;
  }
  return sum;
}

}  // namespace

std::string TextField(const CliJson& json, const char* key) {
  const CliJson& value = json.at(key);
  return value.is_null() ? "-" : value.get<std::string>();
}

double NumberField(const CliJson& json, const char* key) { return json.at(key).get<double>(); }

std::string ConversationsTable(const CliJson& json, const CliView& view) {
  Table table({"ID", "NAME", ">TOKENS", ">DURABLE", ">SIZE", "TIERS", ">STAGES", ">HITS",
               ">LAST USED", ">RANK", ""});
  std::vector<std::string> ids;
  for (const CliJson& each : json.at("conversations")) {
    std::string marks = each.at("pinned").get<bool>() ? "pinned" : "";
    if (!each.at("forked_from").is_null()) marks.append(marks.empty() ? "fork" : ", fork");
    ids.push_back(TextField(each, "id"));
    table.AddRow({ids.back(), TextField(each, "name"), FormatCount(NumberField(each, "tokens")),
                  FormatCount(NumberField(each, "durable_tokens")),
                  FormatBytes(NumberField(each, "bytes")), Joined(each.at("tiers")),
                  FormatCount(NumberField(each, "stages")), FormatCount(NumberField(each, "hits")),
                  FormatAge(view.now_unix_seconds - NumberField(each, "last_used")),
                  FormatCount(NumberField(each, "evict_rank")), marks});
  }
  return table.Text(view.columns, {{"ID", DigitsThatTell(std::move(ids), kLeastShownDigits)},
                                   {"NAME", 24},
                                   {"STAGES"},
                                   {"HITS"},
                                   {"DURABLE"},
                                   {"TIERS"},
                                   {"SIZE"},
                                   {""},
                                   {"NAME", 12},
                                   {"RANK"},
                                   {"LAST USED"},
                                   {"TOKENS"}});
}

std::string TiersTable(const CliJson& json, const CliView& view) {
  Table table({"TIER", ">USED", ">BUDGET", ">PHYSICAL", ">FREE", ">CONVERSATIONS", "STATE"});
  for (const CliJson& tier : json.at("tiers")) {
    table.AddRow(
        {TextField(tier, "tier"),
         tier.at("used_bytes").is_null() ? "-" : FormatBytes(NumberField(tier, "used_bytes")),
         tier.at("budget_bytes").is_null() ? "-" : FormatBytes(NumberField(tier, "budget_bytes")),
         FormatBytes(NumberField(tier, "physical_bytes")),
         FormatBytes(NumberField(tier, "free_bytes")),
         FormatCount(NumberField(tier, "conversations")), TextField(tier, "state")});
  }
  return table.Text(view.columns,
                    {{"STATE", 24}, {"PHYSICAL"}, {"FREE"}, {"CONVERSATIONS"}, {"STATE", 10}});
}

std::string ConversationText(const CliJson& json, const CliView& view) {
  Table facts({"ID", TextField(json, "id")});
  facts.AddRow({"name", TextField(json, "name")});
  facts.AddRow({"pinned", json.at("pinned").get<bool>() ? "yes" : "no"});
  facts.AddRow({"tokens", absl::StrCat(FormatCount(NumberField(json, "tokens")), ", durable ",
                                       FormatCount(NumberField(json, "durable_tokens")))});
  facts.AddRow({"size", FormatBytes(NumberField(json, "bytes"))});
  facts.AddRow({"tiers", Joined(json.at("tiers"))});
  facts.AddRow({"created", FormatAge(view.now_unix_seconds - NumberField(json, "created"))});
  facts.AddRow({"last used", FormatAge(view.now_unix_seconds - NumberField(json, "last_used"))});
  facts.AddRow({"hits", FormatCount(NumberField(json, "hits"))});
  facts.AddRow({"evict rank", FormatCount(NumberField(json, "evict_rank"))});
  if (!json.at("forked_from").is_null()) {
    facts.AddRow({"fork of", absl::StrCat(TextField(json, "forked_from"), " at token ",
                                          FormatCount(NumberField(json, "forked_at")))});
  }
  std::string checkpoints;
  for (const CliJson& position : json.at("checkpoints")) {
    absl::StrAppend(&checkpoints, checkpoints.empty() ? "" : ", ",
                    FormatCount(position.get<double>()));
  }
  facts.AddRow({"checkpoints", checkpoints.empty() ? "-" : checkpoints});

  Table stages({">STAGE", ">LAYERS", "DEVICE"});
  int stage_number = 0;
  for (const CliJson& stage : json.at("stage_map")) {
    stages.AddRow({std::to_string(stage_number++), std::to_string(stage.at("layers").size()),
                   TextField(stage, "device")});
  }
  Table parks({">PARK", ">TOKENS", ">SIZE", ">STAGES", "TIERS"});
  for (const CliJson& park : json.at("parks")) {
    parks.AddRow({FormatCount(NumberField(park, "park")), Range(park.at("tokens")),
                  FormatBytes(NumberField(park, "bytes")), FormatCount(NumberField(park, "stages")),
                  Joined(park.at("tiers"))});
  }
  return absl::StrCat(facts.Text(view.columns, {}), "\n", stages.Text(view.columns, {}), "\n",
                      parks.Text(view.columns, {{"STAGES"}, {"SIZE"}}));
}

std::string LookupsTable(const CliJson& json, const CliView& view) {
  Table table(
      {">WHEN", "OUTCOME", ">PROMPT", ">REUSED", "FROM", "WHY NOT MORE", ">TIME", "CONVERSATION"});
  std::vector<std::string> ids;
  for (const CliJson& each : json.at("lookups")) {
    CliJson sources = CliJson::array();
    for (const auto& [tier, tokens] : each.at("hit_tokens").items()) sources.push_back(tier);
    std::string why = TextField(each, "reason");
    if (!each.at("identity_field").is_null()) {
      absl::StrAppend(&why, " (", TextField(each, "identity_field"), ")");
    } else if (!each.at("first_difference").is_null()) {
      absl::StrAppend(&why, " at ", FormatCount(NumberField(each, "first_difference")));
    }
    if (each.contains("changed") && !each.at("changed").is_null()) {
      absl::StrAppend(&why, " (", TextField(each, "changed"), ")");
    }
    ids.push_back(TextField(each, "conversation"));
    table.AddRow({FormatAge(view.now_unix_seconds - NumberField(each, "time")),
                  TextField(each, "outcome"), FormatCount(NumberField(each, "prompt_tokens")),
                  FormatCount(NumberField(each, "reused_tokens")), Joined(sources), why,
                  FormatSeconds(NumberField(each, "seconds")), ids.back()});
  }
  return table.Text(view.columns,
                    {{"CONVERSATION", DigitsThatTell(std::move(ids), kLeastShownDigits)},
                     {"CONVERSATION"},
                     {"TIME"},
                     {"OUTCOME"},
                     {"FROM"}});
}

std::string SavingsText(const std::map<std::string, double>& samples, const CliView& view) {
  const double looked_up = Total(samples, "parkade_lookup_tokens_total");
  Table table({"TOKENS", ">COUNT", ">SHARE"});
  const auto add = [&](const std::string& what, double tokens) {
    table.AddRow({what, FormatCount(tokens), Percent(tokens, looked_up)});
  };
  add("looked up", looked_up);
  double saved = 0;
  std::string sources;
  for (const auto& [tier, tokens] : ByLabel(samples, "parkade_hit_tokens_total", "tier")) {
    if (tokens <= 0) continue;
    add(tier == "slot" ? "still in the slot" : absl::StrCat("reused from ", tier), tokens);
    if (tier == "slot") continue;
    saved += tokens;
    absl::StrAppend(&sources, sources.empty() ? "" : ", ", FormatCount(tokens), " from ", tier);
  }
  for (const auto& [reason, tokens] : ByLabel(samples, "parkade_miss_tokens_total", "reason")) {
    if (tokens > 0) add(absl::StrCat("computed, ", reason), tokens);
  }
  std::string lookups;
  for (const auto& [outcome, count] : ByLabel(samples, "parkade_lookups_total", "outcome")) {
    absl::StrAppend(&lookups, lookups.empty() ? "" : ", ", FormatCount(count), " ", outcome);
  }
  std::string told =
      absl::StrCat("Since the server started the cache saved ", FormatCount(saved), " of ",
                   FormatCount(looked_up), " prompt tokens (", Percent(saved, looked_up), ")",
                   sources.empty() ? "" : ": ", sources, ". ");
  const double seconds = Total(samples, "parkade_saved_seconds_total");
  // No prompt has been read since then whose speed would tell.
  if (seconds <= 0) {
    told.append("What that took less is not known yet.");
  } else {
    absl::StrAppend(&told, "Reading them again would have taken at least ", FormatSeconds(seconds),
                    " longer than restoring them.");
  }
  if (saved <= 0) told = "The cache has saved nothing since the server started.";
  if (!lookups.empty()) absl::StrAppend(&told, " Lookups: ", lookups, ".");
  return absl::StrCat(CliParagraph(told, "", view.columns), "\n", table.Text(view.columns, {}));
}

}  // namespace parkade
