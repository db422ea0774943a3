#include "src/engine/llama/token_places.h"

#include <algorithm>
#include <cstddef>

#include "mtmd.h"
#include "server-common.h"

namespace parkade {

void TokenPlaces::AddText(llama_token token, llama_pos position) {
  places_.push_back({position, position, position, token});
}

TokenPlaces::TokenPlaces(absl::Span<const llama_token> text) {
  places_.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) AddText(text[i], static_cast<llama_pos>(i));
}

TokenPlaces::TokenPlaces(const server_tokens& tokens) {
  places_.reserve(tokens.size());
  llama_pos next = 0;
  for (std::size_t i = 0; i < tokens.size();) {
    if (tokens[i] != LLAMA_TOKEN_NULL) {
      AddText(tokens[i++], next++);
      continue;
    }
    const mtmd_input_chunk* chunk = tokens.find_chunk(i).get();
    const std::size_t count = mtmd_input_chunk_get_n_tokens(chunk);
    const mtmd_image_tokens* image = mtmd_input_chunk_get_tokens_image(chunk);
    for (std::size_t k = 0; k < count; ++k) {
      const auto straight = next + static_cast<llama_pos>(k);
      CellPlace place{straight, straight, straight, LLAMA_TOKEN_NULL};
      if (image != nullptr) {
        const mtmd_decoder_pos at = mtmd_image_tokens_get_decoder_pos(image, next, k);
        place.position = static_cast<llama_pos>(at.t);
        place.x = static_cast<llama_pos>(at.x);
        place.y = static_cast<llama_pos>(at.y);
      }
      places_.push_back(place);
    }
    next += mtmd_input_chunk_get_n_pos(chunk);
    i += count;
  }
}

std::uint32_t TokenPlaces::Find(llama_pos position, llama_pos x, llama_pos y,
                                std::uint32_t* hint) const {
  auto fits = [&](const CellPlace& place) {
    return place.position == position && place.x == x && place.y == y;
  };
  std::uint32_t found = *hint;
  if (found >= size() || !fits(places_[found])) {
    const auto first = std::lower_bound(
        places_.begin(), places_.end(), position,
        [](const CellPlace& place, llama_pos wanted) { return place.position < wanted; });
    auto it = first;
    while (it != places_.end() && it->position == position && !fits(*it)) ++it;
    if (it == places_.end() || it->position != position) return size();
    found = static_cast<std::uint32_t>(it - places_.begin());
  }
  *hint = found + 1;
  return found;
}

}  // namespace parkade
