// The kernel that moves blocks between their places in a card's memory and packed bytes there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "src/device/copy_blocks.h"

namespace parkade {

// Queues on `stream`: each of the `count` blocks of `table` is copied to (`pack`) or from `packed`,
// where it begins host_offset bytes in. `table` lies where host and card can read it, and stays
// unchanged until the kernel has run. Blocks should be of a size, 64 KiB or so: one group of
// threads copies each. Requires count > 0.
cudaError_t LaunchCopyBlocks(const CopyBlock* table, std::uint32_t count, char* packed, bool pack,
                             cudaStream_t stream);

}  // namespace parkade
