// Which positions of a stored path can be restored. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "parkade/image.h"

namespace parkade {

// What a path of parks holds besides one full row a token.
struct Coverage {
  std::vector<TokenRange> window_rows;     // ascending, disjoint, not touching
  std::vector<std::uint32_t> checkpoints;  // ascending
};

// Adds a range, keeping the list ascending, disjoint and merged.
void AddRange(std::vector<TokenRange>* ranges, TokenRange range);

// First window row that a restore to `position` needs: n_swa + 1 rows before it, because the engine
// asks for one row more than the attention sees.
std::uint32_t WindowNeedBegin(std::uint32_t position, std::uint32_t window_tokens);

// Deepest position <= match that is usable: gap-free window rows over
// [WindowNeedBegin(p), p) where the model has window planes, a checkpoint at exactly p where it has
// recurrent state. 0: none.
std::uint32_t UsableBoundary(const StateLayout& layout, const Coverage& coverage,
                             std::uint32_t match);

// Deepest position <= `position` that lies inside none of `whole` (ascending, disjoint); its ends
// are outside.
std::uint32_t OutsideOf(const std::vector<TokenRange>& whole, std::uint32_t position);

// What of the window rows [begin, end) is not covered yet.
std::vector<TokenRange> Uncovered(const std::vector<TokenRange>& covered, TokenRange range);

}  // namespace parkade
