// Which checkpoints go when they take too much of a tier. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace parkade {

// A tier's budget is shared: recurrent state is large beside token rows, and each checkpoint but
// the newest only shortens what is read again.
inline constexpr std::uint64_t kCheckpointShare = 4;

struct CheckpointCandidate {
  std::uint32_t position = 0;
  std::uint64_t bytes = 0;
  // Of the conversation or of the youngest fork of it that shares the position.
  std::int64_t last_used_unix_ms = 0;
  bool first = false;  // of a conversation that is no fork: as a rule the system prompt's end
};

// Indices of candidates worth at least `excess_bytes` (all of them when they are not), in the order
// in which they go: those in the middle of a long message first, of the conversations used longest
// ago and the oldest ones first; a system prompt's end after the others of its age.
std::vector<std::size_t> ChooseSuperseded(absl::Span<const CheckpointCandidate> candidates,
                                          std::uint64_t excess_bytes);

}  // namespace parkade
