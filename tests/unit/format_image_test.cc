#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "parkade/image.h"
#include "tests/unit/format_samples.h"

namespace parkade {
namespace {

StateLayout LayoutOf(const std::vector<std::uint64_t>& row_bytes,
                     RowGroup group = RowGroup::kFull) {
  StateLayout layout;
  for (std::size_t i = 0; i < row_bytes.size(); ++i) {
    layout.planes.push_back(
        {group, PlaneKind::kKey, static_cast<std::uint16_t>(i), 0, row_bytes[i]});
  }
  return layout;
}

StageMap StagesOf(const std::vector<std::vector<std::uint16_t>>& layers) {
  StageMap map;
  for (const auto& stage : layers) map.stages.push_back({"device", stage});
  return map;
}

ExtentInfo Extent(std::uint16_t stage, std::uint32_t first, std::uint32_t rows, std::uint16_t part,
                  std::uint16_t parts, std::uint64_t raw_bytes, RowGroup group = RowGroup::kFull) {
  ExtentInfo extent;
  extent.group = group;
  extent.stage = stage;
  extent.first = first;
  extent.rows = rows;
  extent.part = part;
  extent.parts = parts;
  extent.raw_bytes = static_cast<std::uint32_t>(raw_bytes);
  return extent;
}

TEST(GroupRowBytes, AddsThePlanesOfStageAndGroup) {
  StateLayout layout = LayoutOf({10, 20, 30});
  layout.planes.push_back({RowGroup::kWindow, PlaneKind::kKey, 1, 0, 400});
  const Stage stage{"device", {1, 2}};
  EXPECT_EQ(GroupRowBytes(layout, stage, RowGroup::kFull), 50u);
  EXPECT_EQ(GroupRowBytes(layout, stage, RowGroup::kWindow), 400u);
  EXPECT_EQ(GroupRowBytes(layout, stage, RowGroup::kState), 0u);
  EXPECT_TRUE(layout.has_group(RowGroup::kWindow));
  EXPECT_FALSE(layout.has_group(RowGroup::kState));
}

TEST(StateLayout, RowsAloneDoWithoutWindowAndState) {
  StateLayout layout = LayoutOf({8});
  EXPECT_TRUE(layout.rows_alone());
  for (const RowGroup group : {RowGroup::kWindow, RowGroup::kState}) {
    layout.planes.back().group = group;
    EXPECT_FALSE(layout.rows_alone());
  }
}

TEST(CutIntoExtents, SmallRowsGoTwoHundredAndFiftySixAtATime) {
  const auto extents = CutIntoExtents(LayoutOf({100}), StagesOf({{0}}), RowGroup::kFull, {10, 600});
  const std::vector<ExtentInfo> wanted = {Extent(0, 10, 256, 0, 1, 25600),
                                          Extent(0, 266, 256, 0, 1, 25600),
                                          Extent(0, 522, 78, 0, 1, 7800)};
  EXPECT_EQ(extents, wanted);
}

TEST(CutIntoExtents, LargeRowsStayWithinFourMebibytes) {
  const std::uint64_t row_bytes = (1u << 20) + 1;
  const auto extents =
      CutIntoExtents(LayoutOf({row_bytes}), StagesOf({{0}}), RowGroup::kFull, {0, 4});
  const std::vector<ExtentInfo> wanted = {Extent(0, 0, 3, 0, 1, 3 * row_bytes),
                                          Extent(0, 3, 1, 0, 1, row_bytes)};
  EXPECT_EQ(extents, wanted);
  EXPECT_EQ(CutIntoExtents(LayoutOf({1u << 20}), StagesOf({{0}}), RowGroup::kFull, {0, 4}).size(),
            1u);
}

TEST(CutIntoExtents, ALongerRowIsCutIntoParts) {
  const std::uint64_t row_bytes = 2 * kExtentBytes + 5;
  const auto extents = CutIntoExtents(LayoutOf({row_bytes}, RowGroup::kState), StagesOf({{0}}),
                                      RowGroup::kState, {77, 78});
  const std::vector<ExtentInfo> wanted = {Extent(0, 77, 1, 0, 3, kExtentBytes, RowGroup::kState),
                                          Extent(0, 77, 1, 1, 3, kExtentBytes, RowGroup::kState),
                                          Extent(0, 77, 1, 2, 3, 5, RowGroup::kState)};
  EXPECT_EQ(extents, wanted);
  // Exactly 4 MiB is one extent, exactly 8 MiB are two parts.
  EXPECT_EQ(
      CutIntoExtents(LayoutOf({kExtentBytes}), StagesOf({{0}}), RowGroup::kFull, {0, 1}).size(),
      1u);
  EXPECT_EQ(
      CutIntoExtents(LayoutOf({2 * kExtentBytes}), StagesOf({{0}}), RowGroup::kFull, {0, 1}).size(),
      2u);
}

TEST(CutIntoExtents, StagesAreCutOnTheirOwnAndOrderedByTokenStagePart) {
  // Stage 0: 256 rows an extent. Stage 1: no full planes. Stage 2: 2 rows an extent.
  const StateLayout layout = LayoutOf({100, 0, kExtentBytes / 2});
  const auto extents = CutIntoExtents(layout, StagesOf({{0}, {1}, {2}}), RowGroup::kFull, {0, 5});
  const std::vector<ExtentInfo> wanted = {
      Extent(0, 0, 5, 0, 1, 500), Extent(2, 0, 2, 0, 1, kExtentBytes),
      Extent(2, 2, 2, 0, 1, kExtentBytes), Extent(2, 4, 1, 0, 1, kExtentBytes / 2)};
  EXPECT_EQ(extents, wanted);
}

TEST(CutIntoExtents, NothingToCutGivesNothing) {
  const StateLayout layout = LayoutOf({100});
  EXPECT_TRUE(CutIntoExtents(layout, StagesOf({{0}}), RowGroup::kFull, {5, 5}).empty());
  EXPECT_TRUE(CutIntoExtents(layout, StagesOf({{0}}), RowGroup::kFull, {6, 5}).empty());
  EXPECT_TRUE(CutIntoExtents(layout, StagesOf({{0}}), RowGroup::kWindow, {0, 5}).empty());
  EXPECT_TRUE(CutIntoExtents(layout, {}, RowGroup::kFull, {0, 5}).empty());
}

TEST(CutIntoExtents, ARowOfMorePartsThanANumberCanCountIsNotCutAtAll) {
  const StateLayout layout = LayoutOf({100, kExtentBytes * 65536});
  EXPECT_TRUE(CutIntoExtents(layout, StagesOf({{0}, {1}}), RowGroup::kFull, {0, 1}).empty());
  const StateLayout overflowing = LayoutOf({~0ull, ~0ull});
  EXPECT_EQ(GroupRowBytes(overflowing, {"device", {0, 1}}, RowGroup::kFull), ~0ull);
  EXPECT_TRUE(CutIntoExtents(overflowing, StagesOf({{0, 1}}), RowGroup::kFull, {0, 1}).empty());
}

TEST(CutIntoExtents, WorksUpToTheLastPosition) {
  constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
  const auto extents =
      CutIntoExtents(LayoutOf({100}), StagesOf({{0}}), RowGroup::kFull, {kEnd - 300, kEnd});
  ASSERT_EQ(extents.size(), 2u);
  EXPECT_EQ(extents[1].first, kEnd - 44);
  EXPECT_EQ(extents[1].rows, 44u);
}

TEST(SlicesOf, GivesOneRunAPlane) {
  StateLayout layout = LayoutOf({10, 20, 30});
  const Stage stage{"device", {0, 2}};
  const auto slices = SlicesOf(layout, stage, Extent(0, 5, 3, 0, 1, 120));
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].plane, 0u);
  EXPECT_EQ(slices[0].extent_offset, 0u);
  EXPECT_EQ(slices[0].plane_offset, 0u);
  EXPECT_EQ(slices[0].bytes, 30u);
  EXPECT_EQ(slices[1].plane, 2u);
  EXPECT_EQ(slices[1].extent_offset, 30u);
  EXPECT_EQ(slices[1].plane_offset, 0u);
  EXPECT_EQ(slices[1].bytes, 90u);
}

