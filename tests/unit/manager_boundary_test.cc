// Which positions can be restored, whether every layer has every row, and cutting off rows.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "src/engine/fake/fake_engine.h"
#include "src/format/row_cut.h"
#include "src/manager/boundary.h"
#include "src/manager/completeness.h"

namespace parkade {
namespace {

using Ranges = std::vector<TokenRange>;

StateLayout Full() { return MakeFakeLayout(4, 64, 0, 0, 0, 0); }
StateLayout Window(std::uint32_t tokens) { return MakeFakeLayout(4, 64, 2, tokens, 0, 0); }
StateLayout State() { return MakeFakeLayout(4, 64, 0, 0, 1, 128); }
StateLayout Mixed(std::uint32_t tokens) { return MakeFakeLayout(4, 64, 2, tokens, 1, 128); }

TEST(ManagerBoundary, AddRangeMergesWhatTouchesAndKeepsTheOrder) {
  Ranges ranges;
  AddRange(&ranges, {10, 20});
  AddRange(&ranges, {40, 50});
  AddRange(&ranges, {30, 30});
  AddRange(&ranges, {0, 5});
  EXPECT_EQ(ranges, (Ranges{{0, 5}, {10, 20}, {40, 50}}));
  AddRange(&ranges, {20, 25});
  EXPECT_EQ(ranges, (Ranges{{0, 5}, {10, 25}, {40, 50}}));
  AddRange(&ranges, {4, 45});
  EXPECT_EQ(ranges, (Ranges{{0, 50}}));
}

TEST(ManagerBoundary, OutsideOfIsNeverInsideAWholePart) {
  const Ranges whole = {{10, 20}, {20, 30}, {40, 41}};
  EXPECT_EQ(OutsideOf({}, 15), 15u);
  for (const auto& [position, outside] :
       std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 0},
                                                            {10, 10},
                                                            {11, 10},
                                                            {19, 10},
                                                            {20, 20},
                                                            {29, 20},
                                                            {30, 30},
                                                            {40, 40},
                                                            {41, 41},
                                                            {50, 50}}) {
    EXPECT_EQ(OutsideOf(whole, position), outside) << position;
  }
}

TEST(ManagerBoundary, UncoveredIsWhatIsMissing) {
  const Ranges have = {{10, 20}, {30, 40}};
  EXPECT_EQ(Uncovered(have, {0, 50}), (Ranges{{0, 10}, {20, 30}, {40, 50}}));
  EXPECT_EQ(Uncovered(have, {12, 18}), Ranges{});
  EXPECT_EQ(Uncovered(have, {15, 35}), (Ranges{{20, 30}}));
  EXPECT_EQ(Uncovered({}, {3, 4}), (Ranges{{3, 4}}));
  EXPECT_EQ(Uncovered(have, {5, 5}), Ranges{});
}

TEST(ManagerBoundary, WindowNeedsOneRowMoreThanItSees) {
  EXPECT_EQ(WindowNeedBegin(1000, 100), 899u);
  EXPECT_EQ(WindowNeedBegin(101, 100), 0u);
  EXPECT_EQ(WindowNeedBegin(102, 100), 1u);
  EXPECT_EQ(WindowNeedBegin(5, 0xFFFFFFFFu), 0u);
}

TEST(ManagerBoundary, FullRowsAloneAreUsableAnywhere) {
  EXPECT_EQ(UsableBoundary(Full(), Coverage{}, 777), 777u);
}

TEST(ManagerBoundary, WindowRowsMustBeGapFreeUpToTheBoundary) {
  Coverage coverage;
  EXPECT_EQ(UsableBoundary(Window(10), coverage, 100), 0u);
  coverage.window_rows = {{20, 50}, {80, 100}};
  // [89, 100) is there.
  EXPECT_EQ(UsableBoundary(Window(10), coverage, 100), 100u);
  EXPECT_EQ(UsableBoundary(Window(10), coverage, 91), 91u);
  // [79, 90) lacks row 79.
  EXPECT_EQ(UsableBoundary(Window(10), coverage, 90), 50u);
  EXPECT_EQ(UsableBoundary(Window(10), coverage, 31), 31u);
  EXPECT_EQ(UsableBoundary(Window(10), coverage, 30), 0u);
  // Near the start fewer rows are needed.
  coverage.window_rows = {{0, 5}};
  EXPECT_EQ(UsableBoundary(Window(10), coverage, 100), 5u);
}

TEST(ManagerBoundary, RecurrentStateIsUsableAtItsPositionOnly) {
  Coverage coverage;
  EXPECT_EQ(UsableBoundary(State(), coverage, 100), 0u);
  coverage.checkpoints = {40, 60};
  EXPECT_EQ(UsableBoundary(State(), coverage, 100), 60u);
  EXPECT_EQ(UsableBoundary(State(), coverage, 60), 60u);
  EXPECT_EQ(UsableBoundary(State(), coverage, 59), 40u);
  EXPECT_EQ(UsableBoundary(State(), coverage, 39), 0u);
}

