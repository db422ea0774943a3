// Values of the cache -> JSON. Times are Unix seconds with fractions, absent things are null.
#pragma once

#include <cstddef>
#include <vector>

#include "nlohmann/json.hpp"
#include "parkade/conversation_cache.h"

namespace parkade {

// Keeps fields in the order of INTERFACE.
using Json = nlohmann::ordered_json;

// Of a name that people give a conversation, whichever request carries it.
inline constexpr std::size_t kMostNameBytes = 255;

// The fields of a list entry.
Json ConversationJson(const ConversationInfo& conversation);
// Those and stage_map, forked_at, checkpoints, parks.
Json ConversationDetailJson(const ConversationInfo& conversation);
Json TiersJson(const std::vector<TierInfo>& tiers);
Json LookupJson(const LookupRecord& record);

}  // namespace parkade
