// /conversations and our part of /metrics on llama-server's HTTP server.
#pragma once

#include <functional>
#include <string>

namespace parkade {

class ConversationCache;

struct WebOptions {
  ConversationCache* cache = nullptr;        // null: the routes answer 404
  std::function<std::string()> scrape;       // our metrics in text; null: none
};

// Before the server registers its routes. Called once, by main.
void SetWeb(WebOptions options);

}  // namespace parkade
