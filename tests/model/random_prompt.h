// Prompts of clients that go on, regenerate, edit and branch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/unit/manager_rig.h"

namespace parkade::test {

// A new text, one of `texts` and something more, or a beginning of one and something else.
inline std::vector<Token> RandomPrompt(std::mt19937_64& random,
                                       const std::vector<std::vector<Token>>& texts) {
  const auto below = [&random](std::size_t count) {
    return std::uniform_int_distribution<std::uint32_t>(
        0, static_cast<std::uint32_t>(count) - 1)(random);
  };
  const auto chance = [&below](std::uint32_t percent) { return below(100) < percent; };
  if (texts.empty() || chance(15)) return Tokens(random(), 1 + below(500));
  const std::vector<Token>& text = texts[below(texts.size())];
  std::size_t keep = text.size();
  // An edit somewhere, often near a page or an extent's end.
  if (chance(40)) keep = 1 + below(text.size());
  if (chance(15)) keep = std::min(text.size(), keep / kPageTokens * kPageTokens + below(3));
  keep = std::min<std::size_t>(keep, 3000);
  return Fork(text, keep, random(), 1 + below(chance(20) ? 500 : 90));
}

}  // namespace parkade::test
