// A park as the catalogue rows that stand in the head of a segment. No I/O.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parkade/image.h"
#include "src/format/catalogue.h"
#include "src/format/segment.h"

namespace parkade {

// Bytes of a payload that a park can be stored with: all of its extents are there, each has a
// stage, and together they fit a park. InvalidArgument: it is not that.
absl::StatusOr<std::uint64_t> CheckedPayloadBytes(const ParkRecord& record,
                                                  absl::Span<const ExtentBytes> payload);

// Manifest, tokens, and an image row for each stage, in this order. `extents` by ordinal; each has
// a stage of the record.
std::vector<CatalogueRow> ParkRows(const ParkRecord& record, std::uint64_t segment,
                                   const std::vector<StoredExtent>& extents);

// Extents by ordinal from the image rows of all stages. DataLoss: they are not that.
absl::StatusOr<std::vector<StoredExtent>> JoinImages(std::uint64_t segment, const ParkKey& key,
                                                     absl::Span<const CatalogueRow> rows);

}  // namespace parkade
