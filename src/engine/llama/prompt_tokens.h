// The tokens of a prompt, media or not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "parkade/image.h"
#include "server-common.h"
#include "src/engine/llama/token_places.h"

namespace parkade {

// Media stand as LLAMA_TOKEN_NULL. Valid until `tokens` changes. server_tokens::get_tokens() would
// end the process where a projector is loaded, with or without media in this prompt.
inline absl::Span<const llama_token> TokensOf(const server_tokens& tokens) {
  if (tokens.empty()) return {};
  return absl::MakeConstSpan(&tokens[0], tokens.size());
}

inline bool HasMedia(const server_tokens& tokens) {
  const absl::Span<const llama_token> all = TokensOf(tokens);
  return std::find(all.begin(), all.end(), LLAMA_TOKEN_NULL) != all.end();
}

// A prompt as the cache knows it. Text stands as it is. A media chunk (an image, a sound) stands as
// negative numbers made from its content's hash, its size and shape and the number in the chunk, so
// that equal tokens mean equal rows; it is reused whole or not at all.
struct CacheTokens {
  absl::Span<const Token> tokens;  // of `owned`, or of the prompt itself when it is text alone
  std::vector<TokenRange> media;
  // Tokens before the first chunk whose content can't be told from others.
  std::uint32_t cacheable = 0;
  std::vector<Token> owned;

  CacheTokens() = default;
  CacheTokens(CacheTokens&&) = default;  // a moved vector keeps its elements' place
  CacheTokens& operator=(CacheTokens&&) = default;
};

// Valid until `prompt` changes. `wide`: positions are of several numbers (M-RoPE); elsewhere a
// chunk that takes fewer positions than tokens can't be kept.
CacheTokens CacheTokensOf(const server_tokens& prompt, bool wide);

// Where the tokens lie in the memory of a model with wide positions.
TokenPlaces PlacesOf(const server_tokens& prompt);

// The first `count` tokens of `prompt`, media without their pixels. Requires that `count` lies in
// no chunk.
server_tokens FirstTokens(const server_tokens& prompt, std::uint32_t count, bool has_mtmd);

}  // namespace parkade
