#include "src/server/api.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "parkade/identity.h"
#include "src/server/api_json.h"

namespace parkade {
namespace {

constexpr std::string_view kRoot = "/conversations";
constexpr std::size_t kMostBodyBytes = 64 << 10;
constexpr double kMostMib = 1u << 30;
constexpr double kLeastDiskGib = 0.1;
constexpr double kMostGib = 1u << 20;

std::string_view ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 409:
      return "conflict_error";
    case 503:
      return "unavailable_error";
    case 507:
      return "insufficient_storage_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

int HttpStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
      return 409;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kResourceExhausted:
      return 507;
    default:
      return 500;
  }
}

// Names and devices are bytes from outside; what is no UTF-8 is replaced, not thrown at.
ApiResponse JsonResponse(const Json& json) {
  return {200, json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

ApiResponse UnknownConversation(const ConversationId& id) {
  return ErrorResponse(404, "no conversation " + ToHex(id));
}

absl::StatusOr<std::uint32_t> LimitOf(const QueryParameters& query) {
  const auto limit = query.find("limit");
  if (limit == query.end()) return kDefaultListed;
  const std::string& text = limit->second;
  std::uint32_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
      value < 1 || value > kMostListed) {
    return absl::InvalidArgumentError("'limit' is a whole number from 1 to " +
                                      std::to_string(kMostListed));
  }
  return value;
}

absl::StatusOr<Json> ParseBody(std::string_view body) {
  if (body.size() > kMostBodyBytes) {
    return absl::InvalidArgumentError("the body is larger than 64 KiB");
  }
  Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("the body is not a JSON object");
  return json;
}

absl::Status CheckName(std::string_view name) {
  if (name.size() > kMostNameBytes) {
    return absl::InvalidArgumentError("'name' is longer than 255 bytes");
  }
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return absl::InvalidArgumentError("'name' holds a control character");
    }
  }
  return absl::OkStatus();
}

std::string Bound(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.10g", value);
  return text;
}

struct BudgetChange {
  TierKind tier;
  std::uint64_t budget_bytes;
};

absl::Status AddBudget(const Json& body, const char* key, double least, double most,
                       BudgetChange scale, std::vector<BudgetChange>* changes) {
  const auto found = body.find(key);
  if (found == body.end()) return absl::OkStatus();
  const double value = found->is_number() ? found->get<double>() : -1;
  if (!std::isfinite(value) || value < least || value > most) {
    return absl::InvalidArgumentError(std::string("'") + key + "' is a number from " +
                                      Bound(least) + " to " + Bound(most));
  }
  const double bytes = value * static_cast<double>(scale.budget_bytes);
  changes->push_back({scale.tier, static_cast<std::uint64_t>(std::llround(bytes))});
  return absl::OkStatus();
}

// A budget that leaves nothing to the tier's images.
std::string TooSmall(const TierInfo& tier) {
  const std::uint64_t mib = tier.reserved_bytes >> 20;
  return "'ram_mib': buffers and index take " + std::to_string(mib) + " MiB of it, so " +
         std::to_string(mib + 1) + " is the least, or 0 for no images in " +
         std::string(TierName(tier.kind));
}

// What follows "/conversations", at most one '/' deep.
struct Route {
  std::string_view first;   // an id or a word; empty: the collection
  std::string_view second;  // an action
};

std::optional<Route> ParseRoute(std::string_view path) {
  if (path.substr(0, kRoot.size()) != kRoot) return std::nullopt;
  path.remove_prefix(kRoot.size());
  if (path.empty() || path == "/") return Route{};
  if (path.front() != '/') return std::nullopt;
  path.remove_prefix(1);
  Route route;
  const std::size_t slash = path.find('/');
  route.first = path.substr(0, slash);
  if (slash == std::string_view::npos) return route;
  route.second = path.substr(slash + 1);
  if (route.first.empty() || route.second.empty()) return std::nullopt;
  return route;
}

