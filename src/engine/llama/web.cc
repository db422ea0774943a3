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
#include "src/server/conversations_page.h"

namespace parkade {
namespace {

WebOptions& Web() {
  static WebOptions web;
  return web;
}

// Where the page is, with the server's prefix; set before the server listens.
std::string& PagePath() {
  static std::string path;
  return path;
}

// Nothing of these answers is for a cache between the server and the person, or on the disk of one.
void ForNobodyElse(server_http_res* answer) {
  answer->headers["Cache-Control"] = "no-store";
  answer->headers["X-Content-Type-Options"] = "nosniff";
}

server_http_res_ptr Page(const server_http_req&) {
  auto answer = std::make_unique<server_http_res>();
  const ConversationsPage page = GetConversationsPage();
  answer->content_type = "text/html; charset=utf-8";
  answer->data = std::string(page.html);
  ForNobodyElse(answer.get());
  answer->headers["Content-Security-Policy"] = std::string(page.content_security_policy);
  answer->headers["Referrer-Policy"] = "no-referrer";
  return answer;
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
  if (response.status == 405) answer->headers["Allow"] = std::string(AllowedMethods(path));
  answer->status = response.status;
  answer->content_type = response.content_type;
  answer->data = std::move(response.body);
  ForNobodyElse(answer.get());
  return answer;
}

// A path of ours that was asked with a method for which there is no route comes as a 404 without a
// body.
bool AnsweredWrongMethod(const httplib::Request& request, httplib::Response& response) {
  const std::size_t at = request.path.find("/conversations");
  if (at == std::string::npos || response.status != 404 || !response.body.empty()) return false;
  const std::string_view allowed = AllowedMethods(std::string_view(request.path).substr(at));
  if (allowed.empty()) return false;
  const ApiResponse wrong = WrongMethodResponse(allowed);
  response.status = wrong.status;
  response.set_header("Allow", std::string(allowed));
  response.set_header("Cache-Control", "no-store");
  response.set_content(wrong.body, wrong.content_type);
  return true;
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
  PagePath() = http.path_prefix + "/conversations/ui";
  // Literal paths before the one with a parameter.
  http.get("/conversations/ui", Page);
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
    if (parkade::AnsweredWrongMethod(request, response)) return;
    const bool ours = request.path.find("/conversations") != std::string::npos ||
                      request.path.find("/slots/") != std::string::npos;
    if (!ours || response.body.empty()) handler(request, response);
  };
  return RealSetErrorHandler(self, std::move(keep_ours), tag);
}

// httplib::Server::set_pre_routing_handler, wrapped by the linker.
httplib::Server& RealSetPreRoutingHandler(
    httplib::Server* self, httplib::Server::HandlerWithResponse
                               handler) __asm__("__real_" PARKADE_SET_PRE_ROUTING_HANDLER);
httplib::Server&
SetPreRoutingHandler(httplib::Server* self, httplib::Server::HandlerWithResponse handler) __asm__(
    "__wrap_" PARKADE_SET_PRE_ROUTING_HANDLER);

// llama-server asks for the key, and that the model is loaded, before any route. The page holds no
// data and says both itself, so it comes first, as llama-server's own page does.
httplib::Server& SetPreRoutingHandler(httplib::Server* self,
                                      httplib::Server::HandlerWithResponse handler) {
  auto page_first = [handler](const httplib::Request& request, httplib::Response& response) {
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (reads && request.path == parkade::PagePath()) {
      return httplib::Server::HandlerResponse::Unhandled;
    }
    return handler(request, response);
  };
  return RealSetPreRoutingHandler(self, std::move(page_first));
}
