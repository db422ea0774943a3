// How long this model takes to read prompt tokens, as measured, by depth.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "parkade/image.h"

namespace parkade {

// Keeps the fastest speed seen for each depth (powers of two above 1024 tokens). The fastest,
// because a batch that shares the device with other slots, or a short one, says how busy the
// machine was and not what the tokens cost; so what is derived from it is a lower bound.
// Not thread safe. No allocation.
class PromptSpeed {
 public:
  // `tokens` prompt tokens that follow `first_token` others were computed in `seconds`.
  // Fewer than 64 tokens, and times that are not positive, are ignored: they measure the overhead.
  void Add(std::uint32_t first_token, std::uint32_t tokens, double seconds);

  // Seconds that computing these positions takes. A depth not measured yet counts as the nearest
  // measured smaller one (faster, so less), else as the nearest larger one.
  // Nullopt: nothing was measured yet.
  std::optional<double> SecondsFor(const TokenRange& range) const;

 private:
  static constexpr int kDepths = 23;

  std::optional<double> SecondsPerToken(int depth) const;

  // 0: not measured.
  std::array<double, kDepths> seconds_per_token_{};
};

}  // namespace parkade
