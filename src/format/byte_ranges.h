// Which bytes of a plane an engine has imported.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace parkade {

// Exact whatever order and overlap the ranges come in.
class ByteRanges {
 public:
  void Add(std::uint64_t begin, std::uint64_t end) {
    auto next = ranges_.lower_bound(begin);
    if (next != ranges_.begin() && std::prev(next)->second >= begin) --next;
    while (next != ranges_.end() && next->first <= end) {
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
      next = ranges_.erase(next);
    }
    if (begin < end) ranges_.emplace_hint(next, begin, end);
  }

  bool Covers(std::uint64_t begin, std::uint64_t end) const { return FirstGap(begin, end) >= end; }
  void Clear() { ranges_.clear(); }

  // First byte of [begin, end) that was not added; `end` when all were.
  std::uint64_t FirstGap(std::uint64_t begin, std::uint64_t end) const {
    const auto next = ranges_.upper_bound(begin);
    if (next == ranges_.begin()) return begin;
    return std::max(begin, std::min(end, std::prev(next)->second));
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // begin -> end, disjoint, not touching
};

}  // namespace parkade
