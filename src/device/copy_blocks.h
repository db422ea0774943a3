// What a copier has to move, as blocks of equal rows: pages and strides taken apart.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/device/stage_copier.h"

namespace parkade {

// `rows` rows of `width` bytes, `stride` bytes apart in the device's memory, one behind the other
// in the host's. Read by kernels: plain.
struct CopyBlock {
  char* device = nullptr;
  std::uint64_t host_offset = 0;
  std::uint64_t stride = 0;
  std::uint64_t width = 0;
  std::uint64_t rows = 0;

  std::uint64_t bytes() const { return width * rows; }
};

// The blocks of `runs`, those that touch on both sides joined, in ascending host_offset where the
// runs are; replaces what `blocks` held. InvalidArgument: see StageCopier; `blocks` is empty then.
absl::Status ExpandRuns(absl::Span<const PlaneRun> runs, std::vector<CopyBlock>* blocks);

// The same bytes in blocks of at most `most_bytes` each, in the same order: what one group of
// threads copies. Requires most_bytes > 0.
std::vector<CopyBlock> CutToPieces(absl::Span<const CopyBlock> blocks, std::uint64_t most_bytes);

}  // namespace parkade
