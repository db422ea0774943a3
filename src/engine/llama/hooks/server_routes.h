// What the edited server.cpp calls.
#pragma once

#include "server-http.h"

namespace parkade {

// llama-server's own metrics and ours in one answer. In router mode the handler stays as it is.
server_http_context::handler_t hook_metrics(server_http_context::handler_t theirs, bool router);
// POST /slots through the cache where it is on. In router mode the handler stays as it is.
server_http_context::handler_t hook_slots(server_http_context::handler_t theirs, bool router);
// Registers /conversations and what is below it.
void hook_routes(server_http_context& http);
// The main loop has ended: busy slots are parked, the queue is drained.
void hook_stopping() noexcept;
// No request is left.
void hook_stopped() noexcept;

}  // namespace parkade