TEST(SlicesOf, APartBeginsInTheMiddleOfAPlane) {
  const StateLayout layout = LayoutOf({kExtentBytes - 10, 25});
  const Stage stage{"device", {0, 1}};
  const auto first = SlicesOf(layout, stage, Extent(0, 0, 1, 0, 2, kExtentBytes));
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].extent_offset, kExtentBytes - 10);
  EXPECT_EQ(first[1].plane_offset, 0u);
  EXPECT_EQ(first[1].bytes, 10u);
  const auto second = SlicesOf(layout, stage, Extent(0, 0, 1, 1, 2, 15));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].plane, 1u);
  EXPECT_EQ(second[0].extent_offset, 0u);
  EXPECT_EQ(second[0].plane_offset, 10u);
  EXPECT_EQ(second[0].bytes, 15u);
}

TEST(SlicesOf, RefusesWhatDoesNotFit) {
  const StateLayout layout = LayoutOf({100, kExtentBytes + 1});
  const Stage small{"device", {0}};
  const Stage large{"device", {1}};
  const auto refused = [&layout](const Stage& stage, const ExtentInfo& extent) {
    return SlicesOf(layout, stage, extent).empty();
  };
  EXPECT_FALSE(refused(small, Extent(0, 0, 2, 0, 1, 200)));
  EXPECT_TRUE(refused(small, Extent(0, 0, 2, 0, 1, 199)));
  EXPECT_TRUE(refused(small, Extent(0, 0, 2, 0, 1, 201)));
  EXPECT_TRUE(refused(small, Extent(0, 0, 0, 0, 1, 0)));
  EXPECT_TRUE(refused(small, Extent(0, 0, 257, 0, 1, 25700)));
  EXPECT_TRUE(refused(small, Extent(0, 0, 2, 0, 0, 200)));
  EXPECT_TRUE(refused(small, Extent(0, 0, 2, 1, 1, 200)));
  EXPECT_TRUE(refused(small, Extent(0, 0, 2, 0, 2, 200)));
  EXPECT_TRUE(refused(small, Extent(0, 0xffffffffu, 2, 0, 1, 200)));
  EXPECT_TRUE(refused(small, Extent(0, 0, 2, 0, 1, 200, RowGroup::kWindow)));
  EXPECT_TRUE(refused(small, Extent(0, 0, 2, 0, 1, 200, static_cast<RowGroup>(9))));
  EXPECT_TRUE(refused({"device", {}}, Extent(0, 0, 1, 0, 1, 0)));
  EXPECT_FALSE(refused(large, Extent(0, 0, 1, 0, 2, kExtentBytes)));
  EXPECT_FALSE(refused(large, Extent(0, 0, 1, 1, 2, 1)));
  EXPECT_TRUE(refused(large, Extent(0, 0, 1, 2, 2, 1)));
  EXPECT_TRUE(refused(large, Extent(0, 0, 1, 1, 2, 2)));
  EXPECT_TRUE(refused(large, Extent(0, 0, 1, 0, 1, kExtentBytes + 1)));
  EXPECT_TRUE(refused(large, Extent(0, 0, 2, 0, 3, kExtentBytes)));
  const StateLayout state = LayoutOf({8}, RowGroup::kState);
  EXPECT_FALSE(refused({"device", {0}}, Extent(0, 0, 1, 0, 1, 100)));
  EXPECT_TRUE(SlicesOf(state, small, Extent(0, 0, 2, 0, 1, 16, RowGroup::kState)).empty());
  EXPECT_TRUE(SlicesOf(LayoutOf({~0ull, 2}), {"device", {0, 1}}, Extent(0, 0, 1, 0, 1, 1)).empty());
  EXPECT_TRUE(SlicesOf(LayoutOf({1ull << 63}), small, Extent(0, 0, 2, 0, 1, 0)).empty());
}

