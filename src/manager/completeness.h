// Whether every layer of a group has every row of a range. Judged by layer, never by stage number:
// each park brings its own stage map.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "parkade/image.h"

namespace parkade {

class Completeness {
 public:
  Completeness(const StateLayout& layout, RowGroup group) : layout_(layout), group_(group) {}

  void Add(const std::shared_ptr<const StageMap>& stages, const ExtentInfo& extent);
  bool Covers(TokenRange range) const;

 private:
  struct StageRows {
    std::shared_ptr<const StageMap> map;
    std::vector<TokenRange> rows;
    // Rows in parts: first token -> parts seen. A set, because two parks may hold the same row.
    std::map<std::uint32_t, std::set<std::uint16_t>> parts;
  };
  const StateLayout& layout_;
  const RowGroup group_;
  std::map<std::pair<const StageMap*, std::uint16_t>, StageRows> stages_;
};

}  // namespace parkade