TEST(ManagerBoundary, StateAndWindowMustMeet) {
  Coverage coverage;
  coverage.checkpoints = {40, 60};
  coverage.window_rows = {{20, 45}};
  EXPECT_EQ(UsableBoundary(Mixed(10), coverage, 100), 40u);
  coverage.window_rows = {{20, 45}, {50, 60}};
  EXPECT_EQ(UsableBoundary(Mixed(10), coverage, 100), 40u);
  coverage.window_rows = {{20, 45}, {49, 60}};
  EXPECT_EQ(UsableBoundary(Mixed(10), coverage, 100), 60u);
}

std::shared_ptr<const StageMap> Stages(const StateLayout& layout, std::vector<int> shares) {
  return std::make_shared<const StageMap>(MakeFakeStages(layout, shares));
}

void AddAll(Completeness* all, const StateLayout& layout,
            const std::shared_ptr<const StageMap>& map, RowGroup group, TokenRange range) {
  for (const ExtentInfo& extent : CutIntoExtents(layout, *map, group, range)) {
    all->Add(map, extent);
  }
}

TEST(ManagerCompleteness, JoinsDifferentSplitsByLayer) {
  const StateLayout layout = Full();
  const auto two = Stages(layout, {1, 1});
  const auto three = Stages(layout, {2, 1, 1});
  Completeness all(layout, RowGroup::kFull);
  AddAll(&all, layout, two, RowGroup::kFull, {0, 300});
  EXPECT_TRUE(all.Covers({0, 300}));
  EXPECT_FALSE(all.Covers({0, 301}));
  AddAll(&all, layout, three, RowGroup::kFull, {300, 400});
  EXPECT_TRUE(all.Covers({0, 400}));
}

TEST(ManagerCompleteness, OneMissingLayerIsNoticed) {
  const StateLayout layout = Full();
  const auto map = Stages(layout, {3, 1});
  Completeness all(layout, RowGroup::kFull);
  for (const ExtentInfo& extent : CutIntoExtents(layout, *map, RowGroup::kFull, {0, 600})) {
    if (extent.stage == 1 && extent.first == 256) continue;
    all.Add(map, extent);
  }
  EXPECT_TRUE(all.Covers({0, 256}));
  EXPECT_FALSE(all.Covers({0, 257}));
  EXPECT_FALSE(all.Covers({256, 600}));
}

TEST(ManagerCompleteness, APartSeenTwiceIsNotTwoParts) {
  const StateLayout layout = MakeFakeLayout(1, 64, 0, 0, 1, 9ull << 20);
  const auto map = Stages(layout, {1});
  const auto parts = CutIntoExtents(layout, *map, RowGroup::kState, {50, 51});
  ASSERT_EQ(parts.size(), 3u);
  Completeness all(layout, RowGroup::kState);
  all.Add(map, parts[0]);
  all.Add(map, parts[0]);
  all.Add(map, parts[1]);
  EXPECT_FALSE(all.Covers({50, 51}));
  all.Add(map, parts[2]);
  EXPECT_TRUE(all.Covers({50, 51}));
}

TEST(ManagerRowCut, KeepsTheFirstRowsOfEveryPlane) {
  const StateLayout layout = MakeFakeLayout(2, 8, 0, 0, 0, 0);
  const StageMap stages = MakeFakeStages(layout, {1});
  const ExtentInfo extent = CutIntoExtents(layout, stages, RowGroup::kFull, {100, 110}).at(0);
  ASSERT_EQ(extent.raw_bytes, 4u * 10 * 8);
  std::string raw(extent.raw_bytes, '\0');
  for (std::size_t i = 0; i < raw.size(); ++i) {
    raw[i] = static_cast<char>('A' + i / 80 * 10 + i % 80 / 8);  // plane and row
  }
  const ExtentInfo cut = FirstRows(extent, 3);
  EXPECT_EQ(cut.first, 100u);
  EXPECT_EQ(cut.rows, 3u);
  EXPECT_EQ(cut.raw_bytes, 4u * 3 * 8);
  std::string kept(cut.raw_bytes, '\0');
  CopyFirstRows(layout, stages.stages[0], extent, 3, raw.data(), kept.data());
  std::string wanted;
  for (int plane = 0; plane < 4; ++plane) {
    for (int row = 0; row < 3; ++row)
      wanted += std::string(8, static_cast<char>('A' + plane * 10 + row));
  }
  EXPECT_EQ(kept, wanted);
  EXPECT_EQ(FirstRows(extent, 10), extent);
}

}  // namespace
}  // namespace parkade
