// The server's counters, read back from its metrics.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace parkade {

// Series of Prometheus text whose names begin with `prefix`, as written (name and labels) -> value.
// Comments and lines that are not samples are skipped.
std::map<std::string, double> ParseMetrics(std::string_view text, std::string_view prefix);

// Samples of one family by the value of `label`: "parkade_hit_tokens_total", "tier" -> ram: 5, ...
std::map<std::string, double> ByLabel(const std::map<std::string, double>& samples,
                                      std::string_view family, std::string_view label);

}  // namespace parkade
