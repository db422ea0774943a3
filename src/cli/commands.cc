#include "src/cli/commands.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "parkade/identity.h"
#include "src/cli/lookup_why.h"
#include "src/cli/metrics_text.h"
#include "src/cli/tables.h"

namespace parkade {
namespace {

using Json = CliJson;

constexpr int kPage = 1000;
constexpr std::uint32_t kShownLookups = 50;
constexpr std::uint32_t kExplainedLookups = 5;

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

// The whole id of one that was shortened. A page that begins right before it shows at once whether
// another one begins alike.
absl::StatusOr<std::string> FullId(const HttpCall& call, const std::string& id) {
  if (id.size() >= kIdDigits) return id;
  std::optional<Digest128> before = DigestFromHex(id + std::string(kIdDigits - id.size(), '0'));
  if (!before.has_value()) return absl::InvalidArgumentError(absl::StrCat(id, " is no id"));
  std::string path = "/conversations?limit=2";
  if (!before->IsZero()) {
    if (before->low-- == 0) --before->high;
    absl::StrAppend(&path, "&after=", ToHex(*before));
  }
  const absl::StatusOr<Json> page = AskJson(call, {path});
  if (!page.ok()) return page.status();
  std::vector<std::string> found;
  for (const Json& each : page->at("conversations")) {
    const std::string other = TextField(each, "id");
    if (absl::StartsWith(other, id)) found.push_back(other);
  }
  if (found.size() == 1) return found[0];
  return absl::NotFoundError(
      found.empty() ? absl::StrCat("no conversation's id begins with ", id)
                    : absl::StrCat("more than one conversation's id begins with ", id, " (",
                                   found[0], ", ", found[1], "); give more digits"));
}

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Puts the conversations into the order that was asked for and leaves out what is beyond the limit.
void Arrange(const CliArguments& arguments, Json* json) {
  static const auto& fields = *new std::map<std::string, const char*>{{"used", "last_used"},
                                                                      {"rank", "evict_rank"},
                                                                      {"size", "bytes"},
                                                                      {"tokens", "tokens"},
                                                                      {"hits", "hits"}};
  Json& listed = json->at("conversations");
  const auto field = fields.find(arguments.by);
  // They come in the order of their ids.
  if (field != fields.end()) {
    const bool ascending = arguments.by == "rank";
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < listed.size(); ++i) {
      const double value = NumberField(listed[i], field->second);
      order.emplace_back(ascending ? value : -value, i);
    }
    std::sort(order.begin(), order.end());
    Json sorted = Json::array();
    for (const auto& [value, i] : order) sorted.push_back(std::move(listed[i]));
    listed = std::move(sorted);
  }
  while (arguments.limit.has_value() && listed.size() > *arguments.limit) {
    listed.erase(listed.size() - 1);
  }
}

absl::StatusOr<std::string> List(const CliArguments& arguments, const HttpCall& call,
                                 const CliView& view) {
  absl::StatusOr<Json> json = GetConversations(call);
  if (!json.ok()) return json.status();
  Arrange(arguments, &*json);
  return arguments.json ? Dump(*json) : ConversationsTable(*json, view);
}

absl::StatusOr<std::string> Show(const CliArguments& arguments, const HttpCall& call,
                                 const CliView& view) {
  const absl::StatusOr<std::string> id = FullId(call, arguments.ids[0]);
  if (!id.ok()) return id.status();
  const absl::StatusOr<Json> json = AskJson(call, {"/conversations/" + *id});
  if (!json.ok()) return json.status();
  return arguments.json ? Dump(*json) : ConversationText(*json, view);
}

absl::StatusOr<std::string> Lookups(const CliArguments& arguments, const HttpCall& call,
                                    const CliView& view) {
  const std::uint32_t limit =
      arguments.limit.value_or(arguments.why ? kExplainedLookups : kShownLookups);
  const absl::StatusOr<Json> json =
      AskJson(call, {absl::StrCat("/conversations/lookups?limit=", limit)});
  if (!json.ok()) return json.status();
  if (arguments.json) return Dump(*json);
  if (!arguments.why) return LookupsTable(*json, view);
  std::string out;
  for (const Json& lookup : json->at("lookups")) {
    absl::StrAppend(&out, out.empty() ? "" : "\n", LookupText(lookup, view));
  }
  return out.empty() ? "No lookup yet.\n" : out;
}

absl::StatusOr<std::string> Stats(const CliArguments& arguments, const HttpCall& call,
                                  const CliView& view) {
  absl::StatusOr<Json> listed = AskJson(call, {"/conversations?limit=1"});
  if (!listed.ok()) return listed.status();
  // Counters are a running server's.
  if (!arguments.disk.empty()) {
    return arguments.json ? Dump({{"tiers", listed->at("tiers")}}) : TiersTable(*listed, view);
  }
  const absl::StatusOr<std::string> text = AskText(call, {"/metrics"});
  if (!text.ok()) return text.status();
  const std::map<std::string, double> samples = ParseMetrics(*text, "parkade_");
  if (!arguments.json) {
    return absl::StrCat(TiersTable(*listed, view), "\n", SavingsText(samples, view));
  }
  return Dump({{"tiers", listed->at("tiers")}, {"metrics", samples}});
}

absl::StatusOr<std::string> Budgets(const CliArguments& arguments, const HttpCall& call,
                                    const CliView& view) {
  Json body = Json::object();
  if (arguments.ram_mib.has_value()) body["ram_mib"] = *arguments.ram_mib;
  if (arguments.disk_gib.has_value()) body["disk_gib"] = *arguments.disk_gib;
  const absl::StatusOr<Json> json =
      AskJson(call, body.empty() ? HttpRequest{"/conversations?limit=1"}
                                 : HttpRequest{"/conversations/budgets", "POST", body.dump()});
  if (!json.ok()) return json.status();
  return arguments.json ? Dump({{"tiers", json->at("tiers")}}) : TiersTable(*json, view);
}

absl::StatusOr<std::string> Pin(const CliArguments& arguments, const HttpCall& call) {
  const absl::StatusOr<std::string> id = FullId(call, arguments.ids[0]);
  if (!id.ok()) return id.status();
  const bool pinned = arguments.command == CliCommand::kPin;
  Json body = {{"pinned", pinned}};
  if (arguments.name.has_value()) body["name"] = *arguments.name;
  const absl::StatusOr<Json> json =
      AskJson(call, {absl::StrCat("/conversations/", *id, "/pin"), "POST",
                     body.dump(-1, ' ', false, Json::error_handler_t::replace)});
  if (!json.ok()) return json.status();
  if (arguments.json) return Dump(*json);
  std::string out = absl::StrCat(TextField(*json, "id"), pinned ? " is pinned" : " is not pinned");
  if (arguments.name.has_value()) {
    const std::string name = PrintableText(TextField(*json, "name"));
    absl::StrAppend(
        &out, arguments.name->empty() ? " and has no name" : absl::StrCat(" as '", name, "'"));
  }
  return out + "\n";
}

// Goes on after one that fails. Which conversations are meant is decided before any of them goes.
CliOutcome Forget(const CliArguments& arguments, const HttpCall& call) {
  CliOutcome outcome;
  const auto failed = [&outcome](const std::string& id, const absl::Status& status) {
    outcome.exit_code = 1;
    absl::StrAppend(&outcome.error, outcome.error.empty() ? "" : "\n", id, ": ", status.message());
  };
  std::vector<std::string> ids;
  for (const std::string& given : arguments.ids) {
    const absl::StatusOr<std::string> id = FullId(call, given);
    if (id.ok()) {
      ids.push_back(*id);
    } else {
      failed(given, id.status());
    }
  }
  Json deleted = Json::array();
  for (const std::string& id : ids) {
    const absl::StatusOr<Json> json = AskJson(call, {"/conversations/" + id, "DELETE"});
    if (!json.ok()) {
      failed(id, json.status());
      continue;
    }
    deleted.push_back(*json);
    if (arguments.json) continue;
    const double fork_tokens = NumberField(*json, "fork_tokens");
    absl::StrAppend(&outcome.out, id, " is forgotten");
    if (fork_tokens > 0) {
      absl::StrAppend(&outcome.out, "; ", FormatCount(fork_tokens), " tokens stay for forks of it");
    }
    outcome.out.push_back('\n');
  }
  if (arguments.json) outcome.out = Dump({{"deleted", deleted}});
  return outcome;
}

absl::StatusOr<std::string> Run(const CliArguments& arguments, const HttpCall& call,
                                const CliView& view) {
  switch (arguments.command) {
    case CliCommand::kList:
      return List(arguments, call, view);
    case CliCommand::kShow:
      return Show(arguments, call, view);
    case CliCommand::kLookups:
      return Lookups(arguments, call, view);
    case CliCommand::kStats:
      return Stats(arguments, call, view);
    case CliCommand::kBudgets:
      return Budgets(arguments, call, view);
    case CliCommand::kPin:
    case CliCommand::kUnpin:
      return Pin(arguments, call);
    default:
      return absl::InternalError("not a command for a cache");
  }
}

}  // namespace

CliOutcome RunCacheCommand(const CliArguments& arguments, const HttpCall& call,
                           const CliView& view) {
  try {
    if (arguments.command == CliCommand::kForget) return Forget(arguments, call);
    absl::StatusOr<std::string> text = Run(arguments, call, view);
    if (text.ok()) return {0, *std::move(text), ""};
    return {1, "", std::string(text.status().message())};
  } catch (const std::exception& error) {
    return {1, "", absl::StrCat("the server's answer has another shape: ", error.what())};
  }
}

}  // namespace parkade
