#include "src/policy/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace parkade {

void PrintTo(const Victim& victim, std::ostream* out) {
  *out << victim.candidate << "/" << victim.park;
}

namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
constexpr std::int64_t kHourMs = 3600 * 1000;

using Victims = std::vector<Victim>;

std::uint64_t Seed() {
  const char* given = std::getenv("PARKADE_SEED");
  const std::uint64_t seed = given != nullptr ? std::stoull(given) : std::random_device{}();
  std::cout << "PARKADE_SEED=" << seed << std::endl;
  return seed;
}

// `count` parks of 100 tokens and 10 bytes each, from `first_token` on.
EvictionCandidate Conversation(std::int64_t last_used_ms, std::uint32_t count,
                               std::uint32_t first_token = 0) {
  EvictionCandidate candidate;
  candidate.last_used_unix_ms = last_used_ms;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t first = first_token + i * 100;
    candidate.parks.push_back({i, first, first + 100, 10, false});
  }
  return candidate;
}

EvictionCandidate Fork(std::int32_t parent, std::uint32_t parent_tokens, std::int64_t last_used_ms,
                       std::uint32_t count) {
  EvictionCandidate candidate = Conversation(last_used_ms, count, parent_tokens);
  candidate.parent = parent;
  candidate.parent_tokens = parent_tokens;
  return candidate;
}

TEST(EvictionTest, NothingToDo) {
  EXPECT_EQ(ChooseVictims({}, 100), Victims{});
  EXPECT_EQ(ChooseVictims({Conversation(1, 2)}, 0), Victims{});
  EXPECT_EQ(EvictionRanks({}), std::vector<std::uint32_t>{});
}

TEST(EvictionTest, OldestFirstTailsFirst) {
  const std::vector<EvictionCandidate> all = {Conversation(20, 2), Conversation(10, 3)};
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{1, 2}, {1, 1}, {1, 0}, {0, 1}, {0, 0}}));
  EXPECT_EQ(EvictionRanks(all), (std::vector<std::uint32_t>{1, 0}));
}

TEST(EvictionTest, OnlyTheShortfallRoundedUpToParks) {
  const std::vector<EvictionCandidate> all = {Conversation(10, 3)};
  EXPECT_EQ(ChooseVictims(all, 1), (Victims{{0, 2}}));
  EXPECT_EQ(ChooseVictims(all, 10), (Victims{{0, 2}}));
  EXPECT_EQ(ChooseVictims(all, 11), (Victims{{0, 2}, {0, 1}}));
  EXPECT_EQ(ChooseVictims(all, 31), (Victims{{0, 2}, {0, 1}, {0, 0}}));
}

TEST(EvictionTest, ParkNumbersAreTheCallersOwn) {
  EvictionCandidate candidate = Conversation(10, 2);
  candidate.parks[0].park = 17;
  candidate.parks[1].park = 40;
  EXPECT_EQ(ChooseVictims({candidate}, kAll), (Victims{{0, 40}, {0, 17}}));
}

TEST(EvictionTest, EachDoublingOfHitsIsOneHour) {
  std::vector<EvictionCandidate> all = {Conversation(0, 1), Conversation(3 * kHourMs - 1, 1)};
  all[0].hits = 8;
  EXPECT_EQ(ChooseVictims(all, 1), (Victims{{1, 0}}));
  all[1].last_used_unix_ms = 3 * kHourMs + 1;
  EXPECT_EQ(ChooseVictims(all, 1), (Victims{{0, 0}}));
  // One hit is worth nothing yet, but more than none between equals.
  all[0] = Conversation(5, 1);
  all[1] = Conversation(5, 1);
  all[0].hits = 1;
  EXPECT_EQ(ChooseVictims(all, 1), (Victims{{1, 0}}));
  all[1].last_used_unix_ms = 6;
  EXPECT_EQ(ChooseVictims(all, 1), (Victims{{0, 0}}));
}

