#include "src/policy/prompt_speed.h"

#include <limits>

#include "gtest/gtest.h"

namespace parkade {
namespace {

TEST(PromptSpeed, KnowsNothingAtFirst) {
  const PromptSpeed speed;
  EXPECT_FALSE(speed.SecondsFor({0, 100}).has_value());
  EXPECT_DOUBLE_EQ(speed.SecondsFor({100, 100}).value(), 0);
}

TEST(PromptSpeed, IgnoresWhatMeasuresOverheadOrNothing) {
  PromptSpeed speed;
  speed.Add(0, 63, 1.0);
  speed.Add(0, 1000, 0);
  speed.Add(0, 1000, -1);
  speed.Add(0, 1000, std::numeric_limits<double>::quiet_NaN());
  speed.Add(0, 1000, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(speed.SecondsFor({0, 100}).has_value());
  speed.Add(0, 64, 0.64);
  EXPECT_DOUBLE_EQ(speed.SecondsFor({0, 100}).value(), 1.0);
}

TEST(PromptSpeed, KeepsTheFastest) {
  PromptSpeed speed;
  speed.Add(0, 100, 2.0);
  speed.Add(0, 100, 1.0);
  speed.Add(0, 100, 3.0);
  EXPECT_DOUBLE_EQ(speed.SecondsFor({0, 1000}).value(), 10.0);
}

TEST(PromptSpeed, SumsOverDepths) {
  PromptSpeed speed;
  speed.Add(0, 1000, 1.0);     // 1 ms a token in [0, 1024)
  speed.Add(1024, 1000, 2.0);  // 2 ms in [1024, 2048)
  speed.Add(4096, 1000, 4.0);  // 4 ms in [4096, 8192)
  EXPECT_NEAR(speed.SecondsFor({0, 1024}).value(), 1.024, 1e-9);
  EXPECT_NEAR(speed.SecondsFor({1000, 1030}).value(), 0.024 + 0.012, 1e-9);
  // [2048, 4096) was not measured: the faster neighbour counts, not the slower one.
  EXPECT_NEAR(speed.SecondsFor({2048, 4096}).value(), 4.096, 1e-9);
  EXPECT_NEAR(speed.SecondsFor({4095, 4097}).value(), 0.002 + 0.004, 1e-9);
  EXPECT_NEAR(speed.SecondsFor({0, 8192}).value(), 1.024 + 2.048 + 4.096 + 16.384, 1e-9);
}

TEST(PromptSpeed, TakesADeeperMeasurementWhenThereIsNoOther) {
  PromptSpeed speed;
  speed.Add(0, 300000, 300);  // its middle lies at 150,000
  EXPECT_NEAR(speed.SecondsFor({0, 10}).value(), 0.01, 1e-9);
  EXPECT_NEAR(speed.SecondsFor({0, 300000}).value(), 300, 1e-6);
}

TEST(PromptSpeed, HoldsAtTheLargestPositions) {
  PromptSpeed speed;
  const std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  speed.Add(most, most, 1.0);
  EXPECT_NEAR(speed.SecondsFor({0, most}).value(), 1.0, 1e-9);
}

}  // namespace
}  // namespace parkade
