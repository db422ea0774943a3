// How long a tier takes to give back bytes, as measured, down to the last row in the engine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

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

}  // namespace parkade
