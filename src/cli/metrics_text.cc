#include "src/cli/metrics_text.h"

#include <charconv>

namespace parkade {

std::map<std::string, double> ParseMetrics(std::string_view text, std::string_view prefix) {
  std::map<std::string, double> samples;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.substr(0, prefix.size()) != prefix) continue;
    const std::size_t space = line.rfind(' ');
    if (space == std::string_view::npos) continue;
    double value = 0;
    const char* const line_end = line.data() + line.size();
    const auto parsed = std::from_chars(line.data() + space + 1, line_end, value);
    if (parsed.ec != std::errc() || parsed.ptr != line_end) continue;
    samples[std::string(line.substr(0, space))] = value;
  }
  return samples;
}

std::map<std::string, double> ByLabel(const std::map<std::string, double>& samples,
                                      std::string_view family, std::string_view label) {
  std::map<std::string, double> out;
  const std::string begin = std::string(family) + "{";
  const std::string key = std::string(label) + "=\"";
  for (const auto& [series, value] : samples) {
    if (series.rfind(begin, 0) != 0) continue;
    const std::size_t at = series.find(key);
    if (at == std::string::npos) continue;
    const std::size_t from = at + key.size();
    out[series.substr(from, series.find('"', from) - from)] += value;
  }
  return out;
}

}  // namespace parkade
