// Outcomes as text: a table for people, one JSON line for programs.
#pragma once

#include <string>
#include <string_view>

#include "tests/bench/workload.h"

namespace parkade::bench {

// {"name":…, "figures":{…}, "goals":{figure: {"at_most"|"at_least": bound}}, "met": bool}, no line
// end.
std::string JsonLine(std::string_view name, const Outcome& outcome);
std::string Table(std::string_view name, const Outcome& outcome);

}  // namespace parkade::bench
