// Shortfall, SetBudget, and Store when there is no room.
#include <gtest/gtest.h>

#include "tests/conformance/tier_under_test.h"

namespace parkade::test {
namespace {

constexpr std::uint64_t kBudget = 160 * kMiB;
constexpr std::uint64_t kPayload = 8 * kMiB;

TEST_P(BudgetTier, ShortfallIsWhatHasToGo) {
  Open(kBudget);
  std::vector<ParkKey> held;
  while (tier().Shortfall(kPayload) == 0) {
    const ParkKey key{Conversation(1), static_cast<std::uint32_t>(held.size())};
    // 0 is a promise when nothing comes between.
    ASSERT_EQ(PutPlain(key, kPayload), absl::OkStatus());
    held.push_back(key);
    ASSERT_LE(tier().usage().used_bytes, kBudget);
    ASSERT_LE(held.size(), kBudget / kPayload);
  }
  // A tier may set room aside for its own needs, but most of a budget is for parks.
  EXPECT_GE(held.size(), kBudget / kPayload / 2);
  const std::uint64_t before = tier().Shortfall(kPayload);
  ASSERT_NE(before, UINT64_MAX);
  EXPECT_LE(before, kPayload + kMiB);
  EXPECT_LE(tier().Shortfall(kPayload / 2), before);
  EXPECT_GE(tier().Shortfall(kPayload * 2), before + kPayload);

  std::uint64_t gone = 0;
  for (std::size_t i = 0; gone < before; ++i) {
    ASSERT_LT(i, held.size());
    ASSERT_EQ(tier().Remove({held[i]}), absl::OkStatus());
    gone += kPayload;
  }
  EXPECT_EQ(tier().Shortfall(kPayload), 0u);
  EXPECT_EQ(PutPlain({Conversation(2), 0}, kPayload), absl::OkStatus());
}

TEST_P(BudgetTier, WhatCanNeverFitSaysSo) {
  Open(kBudget);
  EXPECT_EQ(tier().Shortfall(kBudget + 1), UINT64_MAX);
  EXPECT_EQ(tier().Shortfall(UINT64_MAX), UINT64_MAX);
  tier().SetBudget(kPayload);
  EXPECT_EQ(tier().Shortfall(kPayload + 2), UINT64_MAX);
  EXPECT_EQ(PutPlain({Conversation(1), 0}, 2 * kPayload).code(),
            absl::StatusCode::kResourceExhausted);
  ExpectNotHeld({Conversation(1), 0});
}

TEST_P(BudgetTier, SmallerBudgetRemovesNothingAndAsksForItBack) {
  Open(kBudget);
  std::vector<SamplePark> parks;
  for (std::uint32_t i = 0; i < 8; ++i) {
    parks.push_back(MakePlainPark({Conversation(1), i}, kPayload));
    ASSERT_EQ(Put(parks.back(), PlainLayout(kPayload)), absl::OkStatus());
  }
  ASSERT_EQ(tier().Shortfall(kPayload), 0u);
  const std::uint64_t used = tier().usage().used_bytes;
  const std::uint64_t smaller = used - 2 * kPayload;
  tier().SetBudget(smaller);
  EXPECT_EQ(tier().usage().budget_bytes, smaller);
  for (const SamplePark& park : parks) ExpectHeld(park);
  const std::uint64_t shortfall = tier().Shortfall(kPayload);
  ASSERT_NE(shortfall, UINT64_MAX);
  EXPECT_GE(shortfall, 3 * kPayload);
  const SamplePark more = MakePlainPark({Conversation(2), 0}, kPayload);
  EXPECT_EQ(Put(more, PlainLayout(kPayload)).code(), absl::StatusCode::kResourceExhausted);
  ExpectNotHeld(more.key());
  for (const SamplePark& park : parks) ExpectHeld(park);
  tier().SetBudget(kBudget);
  EXPECT_EQ(tier().Shortfall(kPayload), 0u);
  EXPECT_EQ(Put(more, PlainLayout(kPayload)), absl::OkStatus());
  ExpectHeld(more);
}

TEST_P(BudgetTier, ABudgetOfZeroIsZero) {
  Open(kBudget);
  const SamplePark park = MakePlainPark({Conversation(1), 0}, kPayload);
  ASSERT_EQ(Put(park, PlainLayout(kPayload)), absl::OkStatus());
  tier().SetBudget(0);
  EXPECT_EQ(tier().usage().budget_bytes, 0u);
  EXPECT_NE(tier().Shortfall(kPayload), 0u);
  const SamplePark more = MakePlainPark({Conversation(2), 0}, kPayload);
  EXPECT_EQ(Put(more, PlainLayout(kPayload)).code(), absl::StatusCode::kResourceExhausted);
  ExpectHeld(park);
  ASSERT_EQ(tier().Remove({park.key()}), absl::OkStatus());
  ExpectNotHeld(park.key());
}

// What it holds is not for this machine to say: nothing is refused for want of room here.
TEST_P(BoundlessTier, BudgetsAreNobodysBusiness) {
  Open(0);
  EXPECT_EQ(tier().usage().budget_bytes, kNoBudgetBytes);
  EXPECT_EQ(tier().Shortfall(kParkBytes), 0u);
  tier().SetBudget(1);
  EXPECT_EQ(tier().usage().budget_bytes, kNoBudgetBytes);
  EXPECT_EQ(tier().Shortfall(kParkBytes), 0u);
  const SamplePark park = MakePlainPark({Conversation(1), 0}, kPayload);
  ASSERT_EQ(Put(park, PlainLayout(kPayload)), absl::OkStatus());
  ExpectHeld(park);
  EXPECT_EQ(tier().usage().used_bytes, 0u);
}

}  // namespace
}  // namespace parkade::test
