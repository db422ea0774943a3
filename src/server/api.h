// The answers of /conversations: from a ConversationCache to JSON in the shapes of INTERFACE. No
// HTTP library; whoever has one registers the routes and hands requests on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "parkade/conversation_cache.h"

namespace parkade {

struct ApiResponse {
  int status = 200;
  std::string body;  // JSON, in UTF-8 whatever the names hold
  std::string content_type = "application/json; charset=utf-8";
};

// Decoded query parameters; unknown ones are ignored.
using QueryParameters = std::map<std::string, std::string>;

// Longest page that `limit` may ask for, and what it is when absent.
inline constexpr std::uint32_t kMostListed = 1000;
inline constexpr std::uint32_t kDefaultListed = 100;

// All functions: any thread, no exception, no lock held; cost is that of the cache's call and of
// writing the answer. Errors are in llama-server's shape {"error":{code,message,type}}.

// Routes one request. `path` begins with "/conversations" (a prefix of the server's is cut before)
// and is decoded. Unknown paths are 404, known ones with another method 405.
ApiResponse Handle(ConversationCache& cache, std::string_view method, std::string_view path,
                   const QueryParameters& query, std::string_view body);

// Methods that a path takes, as the header Allow names them: "GET, DELETE"; empty: no such path.
// `path` as for Handle. Whether what it names is there does not matter.
std::string_view AllowedMethods(std::string_view path);
// 405, naming them.
ApiResponse WrongMethodResponse(std::string_view allowed);

// GET /conversations: `limit` conversations that follow `after` in the cache's order, and the
// tiers. Zero: from the start.
ApiResponse ListConversations(const ConversationCache& cache, std::uint32_t limit,
                              const ConversationId& after);
// GET /conversations/{id}: the same fields and stage_map, parks, checkpoints. 404 if unknown.
ApiResponse GetConversation(const ConversationCache& cache, const ConversationId& id);
// GET /conversations/lookups
ApiResponse Lookups(const ConversationCache& cache, std::uint32_t limit);
// DELETE /conversations/{id}: {"id", "deleted": true, "fork_tokens"}: tokens that forks still need.
ApiResponse Forget(ConversationCache& cache, const ConversationId& id);
// POST /conversations/{id}/pin, body {"pinned": bool, "name": string}; without a name the
// conversation keeps the one it has, an empty one takes it away. The answer is the conversation as
// it is listed.
ApiResponse Pin(ConversationCache& cache, const ConversationId& id, std::string_view body);
// POST /conversations/budgets, body {"ram_mib": number, "disk_gib": number}, at least one of them.
// Refused as a whole when a tier is not there, or when a budget of RAM, other than 0, is no more
// than buffers and index take; the message has the least. The answer is {"tiers": [...]}
// afterwards.
ApiResponse SetBudgets(ConversationCache& cache, std::string_view body);

// An answer in the error shape; `status` is an HTTP code of 400 or above.
ApiResponse ErrorResponse(int status, std::string_view message);
// 400 InvalidArgument and OutOfRange, 404 NotFound, 409 FailedPrecondition and AlreadyExists, 503
// Unavailable, 507 ResourceExhausted, else 500. `status` is not OK.
ApiResponse ErrorResponse(const absl::Status& status);

}  // namespace parkade
