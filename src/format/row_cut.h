// The first rows of an extent, for the extent in which a fork leaves its parent: the rows after
// that position are the parent's own and must not reach the engine. Pure functions.
#pragma once

#include <cstdint>

#include "parkade/image.h"

namespace parkade {

// The extent that holds the first `rows` rows of `extent`, its checksum zero; `extent` itself when
// that is all of them. Requires 0 < rows <= extent.rows.
ExtentInfo FirstRows(const ExtentInfo& extent, std::uint32_t rows);

// Copies the raw bytes of FirstRows(extent, rows) out of those of `extent`, which must fit the
// layout. `destination` has FirstRows(...).raw_bytes bytes.
void CopyFirstRows(const StateLayout& layout, const Stage& stage, const ExtentInfo& extent,
                   std::uint32_t rows, const char* raw, char* destination);

}  // namespace parkade
