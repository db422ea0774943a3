#include "src/manager/completeness.h"

#include <algorithm>

#include "src/manager/boundary.h"

namespace parkade {

void Completeness::Add(const std::shared_ptr<const StageMap>& stages, const ExtentInfo& extent) {
  StageRows& rows = stages_[{stages.get(), extent.stage}];
  rows.map = stages;
  const TokenRange range{extent.first, extent.first + extent.rows};
  if (extent.parts > 1) {
    std::set<std::uint16_t>& parts = rows.parts[extent.first];
    parts.insert(extent.part);
    if (parts.size() < extent.parts) return;
  }
  // Extents mostly come in order: the cheap case is to grow the last range.
  if (!rows.rows.empty() && rows.rows.back().end == range.begin) {
    rows.rows.back().end = range.end;
  } else {
    AddRange(&rows.rows, range);
  }
}

bool Completeness::Covers(TokenRange range) const {
  std::set<std::uint16_t> layers;
  for (const Plane& plane : layout_.planes) {
    if (plane.group == group_) layers.insert(plane.layer);
  }
  for (std::uint16_t layer : layers) {
    std::vector<TokenRange> covered;
    for (const auto& [key, rows] : stages_) {
      const std::vector<std::uint16_t>& own = rows.map->stages[key.second].layers;
      if (std::find(own.begin(), own.end(), layer) == own.end()) continue;
      for (const TokenRange& part : rows.rows) AddRange(&covered, part);
    }
    const bool whole = std::any_of(covered.begin(), covered.end(), [&](const TokenRange& c) {
      return c.begin <= range.begin && range.end <= c.end;
    });
    if (!whole && !range.empty()) return false;
  }
  return true;
}

}  // namespace parkade
