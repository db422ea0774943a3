// llama.cpp's state stream, without its payload: where the rows of one memory section lie.
//
// `state_write` and `state_read` hand (tensor, offset, size) to an interface of ours. The classes
// behind these functions record that and copy nothing; rows are moved later, extent by extent.
// The stream of a section (all numbers in the machine's byte order):
//   KV:    u32 streams; per stream u32 n (0: nothing follows), n x {i32 pos, u32 count,
//          [i32 x, i32 y, i32 token where positions are wide,] i32 seq...},
//          u32 v_trans, u32 layers, per layer {i32 type, u64 row bytes, rows} for K, then for V.
//   State: u32 n, n x {i32 pos, u32 0}, u32 s_trans, u32 layers, per recurrent layer
//          {i32 type, u64 row bytes, rows [, u64 row bytes, rows]} for R [and P], then for S.
// Both directions are strict: a stream that is not exactly this is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/image.h"
#include "src/engine/llama/token_places.h"

struct ggml_tensor;
struct llama_memory_i;

namespace parkade {

// One tensor a section writes, in the order of the stream.
struct WirePlane {
  PlaneKind kind = PlaneKind::kKey;
  std::uint16_t layer = 0;
  std::int32_t type = 0;
  std::uint64_t row_bytes = 0;
  // Index into StateLayout::planes; -1 for a tensor without bytes, which no extent carries.
  int layout_plane = -1;
};

// One memory object of llama.cpp that writes a section of its own.
struct MemorySection {
  enum class Kind { kKv, kState };
  Kind kind = Kind::kKv;
  RowGroup group = RowGroup::kFull;
  llama_memory_i* memory = nullptr;  // owned by the context
  std::uint32_t layers = 0;          // as the section counts them in its stream
  // Of a window cache: its mask, as llama.cpp numbers it; 0 tokens elsewhere.
  std::uint32_t mask_tokens = 0;
  int mask_type = 0;
  // Cells carry more than one number (M-RoPE): the functions below need to be told the places of
  // the sequence's tokens. They take null where a token's position is its number.
  bool wide = false;
  std::vector<WirePlane> planes;
};

// Rows of one sequence in one section: token `range.begin + i` is row `cells[i]` of every tensor.
// For a state section there is one row, and `range` is [position, position + 1), where `position`
// counts the tokens that came before.
struct SectionRows {
  TokenRange range;
  std::vector<std::uint32_t> cells;
  std::vector<ggml_tensor*> tensors;  // parallel to MemorySection::planes; owned by the context
};

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
