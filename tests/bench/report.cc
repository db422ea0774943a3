#include "tests/bench/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace parkade::bench {
namespace {

// Six digits say more than any of these measures knows.
double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::fabs(value))) - 5);
  return std::round(value / unit) * unit;
}

std::string Number(double value) { return absl::StrFormat("%.6g", Rounded(value)); }

}  // namespace

std::string JsonLine(std::string_view name, const Outcome& outcome) {
  nlohmann::ordered_json figures = nlohmann::ordered_json::object();
  for (const auto& [figure, value] : outcome.figures) figures[figure] = std::stod(Number(value));
  nlohmann::ordered_json goals = nlohmann::ordered_json::object();
  for (const Goal& goal : outcome.goals) {
    goals[goal.figure] = {{goal.kind == Goal::Kind::kAtMost ? "at_most" : "at_least", goal.bound}};
  }
  nlohmann::ordered_json line;
  line["name"] = name;
  line["figures"] = std::move(figures);
  line["goals"] = std::move(goals);
  line["met"] = outcome.MeetsAll();
  return line.dump();
}

std::string Table(std::string_view name, const Outcome& outcome) {
  std::string table = absl::StrCat(absl::string_view(name.data(), name.size()), "\n");
  for (const std::string& note : outcome.notes) absl::StrAppend(&table, "  ", note, "\n");
  std::size_t width = 0;
  for (const auto& [figure, value] : outcome.figures) width = std::max(width, figure.size());
  for (const auto& [figure, value] : outcome.figures) {
    absl::StrAppendFormat(&table, "  %-*s %12s", static_cast<int>(width), figure, Number(value));
    for (const Goal& goal : outcome.goals) {
      if (goal.figure != figure) continue;
      absl::StrAppend(&table, goal.kind == Goal::Kind::kAtMost ? "   at most " : "   at least ",
                      Number(goal.bound), outcome.Meets(goal) ? "" : "   MISSED");
    }
    absl::StrAppend(&table, "\n");
  }
  for (const Goal& goal : outcome.goals) {
    if (outcome.Find(goal.figure) != nullptr) continue;
    absl::StrAppend(&table, "  ", goal.figure, " was not measured   MISSED\n");
  }
  return table;
}

}  // namespace parkade::bench
