// Where tokens lie in memory when their positions are not simply their numbers: M-RoPE models give
// an image's tokens one position in the sequence and another two in the picture.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace parkade {

// llama.cpp's LLAMA_TOKEN_NULL; its positions and tokens are 32-bit numbers as well.
inline constexpr std::int32_t kNoToken = -1;

// What llama.cpp keeps of a token's cell.
struct CellPlace {
  std::int32_t position = 0;
  std::int32_t x = 0;
  std::int32_t y = 0;
  std::int32_t token = kNoToken;  // null for media
};

// A value type. Positions never fall from one token to the next. Of a prompt: PlacesOf in
// prompt_tokens.h.
class TokenPlaces {
 public:
  TokenPlaces() = default;
  // Text alone: every position is the token's number.
  explicit TokenPlaces(absl::Span<const std::int32_t> text);

  void AddText(std::int32_t token);
  // The cells of an image or a sound; what follows comes `positions` later.
  void AddMedia(absl::Span<const CellPlace> cells, std::int32_t positions);
  std::int32_t next() const { return next_; }

  std::uint32_t size() const { return static_cast<std::uint32_t>(places_.size()); }
  const CellPlace& operator[](std::uint32_t token) const { return places_[token]; }
  // Index of the token at this place, size() when there is none. *hint: where to look first; set to
  // the token after the one found, so that a walk in order costs one comparison a token.
  std::uint32_t Find(std::int32_t position, std::int32_t x, std::int32_t y,
                     std::uint32_t* hint) const;

 private:
  std::vector<CellPlace> places_;
  std::int32_t next_ = 0;
};

}  // namespace parkade
