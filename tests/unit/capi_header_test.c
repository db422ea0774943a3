/* The header alone, in C11. */
#include "parkade/parkade.h"

_Static_assert(PARKADE_API_VERSION == 1, "a new version is a new library name");
_Static_assert(offsetof(parkade_cache_options, struct_size) == 0, "the size comes first");
_Static_assert(offsetof(parkade_stats, struct_size) == 0, "the size comes first");
_Static_assert(sizeof(((parkade_park_result*)0)->conversation) == PARKADE_ID_CHARS, "an id");

uint32_t parkade_version_in_c(void) { return parkade_api_version(); }