// Empty: no such path.
std::string_view MethodsOf(const Route& route) {
  if (route.second.empty()) {
    // The page is not answered here, but it is a path all the same.
    const bool read_only = route.first.empty() || route.first == "lookups" || route.first == "ui";
    if (read_only) return "GET";
    return route.first == "budgets" ? "POST" : "GET, DELETE";
  }
  return route.second == "pin" ? "POST" : "";
}

// Whether a list of methods has this one.
bool Names(std::string_view allowed, std::string_view method) {
  while (!allowed.empty()) {
    const std::size_t comma = allowed.find(',');
    if (allowed.substr(0, comma) == method) return true;
    allowed = comma == std::string_view::npos ? "" : allowed.substr(comma + 2);
  }
  return false;
}

ApiResponse HandleCollection(const ConversationCache& cache, const QueryParameters& query) {
  const absl::StatusOr<std::uint32_t> limit = LimitOf(query);
  if (!limit.ok()) return ErrorResponse(limit.status());
  ConversationId after;
  if (const auto found = query.find("after"); found != query.end()) {
    const std::optional<ConversationId> id = DigestFromHex(found->second);
    if (!id.has_value()) {
      return ErrorResponse(400, "'after' is a conversation id, 32 hexadecimal digits");
    }
    after = *id;
  }
  return ListConversations(cache, *limit, after);
}

ApiResponse HandleOne(ConversationCache& cache, std::string_view method, const Route& route,
                      std::string_view body) {
  const std::optional<ConversationId> id = DigestFromHex(route.first);
  if (!id.has_value() || id->IsZero()) {
    return ErrorResponse(400, "a conversation id has 32 hexadecimal digits, not all of them 0");
  }
  if (route.second == "pin") return Pin(cache, *id, body);
  return method == "GET" ? GetConversation(cache, *id) : Forget(cache, *id);
}

ApiResponse Dispatch(ConversationCache& cache, std::string_view method, std::string_view path,
                     const QueryParameters& query, std::string_view body) {
  const std::optional<Route> route = ParseRoute(path);
  const std::string_view allowed = route.has_value() ? MethodsOf(*route) : "";
  if (allowed.empty()) return ErrorResponse(404, "no such path");
  if (!Names(allowed, method)) return WrongMethodResponse(allowed);
  if (route->first.empty()) return HandleCollection(cache, query);
  if (route->first == "lookups" && route->second.empty()) {
    const absl::StatusOr<std::uint32_t> limit = LimitOf(query);
    return limit.ok() ? Lookups(cache, *limit) : ErrorResponse(limit.status());
  }
  if (route->first == "budgets" && route->second.empty()) return SetBudgets(cache, body);
  return HandleOne(cache, method, *route, body);
}

}  // namespace

ApiResponse ErrorResponse(int status, std::string_view message) {
  ApiResponse response = JsonResponse(
      {{"error", {{"code", status}, {"message", message}, {"type", ErrorType(status)}}}});
  response.status = status;
  return response;
}

ApiResponse ErrorResponse(const absl::Status& status) {
  return ErrorResponse(HttpStatus(status.code()), std::string(status.message()));
}

std::string_view AllowedMethods(std::string_view path) {
  const std::optional<Route> route = ParseRoute(path);
  return route.has_value() ? MethodsOf(*route) : "";
}

ApiResponse WrongMethodResponse(std::string_view allowed) {
  return ErrorResponse(405, "this path takes " + std::string(allowed));
}

ApiResponse ListConversations(const ConversationCache& cache, std::uint32_t limit,
                              const ConversationId& after) {
  Json conversations = Json::array();
  for (const ConversationInfo& conversation : cache.List(limit, after)) {
    conversations.push_back(ConversationJson(conversation));
  }
  return JsonResponse(
      {{"conversations", std::move(conversations)}, {"tiers", TiersJson(cache.Tiers())}});
}

ApiResponse GetConversation(const ConversationCache& cache, const ConversationId& id) {
  const std::optional<ConversationInfo> conversation = cache.Get(id);
  if (!conversation.has_value()) return UnknownConversation(id);
  return JsonResponse(ConversationDetailJson(*conversation));
}

