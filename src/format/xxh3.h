// XXH3 from libxxhash, with the widest vector instructions that this processor has where the
// library brings them: Debian builds it for the oldest x86-64, and its run-time choice is in a
// header of its own. The values are the same either way.
#pragma once

#ifdef PARKADE_XXHASH_DISPATCH
// Names of the ordinary functions become macros for the chosen ones.
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif
