#include "src/manager/boundary.h"

#include <algorithm>

namespace parkade {

void AddRange(std::vector<TokenRange>* ranges, TokenRange range) {
  if (range.empty()) return;
  std::vector<TokenRange> merged;
  merged.reserve(ranges->size() + 1);
  for (const TokenRange& other : *ranges) {
    if (other.end < range.begin || range.end < other.begin) {
      merged.push_back(other);
    } else {
      range.begin = std::min(range.begin, other.begin);
      range.end = std::max(range.end, other.end);
    }
  }
  merged.insert(
      std::upper_bound(merged.begin(), merged.end(), range,
                       [](const TokenRange& a, const TokenRange& b) { return a.begin < b.begin; }),
      range);
  *ranges = std::move(merged);
}

std::uint32_t WindowNeedBegin(std::uint32_t position, std::uint32_t window_tokens) {
  const std::uint64_t need = static_cast<std::uint64_t>(window_tokens) + 1;
  return position > need ? static_cast<std::uint32_t>(position - need) : 0;
}

namespace {

bool WindowCovers(const std::vector<TokenRange>& rows, std::uint32_t begin, std::uint32_t end) {
  if (begin >= end) return true;
  for (const TokenRange& range : rows) {
    if (range.begin <= begin && end <= range.end) return true;
  }
  return false;
}

std::uint32_t DeepestWindowPosition(const std::vector<TokenRange>& rows,
                                    std::uint32_t window_tokens, std::uint32_t match) {
  std::uint32_t best = 0;
  for (const TokenRange& range : rows) {
    const std::uint32_t position = std::min(range.end, match);
    if (position > range.begin && WindowNeedBegin(position, window_tokens) >= range.begin) {
      best = std::max(best, position);
    }
  }
  return best;
}

}  // namespace

std::uint32_t UsableBoundary(const StateLayout& layout, const Coverage& coverage,
                             std::uint32_t match) {
  const bool window = layout.has_group(RowGroup::kWindow);
  if (layout.has_group(RowGroup::kState)) {
    for (auto it = coverage.checkpoints.rbegin(); it != coverage.checkpoints.rend(); ++it) {
      if (*it > match) continue;
      if (!window ||
          WindowCovers(coverage.window_rows, WindowNeedBegin(*it, layout.window_tokens), *it)) {
        return *it;
      }
    }
    return 0;
  }
  if (window) return DeepestWindowPosition(coverage.window_rows, layout.window_tokens, match);
  return match;
}

std::uint32_t OutsideOf(const std::vector<TokenRange>& whole, std::uint32_t position) {
  for (const TokenRange& range : whole) {
    if (range.begin < position && position < range.end) return range.begin;
  }
  return position;
}

std::vector<TokenRange> Uncovered(const std::vector<TokenRange>& covered, TokenRange range) {
  std::vector<TokenRange> missing;
  for (const TokenRange& have : covered) {
    if (range.empty()) break;
    if (have.end <= range.begin || have.begin >= range.end) continue;
    if (have.begin > range.begin) missing.push_back({range.begin, have.begin});
    range.begin = have.end;
  }
  if (!range.empty()) missing.push_back(range);
  return missing;
}

}  // namespace parkade
