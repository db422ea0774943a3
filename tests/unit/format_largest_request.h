// The largest single request to operator new, which this replaces in the whole test program.
#pragma once

#include <atomic>
#include <cstddef>

namespace parkade {

extern std::atomic<std::size_t> largest_request_bytes;

}  // namespace parkade
