// One lookup as a line for people.
#pragma once

#include <optional>
#include <string>

#include "parkade/events.h"

namespace parkade {

// Why most of the prompt was computed: the reason with the most tokens. `new` only when there is
// no other, since the end of every prompt is new. Nullopt: no token was computed.
std::optional<MissReason> MainMissReason(const LookupRecord& record);

// One line without a line end and without any text of the prompt, e.g.
// "lookup: partial, 4224 of 4330 tokens reused (ram 4224), computed 106 (diverged 90, new 16),
// conversation 6f1c..., boundary 4224 (turn), lookup 0.4 ms, restore 12.1 ms (20.2 MiB)".
std::string FormatLookupLine(const LookupRecord& record);

// Why a prompt was read again, for a lookup of which more than kExplainedMissTokens were computed
// that somebody could have expected to be reused; nullopt for others. No text of the prompt, e.g.
// "miss: the prompt differs at token 412 of 9,310 (a clock time that changes in every request);
// 8,898 tokens read again".
std::optional<std::string> FormatMissLine(const LookupRecord& record);

}  // namespace parkade
