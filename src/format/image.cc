#include "parkade/image.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace parkade {
namespace {

// `parts` and `stage` are 16 bits wide where they are stored.
constexpr std::uint64_t kMostParts = std::numeric_limits<std::uint16_t>::max();

bool BelongsTo(const Plane& plane, const Stage& stage, RowGroup group) {
  return plane.group == group &&
         std::binary_search(stage.layers.begin(), stage.layers.end(), plane.layer);
}

std::uint64_t PartsOf(std::uint64_t row_bytes) {
  return row_bytes / kExtentBytes + (row_bytes % kExtentBytes != 0 ? 1 : 0);
}

// Rows of one extent of a stage; a row that is cut into parts stands alone.
std::uint32_t RowsPerExtent(std::uint64_t row_bytes) {
  const std::uint64_t fitting = std::max<std::uint64_t>(kExtentBytes / row_bytes, 1);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(fitting, kExtentRows));
}

void CutStage(std::uint64_t row_bytes, ExtentInfo extent, TokenRange range,
              std::vector<ExtentInfo>* out) {
  const std::uint32_t step = extent.group == RowGroup::kState ? 1 : RowsPerExtent(row_bytes);
  for (std::uint32_t first = range.begin; first < range.end;) {
    extent.first = first;
    extent.rows = std::min(step, range.end - first);
    const std::uint64_t total = row_bytes * extent.rows;
    extent.parts = static_cast<std::uint16_t>(PartsOf(total));
    for (std::uint32_t part = 0; part < extent.parts; ++part) {
      extent.part = static_cast<std::uint16_t>(part);
      extent.raw_bytes =
          static_cast<std::uint32_t>(std::min(kExtentBytes, total - part * kExtentBytes));
      out->push_back(extent);
    }
    first += extent.rows;
  }
}

// True when shape and size of the extent are what the cutting rule allows for `row_bytes`.
bool Fits(std::uint64_t row_bytes, const ExtentInfo& extent) {
  if (row_bytes == 0 || extent.rows == 0 || extent.rows > kExtentRows) return false;
  if (extent.first > std::numeric_limits<std::uint32_t>::max() - extent.rows) return false;
  if (extent.rows > 1 && extent.group == RowGroup::kState) return false;
  if (extent.rows > 1 && row_bytes > kExtentBytes / extent.rows) return false;
  const std::uint64_t total = row_bytes * extent.rows;
  if (PartsOf(total) != extent.parts || extent.part >= extent.parts) return false;
  return extent.raw_bytes == std::min(kExtentBytes, total - extent.part * kExtentBytes);
}

}  // namespace

namespace {

constexpr std::string_view kDraftOn = " on ";

}  // namespace

std::string DraftDevice(std::string_view name, std::string_view device) {
  return std::string(name) + std::string(kDraftOn) + std::string(device);
}

std::string_view DraftName(const Stage& stage) {
  const std::string_view device = stage.device;
  return device.substr(0, device.find(kDraftOn));
}

bool StateLayout::has_group(RowGroup group) const {
  return std::any_of(planes.begin(), planes.end(),
                     [group](const Plane& plane) { return plane.group == group; });
}

bool StateLayout::rows_alone() const {
  return !has_group(RowGroup::kWindow) && !has_group(RowGroup::kState);
}

std::uint64_t GroupRowBytes(const StateLayout& layout, const Stage& stage, RowGroup group) {
  std::uint64_t total = 0;
  for (const Plane& plane : layout.planes) {
    if (!BelongsTo(plane, stage, group)) continue;
    if (plane.row_bytes > std::numeric_limits<std::uint64_t>::max() - total) {
      return std::numeric_limits<std::uint64_t>::max();
    }
    total += plane.row_bytes;
  }
  return total;
}

std::vector<ExtentInfo> CutIntoExtents(const StateLayout& layout, const StageMap& stages,
                                       RowGroup group, TokenRange range) {
  std::vector<ExtentInfo> extents;
  if (stages.stages.size() > std::numeric_limits<std::uint16_t>::max()) return extents;
  for (std::size_t stage = 0; stage < stages.stages.size(); ++stage) {
    const std::uint64_t row_bytes = GroupRowBytes(layout, stages.stages[stage], group);
    if (row_bytes == 0) continue;
    // A row that no 16-bit part number can count can't be stored; half a row must not be.
    if (PartsOf(row_bytes) > kMostParts) return {};
    ExtentInfo extent;
    extent.group = group;
    extent.stage = static_cast<std::uint16_t>(stage);
    CutStage(row_bytes, extent, range, &extents);
  }
  // Each stage is in order already, so a stable sort by the first token is all that is left.
  std::stable_sort(extents.begin(), extents.end(),
                   [](const ExtentInfo& left, const ExtentInfo& right) {
                     return std::pair(left.first, left.stage) < std::pair(right.first, right.stage);
                   });
  return extents;
}

std::vector<PlaneSlice> SlicesOf(const StateLayout& layout, const Stage& stage,
                                 const ExtentInfo& extent) {
  std::vector<PlaneSlice> slices;
  if (!Fits(GroupRowBytes(layout, stage, extent.group), extent)) return slices;
  // Both in the payload of all parts; no overflow, because Fits has bounded their sum.
  const std::uint64_t begin = extent.part * kExtentBytes;
  const std::uint64_t end = begin + extent.raw_bytes;
  std::uint64_t plane_begin = 0;
  for (std::size_t i = 0; i < layout.planes.size() && plane_begin < end; ++i) {
    if (!BelongsTo(layout.planes[i], stage, extent.group)) continue;
    const std::uint64_t plane_end = plane_begin + layout.planes[i].row_bytes * extent.rows;
    const std::uint64_t from = std::max(begin, plane_begin);
    const std::uint64_t to = std::min(end, plane_end);
    if (from < to) slices.push_back({i, from - begin, from - plane_begin, to - from});
    plane_begin = plane_end;
  }
  return slices;
}

}  // namespace parkade
