// llama.cpp's state stream without its payload: header bytes <-> where the rows of a section lie.
// Nothing of llama.cpp is included, so that this can be tested on bytes that no llama.cpp writes.
//
// The stream of a section (all numbers in the machine's byte order):
//   KV:    u32 streams; per stream u32 n (0: nothing follows), n x {i32 pos, u32 count,
//          [i32 x, i32 y, i32 token where positions are wide,] i32 seq...},
//          u32 v_trans, u32 layers, per layer {i32 type, u64 row bytes, rows} for K, then for V.
//   State: u32 n, n x {i32 pos, u32 0}, u32 s_trans, u32 layers, per recurrent layer
//          {i32 type, u64 row bytes, rows [, u64 row bytes, rows]} for R [and P], then for S.
// Both directions are strict: a stream that is not exactly this is refused.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
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

// What `write_tensor` and `read_tensor` were handed, in order.
struct TensorRun {
  ggml_tensor* tensor = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Internal, with one line that says what was not as expected.
absl::Status UnexpectedStream(const MemorySection& section, std::string_view what);

// Position of the last of `tokens` tokens; `places` null: a token's position is its number.
std::int32_t LastPosition(const TokenPlaces* places, std::uint32_t tokens);
// FailedPrecondition: `places` don't tell where `tokens` tokens are.
absl::Status CheckPlaces(const MemorySection& section, std::uint32_t tokens,
                         const TokenPlaces* places);

// Where `sequence` has its rows, from what a section of this kind wrote; statuses and result as of
// LocateRows. Memory and time in proportion to header, runs and `tokens`, whatever the counts in
// the header say. Requires that CheckPlaces is OK, and tokens > 0.
absl::StatusOr<SectionRows> ParseKvHeader(const MemorySection& section,
                                          absl::Span<const char> header,
                                          absl::Span<const TensorRun> runs, std::int32_t sequence,
                                          std::uint32_t tokens, const TokenPlaces* places);
absl::StatusOr<SectionRows> ParseStateHeader(const MemorySection& section,
                                             absl::Span<const char> header,
                                             absl::Span<const TensorRun> runs, std::uint32_t tokens,
                                             const TokenPlaces* places);

// What a section would write for the rows of `range` of one sequence, numbered 0, in the first of
// `streams` streams; requires that CheckPlaces is OK for range.end. And for one state.
std::vector<char> KvHeader(const MemorySection& section, std::uint32_t streams, TokenRange range,
                           const TokenPlaces* places);
std::vector<char> StateHeader(const MemorySection& section, std::uint32_t tokens,
                              const TokenPlaces* places);
// Where rows were placed, from what `read_tensor` was handed.
absl::StatusOr<SectionRows> ParsePlacedRows(const MemorySection& section,
                                            absl::Span<const TensorRun> runs, TokenRange range);

}  // namespace parkade
