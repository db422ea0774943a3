// One lookup in sentences: what was read again, why, and what helps.
#pragma once

#include <string>

#include "src/cli/cache_tables.h"

namespace parkade {

// `lookup` is one of GET /conversations/lookups. Throws nlohmann::json::exception when it has
// another shape.
std::string LookupText(const CliJson& lookup, const CliView& view);

}  // namespace parkade
