// The part of `copy` that needs a card, and what both parts share.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/image.h"
#include "src/device/stage_copier.h"
#include "tests/bench/workload.h"

namespace parkade::bench {

// Planes of the layout one behind the other from `memory` on, flat or (page_rows > 0, which divides
// `tokens`) in pages in a random order.
std::vector<PlaneRows> PlanesIn(char* memory, const StateLayout& layout, std::uint32_t tokens,
                                std::uint32_t page_rows, std::uint64_t seed);

// An extent's rows of all planes, one plane behind the other.
std::vector<PlaneRun> RunsOf(const std::vector<PlaneRows>& planes, const ExtentInfo& extent);

// Seconds for all extents between the planes and packed bytes.
absl::StatusOr<double> TimeRows(StageCopier& copier, const std::vector<PlaneRows>& planes,
                                const std::vector<ExtentInfo>& extents, char* packed, bool out);

// Adds card_* figures, or the note that says why there are none.
absl::Status AddCardCopies(const StateLayout& layout, const std::vector<ExtentInfo>& extents,
                           std::uint32_t tokens, const BenchOptions& options, Outcome* outcome);

}  // namespace parkade::bench
