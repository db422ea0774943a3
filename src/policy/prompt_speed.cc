#include "src/policy/prompt_speed.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace parkade {
namespace {

constexpr std::uint32_t kLeastTokens = 64;
constexpr int kFirstDepthBits = 10;

// Depth 0 is [0, 1024), depth i is [512 << i, 1024 << i).
int DepthOf(std::uint32_t position) {
  return std::max(0, static_cast<int>(std::bit_width(position)) - kFirstDepthBits);
}

std::uint64_t DepthEnd(int depth) { return std::uint64_t{1} << (kFirstDepthBits + depth); }

}  // namespace

void PromptSpeed::Add(std::uint32_t first_token, std::uint32_t tokens, double seconds) {
  if (tokens < kLeastTokens || !std::isfinite(seconds) || seconds <= 0) return;
  const std::uint64_t middle = std::uint64_t{first_token} + tokens / 2;
  const int depth =
      DepthOf(static_cast<std::uint32_t>(std::min<std::uint64_t>(middle, UINT32_MAX)));
  const double measured = seconds / tokens;
  double& kept = seconds_per_token_[depth];
  if (kept == 0 || measured < kept) kept = measured;
}

std::optional<double> PromptSpeed::SecondsPerToken(int depth) const {
  for (int i = depth; i >= 0; --i) {
    if (seconds_per_token_[i] > 0) return seconds_per_token_[i];
  }
  for (int i = depth + 1; i < kDepths; ++i) {
    if (seconds_per_token_[i] > 0) return seconds_per_token_[i];
  }
  return std::nullopt;
}

std::optional<double> PromptSpeed::SecondsFor(const TokenRange& range) const {
  double total_seconds = 0;
  std::uint64_t position = range.begin;
  while (position < range.end) {
    const int depth = DepthOf(static_cast<std::uint32_t>(position));
    const std::optional<double> each = SecondsPerToken(depth);
    if (!each.has_value()) return std::nullopt;
    const std::uint64_t end = std::min<std::uint64_t>(range.end, DepthEnd(depth));
    total_seconds += *each * static_cast<double>(end - position);
    position = end;
  }
  return total_seconds;
}

}  // namespace parkade
