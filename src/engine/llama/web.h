// /conversations, its page and our part of /metrics on llama-server's HTTP server.
#pragma once

#include <functional>
#include <string>

namespace parkade {

class ConversationCache;

struct WebOptions {
  ConversationCache* cache = nullptr;                     // null: the routes answer 501
  std::function<std::string()> scrape;                    // our metrics in text; null: none
  std::string why_off = "the conversation cache is off";  // what a 501 says
};

// By main: before the server registers its routes, and again until it answers requests.
void SetWeb(WebOptions options);

}  // namespace parkade