// A layout of all groups whose rows run from one byte to more than two extents.
StateLayout RandomLayout(std::mt19937_64& random, std::uint16_t layers) {
  StateLayout layout;
  for (const RowGroup group : {RowGroup::kFull, RowGroup::kWindow, RowGroup::kState}) {
    for (std::uint16_t layer = 0; layer < layers; ++layer) {
      if (Draw(random, 0, 2) == 0) continue;
      for (const PlaneKind kind : {PlaneKind::kKey, PlaneKind::kValue}) {
        const std::uint64_t most = Draw(random, 0, 3) == 0 ? 2 * kExtentBytes + 9 : 5000;
        layout.planes.push_back({group, kind, layer, 0, Draw(random, 1, most)});
      }
    }
  }
  return layout;
}

StageMap RandomStages(std::mt19937_64& random, std::uint16_t layers) {
  StageMap map;
  map.stages.emplace_back();
  for (std::uint16_t layer = 0; layer < layers; ++layer) {
    if (Draw(random, 0, 2) == 0) map.stages.emplace_back();
    map.stages.back().layers.push_back(layer);
  }
  return map;
}

// Byte ranges [begin, end) of one plane, counted from the plane's row `range.begin`.
using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

void ExpectTiled(Ranges ranges, std::uint64_t bytes) {
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    ASSERT_EQ(begin, at) << "a gap, or bytes that stand twice";
    at = end;
  }
  EXPECT_EQ(at, bytes);
}

