// llama.cpp's state stream, without its payload: where the rows of one memory section lie.
//
// `state_write` and `state_read` hand (tensor, offset, size) to an interface of ours. The classes
// behind these functions record that and copy nothing; rows are moved later, extent by extent.
// state_header.h says what the stream looks like.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/image.h"
#include "src/engine/llama/state_header.h"
#include "src/engine/llama/token_places.h"

namespace parkade {

// Finds the rows that `sequence` holds for the gap-free run of tokens that ends before `tokens`
// (range.begin is the first of them, `tokens` when there is none). Copies no payload.
// FailedPrecondition: the sequence's last position is not `tokens` - 1. Internal: not the expected
// stream. Cost: one walk over the section's cells.
absl::StatusOr<SectionRows> LocateRows(const MemorySection& section, std::int32_t sequence,
                                       std::uint32_t tokens, const TokenPlaces* places);

// False when the section writes no stream at all: its cells belong to another context's memory.
bool WritesState(const MemorySection& section);

// Cells of a KV section that rows of `sequence` could be placed in now: empty ones and, in a window
// cache, those that another sequence's window has left behind. Cost: one walk over the cells.
std::uint32_t UsableCells(const MemorySection& section, std::int32_t sequence);

// Makes room for the rows of `range` in a section where `sequence` holds nothing, and says where
// they are; their bytes are undefined until they are written. For a state section `range` is
// [position, position + 1). ResourceExhausted: no room, or llama.cpp refused; the section then
// holds nothing of `sequence`. Requires range.begin < range.end.
absl::StatusOr<SectionRows> PlaceRows(const MemorySection& section, std::int32_t sequence,
                                      TokenRange range, const TokenPlaces* places);

}  // namespace parkade