TEST(EvictionTest, ExtremeUsageDoesNotOverflow) {
  std::vector<EvictionCandidate> all = {Conversation(std::numeric_limits<std::int64_t>::max(), 1),
                                        Conversation(0, 1)};
  all[0].hits = kAll;
  all[0].parks[0].bytes = kAll;
  all[1].parks[0].bytes = kAll - 1;
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{1, 0}, {0, 0}}));
}

TEST(EvictionTest, EqualValuesGoByConversation) {
  std::vector<EvictionCandidate> all = {Conversation(5, 1), Conversation(5, 1)};
  all[0].conversation = 9;
  all[1].conversation = 3;
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{1, 0}, {0, 0}}));
}

TEST(EvictionTest, ParentWaitsForTheChildrenThatNeedIt) {
  // The parent is the oldest; two forks leave it at 200 and at 100 tokens.
  const std::vector<EvictionCandidate> all = {Conversation(1, 4), Fork(0, 200, 10, 1),
                                              Fork(0, 100, 20, 1)};
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{0, 3}, {0, 2}, {1, 0}, {0, 1}, {2, 0}, {0, 0}}));
  EXPECT_EQ(EvictionRanks(all), (std::vector<std::uint32_t>{2, 0, 1}));
}

TEST(EvictionTest, ForkInsideAParkNeedsThatPark) {
  const std::vector<EvictionCandidate> all = {Conversation(1, 3), Fork(0, 101, 10, 1)};
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{0, 2}, {1, 0}, {0, 1}, {0, 0}}));
}

TEST(EvictionTest, ParkWithoutTokensAtTheForkIsNeeded) {
  EvictionCandidate parent = Conversation(1, 1);
  parent.parks.push_back({1, 100, 100, 5, false});
  parent.parks.push_back({2, 100, 200, 5, false});
  EXPECT_EQ(ChooseVictims({parent, Fork(0, 100, 10, 1)}, kAll),
            (Victims{{0, 2}, {1, 0}, {0, 1}, {0, 0}}));
}

TEST(EvictionTest, ChildThatNeedsNothingProtectsNothing) {
  const std::vector<EvictionCandidate> all = {Conversation(1, 1), Fork(0, 0, 10, 1)};
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{0, 0}, {1, 0}}));
}

TEST(EvictionTest, PinnedProtectsWhatItStandsOnRecursively) {
  std::vector<EvictionCandidate> all = {Conversation(1, 4), Fork(0, 200, 2, 3), Fork(1, 300, 3, 1)};
  all[2].pinned = true;
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{0, 3}, {0, 2}, {1, 2}, {1, 1}}));
  EXPECT_EQ(EvictionRanks(all), (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST(EvictionTest, PinnedWithoutParksStillProtects) {
  std::vector<EvictionCandidate> all = {Conversation(1, 3), Fork(0, 200, 2, 0)};
  all[1].pinned = true;
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{0, 2}}));
}

TEST(EvictionTest, ChildWithoutParksProtectsNothing) {
  const std::vector<EvictionCandidate> all = {Conversation(1, 2), Fork(0, 200, 2, 0)};
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{0, 1}, {0, 0}}));
}

TEST(EvictionTest, NeedsPassThroughAConversationWithoutParks) {
  // The grandchild needs 150 tokens of the middle one, so of the root what lies before 100.
  const std::vector<EvictionCandidate> all = {Conversation(1, 3), Fork(0, 100, 2, 0),
                                              Fork(1, 150, 3, 1)};
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{0, 2}, {0, 1}, {2, 0}, {0, 0}}));
}

TEST(EvictionTest, NeedsPassThroughAConversationThatGoesFirst) {
  // The middle one has parks from 200 on only; its child leaves it at 150 and outlives it.
  const std::vector<EvictionCandidate> all = {Conversation(1, 3), Fork(0, 200, 2, 2),
                                              Fork(1, 150, 3, 1)};
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{0, 2}, {1, 1}, {1, 0}, {2, 0}, {0, 1}, {0, 0}}));
}

