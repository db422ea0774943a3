#include "src/policy/thinning.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "parkade/image.h"

namespace parkade {

std::vector<std::size_t> ChooseSuperseded(absl::Span<const CheckpointCandidate> candidates,
                                          std::uint64_t excess_bytes) {
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto rank = [&](std::size_t i) {
    const CheckpointCandidate& candidate = candidates[i];
    return std::tuple(!IsBetween(candidate.position), candidate.last_used_unix_ms, candidate.first,
                      candidate.position, i);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  std::uint64_t chosen_bytes = 0;
  std::size_t chosen = 0;
  while (chosen < order.size() && chosen_bytes < excess_bytes) {
    chosen_bytes += candidates[order[chosen++]].bytes;
  }
  order.resize(chosen);
  return order;
}

}  // namespace parkade
