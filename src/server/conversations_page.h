// GET /conversations/ui: one HTML file that holds no data and asks the routes of api.h for it.
#pragma once

#include <string_view>

namespace parkade {

struct ConversationsPage {
  std::string_view html;  // conversations_ui.html, byte for byte
  // Allows the file's own script and style, by hash, requests to where it came from, and nothing
  // else; nobody may frame it.
  std::string_view content_security_policy;
};

// Any thread; the bytes live as long as the program.
ConversationsPage GetConversationsPage();

}  // namespace parkade
