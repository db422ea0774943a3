#include "src/engine/llama/web.h"

#include <cpp-httplib/httplib.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "src/engine/llama/hooks/server_routes.h"
#include "src/engine/llama/run_server.h"
#include "src/engine/llama/session.h"
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
    // As llama-server answers for what is switched off.
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

server_http_context::handler_t hook_slots(server_http_context::handler_t theirs, bool router) {
  if (router) return theirs;
  return [theirs = std::move(theirs)](const server_http_req& request) {
    Session* session = CurrentSession();
    std::optional<ApiResponse> response;
    if (session != nullptr) {
      response = session->OnSlotRequest(request.get_param("id_slot"), request.get_param("action"),
                                        request.body, request.should_stop);
    }
    if (!response.has_value()) return theirs(request);
    auto answer = std::make_unique<server_http_res>();
    answer->status = response->status;
    answer->content_type = response->content_type;
    answer->data = std::move(response->body);
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

// httplib::Server::set_error_handler_core, wrapped by the linker.
httplib::Server& RealSetErrorHandler(
    httplib::Server* self, httplib::Server::Handler handler,
    std::false_type tag) __asm__("__real_" PARKADE_SET_ERROR_HANDLER);
httplib::Server& SetErrorHandler(httplib::Server* self, httplib::Server::Handler handler,
                                 std::false_type tag) __asm__("__wrap_" PARKADE_SET_ERROR_HANDLER);

// llama-server gives every 404 the body of an unknown path. Ours say which conversation it is that
// is not there.
httplib::Server& SetErrorHandler(httplib::Server* self, httplib::Server::Handler handler,
                                 std::false_type tag) {
  auto keep_ours = [handler](const httplib::Request& request, httplib::Response& response) {
    const bool ours = request.path.find("/conversations") != std::string::npos ||
                      request.path.find("/slots/") != std::string::npos;
    if (!ours || response.body.empty()) handler(request, response);
  };
  return RealSetErrorHandler(self, std::move(keep_ours), tag);
}
