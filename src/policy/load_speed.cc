#include "src/policy/load_speed.h"

#include <algorithm>
#include <cmath>

namespace parkade {
namespace {

constexpr std::uint64_t kLeastBytes = 256u << 10;

}  // namespace

void LoadSpeed::Add(std::uint64_t bytes, double seconds) {
  if (bytes < kLeastBytes || !std::isfinite(seconds) || seconds <= 0) return;
  std::move_backward(seconds_per_byte_.begin(), seconds_per_byte_.end() - 1,
                     seconds_per_byte_.end());
  seconds_per_byte_[0] = seconds / static_cast<double>(bytes);
  count_ = std::min(count_ + 1, kKept);
}

void LoadSpeed::NoteSkipped() {
  if (count_ > 0) --count_;
}

std::optional<double> LoadSpeed::SecondsFor(std::uint64_t bytes) const {
  if (count_ == 0) return std::nullopt;
  const auto end = seconds_per_byte_.begin() + static_cast<std::ptrdiff_t>(count_);
  return *std::min_element(seconds_per_byte_.begin(), end) * static_cast<double>(bytes);
}

std::optional<LoadChoice> ChooseLoad(std::uint32_t held, std::uint32_t boundary,
                                     absl::Span<const LoadPart> parts, const PromptSpeed& reading) {
  const std::optional<double> all = reading.SecondsFor({held, boundary});
  if (!all.has_value()) return std::nullopt;
  LoadChoice choice;
  choice.read_seconds = *all;
  double best_gain = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    choice.load_seconds += parts[i].seconds;
    const bool last = i + 1 == parts.size();
    // State behind the last tokens belongs to the whole.
    const std::uint32_t end = last ? boundary : std::min(parts[i].end, boundary);
    if (end <= held) continue;
    const double gain = reading.SecondsFor({held, end}).value_or(0) - choice.load_seconds;
    if (gain <= best_gain) continue;
    best_gain = gain;
    choice.end = end;
  }
  return choice;
}

}  // namespace parkade
