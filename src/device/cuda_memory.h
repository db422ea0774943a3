// Page-locked memory for buffers that cards copy from and to.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "parkade/host_memory.h"

namespace parkade {

// Near `device`, and page-locked for all cards of the process. Unavailable: there is no such card;
// Unimplemented: this build is without CUDA.
absl::StatusOr<std::shared_ptr<HostMemory>> NewCudaHostMemory(int device);

}  // namespace parkade
