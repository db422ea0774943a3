#include "src/engine/llama/token_places.h"

#include <algorithm>
#include <cstddef>

namespace parkade {

TokenPlaces::TokenPlaces(absl::Span<const std::int32_t> text) {
  places_.reserve(text.size());
  for (const std::int32_t token : text) AddText(token);
}

void TokenPlaces::AddText(std::int32_t token) {
  places_.push_back({next_, next_, next_, token});
  ++next_;
}

void TokenPlaces::AddMedia(absl::Span<const CellPlace> cells, std::int32_t positions) {
  places_.insert(places_.end(), cells.begin(), cells.end());
  next_ += positions;
}

std::uint32_t TokenPlaces::Find(std::int32_t position, std::int32_t x, std::int32_t y,
                                std::uint32_t* hint) const {
  auto fits = [&](const CellPlace& place) {
    return place.position == position && place.x == x && place.y == y;
  };
  std::uint32_t found = *hint;
  if (found >= size() || !fits(places_[found])) {
    const auto first = std::lower_bound(
        places_.begin(), places_.end(), position,
        [](const CellPlace& place, std::int32_t wanted) { return place.position < wanted; });
    auto it = first;
    while (it != places_.end() && it->position == position && !fits(*it)) ++it;
    if (it == places_.end() || it->position != position) return size();
    found = static_cast<std::uint32_t>(it - places_.begin());
  }
  *hint = found + 1;
  return found;
}

}  // namespace parkade
