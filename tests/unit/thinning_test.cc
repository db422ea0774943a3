#include "src/policy/thinning.h"

#include <gtest/gtest.h>

#include <vector>

namespace parkade {
namespace {

using Order = std::vector<std::size_t>;

CheckpointCandidate At(std::uint32_t position, std::int64_t last_used, bool first = false) {
  return CheckpointCandidate{position, 100, last_used, first};
}

TEST(Thinning, MiddlesOfLongPromptsGoFirstWhoeverHasThem) {
  const std::vector<CheckpointCandidate> candidates = {At(700, 10), At(1024, 30), At(512, 20),
                                                       At(900, 10), At(2048, 20)};
  EXPECT_EQ(ChooseSuperseded(candidates, 500), (Order{2, 4, 1, 0, 3}));
}

TEST(Thinning, ThenTheConversationsUsedLongestAgoTheOldestFirst) {
  const std::vector<CheckpointCandidate> candidates = {At(900, 20), At(300, 20), At(800, 10),
                                                       At(100, 30)};
  EXPECT_EQ(ChooseSuperseded(candidates, 1000), (Order{2, 1, 0, 3}));
}

TEST(Thinning, ASystemPromptsEndOutlivesItsConversationsOthers) {
  const std::vector<CheckpointCandidate> candidates = {At(100, 20, true), At(300, 20), At(200, 20),
                                                       At(900, 30)};
  EXPECT_EQ(ChooseSuperseded(candidates, 1000), (Order{2, 1, 0, 3}));
}

TEST(Thinning, OnlyTheExcessGoes) {
  const std::vector<CheckpointCandidate> candidates = {At(100, 1), At(200, 2), At(300, 3)};
  EXPECT_EQ(ChooseSuperseded(candidates, 0), Order{});
  EXPECT_EQ(ChooseSuperseded(candidates, 1), Order{0});
  EXPECT_EQ(ChooseSuperseded(candidates, 100), Order{0});
  EXPECT_EQ(ChooseSuperseded(candidates, 101), (Order{0, 1}));
  EXPECT_EQ(ChooseSuperseded(candidates, UINT64_MAX), (Order{0, 1, 2}));
  EXPECT_EQ(ChooseSuperseded({}, 1), Order{});
}

}  // namespace
}  // namespace parkade
