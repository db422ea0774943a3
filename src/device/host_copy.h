// Copies into memory of an engine that lies in the host's RAM.
#pragma once

#include <cstddef>

namespace parkade {

// As memcpy, for a destination that nobody reads soon: it is written past the processor's caches
// where the machine can do that, so that neither is it read first nor does it push out what others
// still need. From 4 KiB up that takes about two thirds of memcpy's time (`parkade-bench run
// copy`); smaller runs go through memcpy. Whoever synchronises with the caller sees the bytes. The
// ranges must not overlap. Any thread.
void CopyToRest(char* to, const char* from, std::size_t bytes);

}  // namespace parkade
