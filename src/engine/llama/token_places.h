// Where tokens lie in memory when their positions are not simply their numbers: M-RoPE models give
// an image's tokens one position in the sequence and another two in the picture.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "llama.h"

namespace parkade {

// What llama.cpp keeps of a token's cell.
struct CellPlace {
  llama_pos position = 0;
  llama_pos x = 0;
  llama_pos y = 0;
  llama_token token = LLAMA_TOKEN_NULL;  // null for media
};

// A value type. Positions never fall from one token to the next. Of a prompt: PlacesOf in
// prompt_tokens.h.
class TokenPlaces {
 public:
  TokenPlaces() = default;
  // Text alone: every position is the token's number.
  explicit TokenPlaces(absl::Span<const llama_token> text);

  void AddText(llama_token token);
  // The cells of an image or a sound; what follows comes `positions` later.
  void AddMedia(absl::Span<const CellPlace> cells, llama_pos positions);
  llama_pos next() const { return next_; }

  std::uint32_t size() const { return static_cast<std::uint32_t>(places_.size()); }
  const CellPlace& operator[](std::uint32_t token) const { return places_[token]; }
  // Index of the token at this place, size() when there is none. *hint: where to look first; set to
  // the token after the one found, so that a walk in order costs one comparison a token.
  std::uint32_t Find(llama_pos position, llama_pos x, llama_pos y, std::uint32_t* hint) const;

 private:
  std::vector<CellPlace> places_;
  llama_pos next_ = 0;
};

}  // namespace parkade
