#include "src/policy/load_speed.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace parkade
