#include "src/policy/load_speed.h"

#include <gtest/gtest.h>

#include <vector>

namespace parkade {
namespace {

constexpr std::uint64_t kMib = 1u << 20;

TEST(LoadSpeed, NothingIsKnownAtFirst) {
  LoadSpeed speed;
  EXPECT_FALSE(speed.SecondsFor(kMib).has_value());
  speed.Add(1000, 1);
  speed.Add(kMib, 0);
  speed.Add(kMib, -1);
  EXPECT_FALSE(speed.SecondsFor(kMib).has_value());
}

TEST(LoadSpeed, TheFastestOfTheLastOnesCounts) {
  LoadSpeed speed;
  speed.Add(kMib, 1);
  EXPECT_DOUBLE_EQ(*speed.SecondsFor(2 * kMib), 2);
  speed.Add(kMib, 0.25);
  speed.Add(kMib, 4);
  EXPECT_DOUBLE_EQ(*speed.SecondsFor(kMib), 0.25);
  // The fast one is forgotten at last.
  for (int i = 0; i < 7; ++i) speed.Add(kMib, 4);
  EXPECT_DOUBLE_EQ(*speed.SecondsFor(kMib), 4);
}

TEST(LoadSpeed, WhatIsNeverLoadedIsTriedAgain) {
  LoadSpeed speed;
  for (int i = 0; i < 20; ++i) speed.Add(kMib, 100);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(speed.SecondsFor(kMib).has_value());
    speed.NoteSkipped();
  }
  EXPECT_FALSE(speed.SecondsFor(kMib).has_value());
  speed.NoteSkipped();
  speed.Add(kMib, 1);
  EXPECT_DOUBLE_EQ(*speed.SecondsFor(kMib), 1);
}

PromptSpeed Reading(double seconds_per_token) {
  PromptSpeed speed;
  speed.Add(0, 1000, 1000 * seconds_per_token);
  return speed;
}

TEST(ChooseLoad, TheCheaperWayWins) {
  const std::vector<LoadPart> parts = {{1000, 0.4}, {2000, 0.5}};
  auto choice = ChooseLoad(0, 2000, parts, Reading(0.001));
  EXPECT_EQ(choice->end, 2000u);
  EXPECT_DOUBLE_EQ(choice->load_seconds, 0.9);
  EXPECT_NEAR(choice->read_seconds, 2, 1e-9);
  EXPECT_EQ(ChooseLoad(0, 2000, parts, Reading(0.0003))->end, 0u);
  EXPECT_FALSE(ChooseLoad(0, 2000, parts, PromptSpeed()).has_value());
}

TEST(ChooseLoad, APartIsLoadedAndTheRestRead) {
  // The first part from a fast place, the second one from a slow one.
  const std::vector<LoadPart> parts = {{1500, 0.1}, {2000, 3}};
  EXPECT_EQ(ChooseLoad(0, 2000, parts, Reading(0.001))->end, 1500u);
  // What is held already is not gained; what comes before is loaded all the same.
  EXPECT_EQ(ChooseLoad(1450, 2000, parts, Reading(0.001))->end, 0u);
  EXPECT_EQ(ChooseLoad(1000, 2000, parts, Reading(0.001))->end, 1500u);
}

TEST(ChooseLoad, TheLastPartReachesTheBoundary) {
  // Window rows or state at the end: parts without tokens of their own.
  const std::vector<LoadPart> parts = {{900, 0.1}, {900, 0.1}};
  EXPECT_EQ(ChooseLoad(0, 900, parts, Reading(0.001))->end, 900u);
}

}  // namespace
}  // namespace parkade
