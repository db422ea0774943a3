// Where tokens lie in memory when their positions are not simply their numbers: M-RoPE models give
// an image's tokens one position in the sequence and another two in the picture.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "llama.h"

struct server_tokens;

namespace parkade {

// What llama.cpp keeps of a token's cell.
struct CellPlace {
  llama_pos position = 0;
  llama_pos x = 0;
  llama_pos y = 0;
  llama_token token = LLAMA_TOKEN_NULL;  // null for media
};

// A value type, immutable. Positions never fall from one token to the next.
class TokenPlaces {
 public:
  // Text alone: every position is the token's number.
  explicit TokenPlaces(absl::Span<const llama_token> text);
  explicit TokenPlaces(const server_tokens& tokens);

  std::uint32_t size() const { return static_cast<std::uint32_t>(places_.size()); }
  const CellPlace& operator[](std::uint32_t token) const { return places_[token]; }
  // Index of the token at this place, size() when there is none. *hint: where to look first; set to
  // the token after the one found, so that a walk in order costs one comparison a token.
  std::uint32_t Find(llama_pos position, llama_pos x, llama_pos y, std::uint32_t* hint) const;

 private:
  void AddText(llama_token token, llama_pos position);
  std::vector<CellPlace> places_;
};

}  // namespace parkade