ApiResponse Lookups(const ConversationCache& cache, std::uint32_t limit) {
  Json lookups = Json::array();
  for (const LookupRecord& record : cache.Lookups(limit)) lookups.push_back(LookupJson(record));
  return JsonResponse({{"lookups", std::move(lookups)}});
}

ApiResponse Forget(ConversationCache& cache, const ConversationId& id) {
  const absl::StatusOr<std::uint32_t> fork_tokens = cache.Forget(id);
  if (!fork_tokens.ok()) return ErrorResponse(fork_tokens.status());
  return JsonResponse({{"id", ToHex(id)}, {"deleted", true}, {"fork_tokens", *fork_tokens}});
}

ApiResponse Pin(ConversationCache& cache, const ConversationId& id, std::string_view body) {
  const absl::StatusOr<Json> json = ParseBody(body);
  if (!json.ok()) return ErrorResponse(json.status());
  const auto pinned = json->find("pinned");
  if (pinned == json->end() || !pinned->is_boolean()) {
    return ErrorResponse(400, "'pinned' is true or false");
  }
  std::optional<std::string> name;
  if (const auto given = json->find("name"); given != json->end()) {
    if (!given->is_string()) return ErrorResponse(400, "'name' is a string");
    name = given->get<std::string>();
    if (const absl::Status checked = CheckName(*name); !checked.ok()) return ErrorResponse(checked);
  }
  const absl::Status done = cache.Pin(id, pinned->get<bool>(), name);
  if (absl::IsNotFound(done)) return UnknownConversation(id);
  if (!done.ok()) return ErrorResponse(done);
  const std::optional<ConversationInfo> conversation = cache.Get(id);
  // Forgotten between the two calls.
  if (!conversation.has_value()) return UnknownConversation(id);
  return JsonResponse(ConversationJson(*conversation));
}

ApiResponse SetBudgets(ConversationCache& cache, std::string_view body) {
  const absl::StatusOr<Json> json = ParseBody(body);
  if (!json.ok()) return ErrorResponse(json.status());
  std::vector<BudgetChange> changes;
  absl::Status checked =
      AddBudget(*json, "ram_mib", 0, kMostMib, {TierKind::kRam, 1ull << 20}, &changes);
  if (checked.ok()) {
    checked = AddBudget(*json, "disk_gib", kLeastDiskGib, kMostGib, {TierKind::kDisk, 1ull << 30},
                        &changes);
  }
  if (!checked.ok()) return ErrorResponse(checked);
  if (changes.empty()) return ErrorResponse(400, "give 'ram_mib', 'disk_gib' or both");
  const std::vector<TierInfo> tiers = cache.Tiers();
  for (const BudgetChange& change : changes) {
    const auto tier = std::find_if(tiers.begin(), tiers.end(), [&change](const TierInfo& each) {
      return each.kind == change.tier;
    });
    if (tier == tiers.end()) {
      return ErrorResponse(404, "there is no " + std::string(TierName(change.tier)) + " tier");
    }
    // 0 says that nothing is wanted there; a little more says nothing of the kind.
    if (change.budget_bytes > 0 && change.budget_bytes <= tier->reserved_bytes) {
      return ErrorResponse(400, TooSmall(*tier));
    }
  }
  for (const BudgetChange& change : changes) {
    const absl::Status done = cache.SetBudget(change.tier, change.budget_bytes);
    if (!done.ok()) return ErrorResponse(done);
  }
  return JsonResponse({{"tiers", TiersJson(cache.Tiers())}});
}

ApiResponse Handle(ConversationCache& cache, std::string_view method, std::string_view path,
                   const QueryParameters& query, std::string_view body) {
  try {
    return Dispatch(cache, method, path, query, body);
  } catch (const std::exception& error) {
    return ErrorResponse(500, error.what());
  }
}

}  // namespace parkade
