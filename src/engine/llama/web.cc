#include "src/engine/llama/web.h"

#include <utility>

#include "src/engine/llama/hooks/server_routes.h"
#include "src/engine/llama/run_server.h"
#include "src/server/api.h"

namespace parkade {
namespace {

WebOptions& Web() {
  static WebOptions web;
  return web;
}

// The path below the server's prefix, with `{id}` filled in from the route's parameter.
server_http_res_ptr Answer(const char* method, const std::string& path,
                           const server_http_req& request) {
  auto answer = std::make_unique<server_http_res>();
  ApiResponse response;
  if (Web().cache == nullptr || Web().cache->Tiers().empty()) {
    // As llama-server answers for what is switched off; bodies of a 404 are replaced by its own.
    response = ErrorResponse(501, Web().why_off);
  } else {
    QueryParameters query(request.params.begin(), request.params.end());
    response = Handle(*Web().cache, method, path, query, request.body);
  }
  answer->status = response.status;
  answer->content_type = response.content_type;
  answer->data = std::move(response.body);
  return answer;
}

}  // namespace

void SetWeb(WebOptions options) { Web() = std::move(options); }

server_http_context::handler_t hook_metrics(server_http_context::handler_t theirs, bool router) {
  if (router) CallOnRouter();
  if (router || !Web().scrape) return theirs;
  return [theirs = std::move(theirs)](const server_http_req& request) {
    server_http_res_ptr answer = theirs(request);
    // Ours are there whatever llama-server's own say (they may be switched off or sleep).
    if (answer->status != 200) {
      answer = std::make_unique<server_http_res>();
      answer->content_type = "text/plain; version=0.0.4";
    }
    answer->data += Web().scrape();
    return answer;
  };
}

void hook_routes(server_http_context& http) {
  auto fixed = [](const char* method, std::string path) {
    return [method, path](const server_http_req& request) { return Answer(method, path, request); };
  };
  auto with_id = [](const char* method, std::string rest) {
    return [method, rest](const server_http_req& request) {
      return Answer(method, "/conversations/" + request.get_param("id") + rest, request);
    };
  };
  // Literal paths before the one with a parameter.
  http.get("/conversations", fixed("GET", "/conversations"));
  http.get("/conversations/lookups", fixed("GET", "/conversations/lookups"));
  http.post("/conversations/budgets", fixed("POST", "/conversations/budgets"));
  http.get("/conversations/:id", with_id("GET", ""));
  http.del("/conversations/:id", with_id("DELETE", ""));
  http.post("/conversations/:id/pin", with_id("POST", "/pin"));
}

}  // namespace parkade