TEST(SlicesOf, SlicesOfAllExtentsTileEveryPlaneExactlyOnce) {
  std::mt19937_64 random = SeededRandom();
  for (int round = 0; round < 200; ++round) {
    const auto layers = static_cast<std::uint16_t>(Draw(random, 1, 6));
    const StateLayout layout = RandomLayout(random, layers);
    const StageMap stages = RandomStages(random, layers);
    for (const RowGroup group : {RowGroup::kFull, RowGroup::kWindow, RowGroup::kState}) {
      const auto begin = static_cast<std::uint32_t>(Draw(random, 0, 1u << 20));
      const auto rows =
          static_cast<std::uint32_t>(group == RowGroup::kState ? 1 : Draw(random, 1, 600));
      const TokenRange range{begin, begin + rows};
      std::vector<Ranges> tiles(layout.planes.size());
      std::tuple<std::uint32_t, int, int> previous{0, -1, -1};
      for (const ExtentInfo& extent : CutIntoExtents(layout, stages, group, range)) {
        ASSERT_LE(extent.raw_bytes, kExtentBytes);
        const std::tuple<std::uint32_t, int, int> place{extent.first, extent.stage, extent.part};
        ASSERT_LT(previous, place);
        previous = place;
        std::uint64_t offset = 0;
        const auto slices = SlicesOf(layout, stages.stages[extent.stage], extent);
        ASSERT_FALSE(slices.empty());
        for (const PlaneSlice& slice : slices) {
          ASSERT_EQ(slice.extent_offset, offset);
          offset += slice.bytes;
          const std::uint64_t at =
              (extent.first - begin) * layout.planes[slice.plane].row_bytes + slice.plane_offset;
          tiles[slice.plane].push_back({at, at + slice.bytes});
        }
        ASSERT_EQ(offset, extent.raw_bytes);
      }
      for (std::size_t i = 0; i < layout.planes.size(); ++i) {
        const bool wanted = layout.planes[i].group == group;
        ExpectTiled(tiles[i], wanted ? layout.planes[i].row_bytes * rows : 0);
      }
    }
  }
}

TEST(SlicesOf, ARandomExtentIsRefusedOrStaysInsideItsPlanes) {
  std::mt19937_64 random = SeededRandom();
  for (int round = 0; round < 20000; ++round) {
    const StateLayout layout = LayoutOf({Draw(random, 1, 3), Draw(random, 1, 3)});
    const Stage stage{"device", {0, 1}};
    const ExtentInfo extent =
        Extent(0, 0, static_cast<std::uint32_t>(Draw(random, 0, 4)),
               static_cast<std::uint16_t>(Draw(random, 0, 2)),
               static_cast<std::uint16_t>(Draw(random, 0, 2)), Draw(random, 0, 24));
    const auto slices = SlicesOf(layout, stage, extent);
    std::uint64_t bytes = 0;
    for (const PlaneSlice& slice : slices) {
      ASSERT_LE(slice.plane_offset + slice.bytes,
                layout.planes[slice.plane].row_bytes * extent.rows);
      bytes += slice.bytes;
    }
    ASSERT_TRUE(slices.empty() || bytes == extent.raw_bytes);
  }
}

}  // namespace
}  // namespace parkade