TEST(EvictionTest, HeldParksAndWhatIsBeforeThemStay) {
  std::vector<EvictionCandidate> all = {Conversation(1, 4), Conversation(2, 1)};
  all[0].parks[1].held = true;
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{0, 3}, {0, 2}, {1, 0}}));
  EXPECT_EQ(EvictionRanks(all), (std::vector<std::uint32_t>{1, 0}));
}

TEST(EvictionTest, HeldChildKeepsItsParent) {
  std::vector<EvictionCandidate> all = {Conversation(1, 2), Fork(0, 100, 2, 2)};
  all[1].parks[0].held = true;
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{0, 1}, {1, 1}}));
}

TEST(EvictionTest, RanksOfWhatDoesNotGo) {
  std::vector<EvictionCandidate> all = {Conversation(1, 1), Conversation(2, 1), Conversation(3, 0),
                                        Conversation(4, 1), Conversation(5, 1)};
  all[0].pinned = true;
  all[1].parks[0].held = true;
  EXPECT_EQ(EvictionRanks(all), (std::vector<std::uint32_t>{4, 3, 2, 0, 1}));
}

TEST(EvictionTest, BrokenParentsAreHarmless) {
  std::vector<EvictionCandidate> all = {Fork(7, 100, 1, 1), Fork(-5, 100, 2, 1), Fork(2, 100, 3, 1),
                                        Fork(4, 300, 4, 1), Fork(3, 300, 5, 1)};
  EXPECT_EQ(ChooseVictims(all, kAll), (Victims{{0, 0}, {1, 0}}));
  const auto ranks = EvictionRanks(all);
  EXPECT_EQ(ranks, (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
}

// The rules again, as slow and plain as can be.
class NaiveEviction {
 public:
  explicit NaiveEviction(const std::vector<EvictionCandidate>& all) : all_(all) {
    for (const auto& candidate : all) left_.push_back(candidate.parks.size());
  }

  bool MayGo(std::size_t i, std::size_t park) const {
    const auto& own = all_[i];
    if (own.pinned || park + 1 != left_[i] || own.parks[park].held) return false;
    for (std::size_t other = 0; other < all_.size(); ++other) {
      const bool alive = left_[other] > 0 || all_[other].pinned;
      if (alive && StandsOn(other, i, own.parks[park])) return false;
    }
    return true;
  }

  void Remove(std::size_t i) { --left_[i]; }
  std::size_t left(std::size_t i) const { return left_[i]; }

  std::optional<Victim> Next() const {
    std::optional<Victim> best;
    for (std::uint32_t i = 0; i < all_.size(); ++i) {
      if (left_[i] == 0 || !MayGo(i, left_[i] - 1)) continue;
      if (!best || Value(i) < Value(best->candidate)) {
        best = Victim{i, all_[i].parks[left_[i] - 1].park};
      }
    }
    return best;
  }

 private:
  bool StandsOn(std::size_t descendant, std::size_t ancestor,
                const EvictionCandidate::Park& park) const {
    std::uint32_t tokens = std::numeric_limits<std::uint32_t>::max();
    for (std::size_t at = descendant; all_[at].parent >= 0;) {
      tokens = std::min(tokens, all_[at].parent_tokens);
      at = static_cast<std::size_t>(all_[at].parent);
      if (at != ancestor) continue;
      const bool at_fork = park.first_token == park.end_token && park.end_token == tokens;
      return tokens > 0 && (park.first_token < tokens || at_fork);
    }
    return false;
  }

  std::tuple<std::int64_t, std::uint64_t, std::uint32_t> Value(std::size_t i) const {
    std::int64_t value = all_[i].last_used_unix_ms;
    for (std::uint64_t hits = all_[i].hits; hits > 1; hits /= 2) value += kHourMs;
    return {value, all_[i].hits, all_[i].conversation};
  }

  const std::vector<EvictionCandidate>& all_;
  std::vector<std::size_t> left_;
};

// A forest in random order, with everything that can stand in the way.
std::vector<EvictionCandidate> RandomForest(std::mt19937_64& random) {
  const std::size_t count = 1 + random() % 24;
  std::vector<std::uint32_t> place(count);
  std::iota(place.begin(), place.end(), 0u);
  std::shuffle(place.begin(), place.end(), random);
  std::vector<EvictionCandidate> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    EvictionCandidate& candidate = all[place[i]];
    candidate.conversation = 1000 + static_cast<std::uint32_t>(i);
    candidate.last_used_unix_ms = static_cast<std::int64_t>(random() % 6) * kHourMs / 2;
    candidate.hits = random() % 3 == 0 ? 0 : std::uint64_t{1} << random() % 4;
    candidate.pinned = random() % 16 == 0;
    if (i > 0 && random() % 4 != 0) {
      candidate.parent = static_cast<std::int32_t>(place[random() % i]);
      candidate.parent_tokens = static_cast<std::uint32_t>(random() % 7) * 50;
    }
    std::uint32_t at = candidate.parent_tokens + static_cast<std::uint32_t>(random() % 3) * 50;
    std::uint32_t number = random() % 3;
    for (std::uint64_t parks = random() % 5; parks > 0; --parks) {
      const std::uint32_t end = at + static_cast<std::uint32_t>(random() % 3) * 50;
      candidate.parks.push_back({number, at, end, random() % 4 * 7, random() % 20 == 0});
      number += 1 + random() % 2;
      at = end;
    }
  }
  return all;
}

TEST(EvictionModelTest, ChoosesWhatThePlainRulesChoose) {
  std::mt19937_64 random(Seed());
  for (int round = 0; round < 4000; ++round) {
    SCOPED_TRACE(round);
    const auto all = RandomForest(random);
    const std::uint64_t shortfall = random() % 3 == 0 ? kAll : random() % 200;
    const Victims victims = ChooseVictims(all, shortfall);
    NaiveEviction naive(all);
    std::uint64_t freed = 0;
    for (const Victim& victim : victims) {
      ASSERT_LT(freed, shortfall) << "more than the shortfall";
      ASSERT_EQ(naive.Next(), victim);
      naive.Remove(victim.candidate);
      freed += all[victim.candidate].parks[naive.left(victim.candidate)].bytes;
    }
    if (freed < shortfall) {
      ASSERT_EQ(naive.Next(), std::nullopt) << "stopped early";
    }
  }
}

TEST(EvictionModelTest, RanksFollowTheVictims) {
  std::mt19937_64 random(Seed());
  for (int round = 0; round < 1000; ++round) {
    SCOPED_TRACE(round);
    const auto all = RandomForest(random);
    const auto ranks = EvictionRanks(all);
    std::vector<std::uint32_t> sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    for (std::uint32_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], i);
    NaiveEviction naive(all);
    std::uint32_t next = 0;
    for (const Victim& victim : ChooseVictims(all, kAll)) {
      naive.Remove(victim.candidate);
      if (naive.left(victim.candidate) == 0) {
        ASSERT_EQ(ranks[victim.candidate], next++);
      }
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].pinned || naive.left(i) > 0) {
        ASSERT_GE(ranks[i], next);
      }
    }
  }
}

TEST(EvictionScaleTest, LongChainsAndWideForksStayFast) {
  constexpr std::uint32_t kCount = 20000;
  // A chain of forks, every second one without parks here, and as many forks of its root.
  std::vector<EvictionCandidate> all = {Conversation(0, 4)};
  for (std::uint32_t i = 1; i < kCount; ++i) {
    all.push_back(Fork(static_cast<std::int32_t>(i - 1), i * 100, i, i % 2));
  }
  for (std::uint32_t i = 0; i < kCount; ++i) all.push_back(Fork(0, i % 400, i, 2));
  std::size_t parks = 0;
  for (const auto& candidate : all) parks += candidate.parks.size();
  const auto start = std::chrono::steady_clock::now();
  const Victims victims = ChooseVictims(all, kAll);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(victims.size(), parks);
  EXPECT_EQ(victims.back(), (Victim{0, 0}));
  std::cout << parks << " parks of " << all.size() << " conversations in " << took.count() << " ms"
            << std::endl;
  // Quadratic work would take minutes.
  EXPECT_LT(took.count(), 5000.0);
}

}  // namespace
}  // namespace parkade
