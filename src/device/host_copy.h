// Copies into memory of an engine that lies in the host's RAM.
#pragma once

#include <cstddef>

namespace parkade {

// As memcpy, for a destination that nobody reads soon: it is written past the processor's caches
// where the machine can do that, so that neither is it read first nor does it push out what others
// still need; runs of less than 4 KiB go through memcpy. Whoever synchronises with the caller sees
// the bytes. The ranges must not overlap. Any thread. An import of rows by it against memcpy of
// the same bytes: `import_vs_memcpy` of `parkade-bench run copy`.
void CopyToRest(char* to, const char* from, std::size_t bytes);

}  // namespace parkade
