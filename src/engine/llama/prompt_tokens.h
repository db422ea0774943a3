// The tokens of a prompt, media or not.
#pragma once

#include "absl/types/span.h"
#include "server-common.h"

namespace parkade {

// Media stand as LLAMA_TOKEN_NULL. Valid until `tokens` changes. server_tokens::get_tokens() would
// end the process where a projector is loaded, with or without media in this prompt.
inline absl::Span<const llama_token> TokensOf(const server_tokens& tokens) {
  if (tokens.empty()) return {};
  return absl::MakeConstSpan(&tokens[0], tokens.size());
}

}  // namespace parkade
