// How long a tier takes to give back bytes, as measured, down to the last row in the engine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "src/policy/prompt_speed.h"

namespace parkade {

// The fastest of the last few restores counts: a machine that was busy with something else says
// nothing about the medium. Not thread safe. No allocation.
class LoadSpeed {
 public:
  // Fewer than 256 KiB, and times that are not positive, are ignored: they measure the overhead.
  void Add(std::uint64_t bytes, double seconds);
  // Because of what was measured something was not loaded: the oldest measurement is forgotten, so
  // that a medium that was slow once is tried again.
  void NoteSkipped();
  // Nullopt: nothing was measured yet.
  std::optional<double> SecondsFor(std::uint64_t bytes) const;

 private:
  static constexpr std::size_t kKept = 8;
  std::array<double, kKept> seconds_per_byte_{};  // newest first
  std::size_t count_ = 0;
};

// One park on the way to a boundary.
struct LoadPart {
  std::uint32_t end = 0;  // of its tokens
  double seconds = 0;     // that loading what is needed of it takes
};

struct LoadChoice {
  std::uint32_t end = 0;    // load up to here and read the rest; 0: read all
  double load_seconds = 0;  // of all parts
  double read_seconds = 0;  // of all tokens from `held` on
};

// How far loading is worth its time: parts in order, the last one ends at `boundary` or before it.
// Nothing is held beyond `held`. Nullopt: what reading takes is not known.
std::optional<LoadChoice> ChooseLoad(std::uint32_t held, std::uint32_t boundary,
                                     absl::Span<const LoadPart> parts, const PromptSpeed& reading);

}  // namespace parkade
