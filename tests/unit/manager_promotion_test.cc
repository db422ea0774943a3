// What a restore reads only in part, and when it goes up to the RAM tier as a whole.

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/synchronization/notification.h"
#include "src/manager/recent_uses.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

constexpr std::uint64_t kRamBytes = 256ull << 20;

ParkKey Key(std::uint32_t number) { return ParkKey{ConversationId{1, 2}, number}; }

TEST(RecentUses, AUseCountsForAShortWhile) {
  RecentUses uses;
  const absl::Time start = absl::FromUnixSeconds(1000000);
  EXPECT_FALSE(uses.UsedLately(Key(0), start));
  uses.Note(Key(0), start);
  EXPECT_FALSE(uses.UsedLately(Key(1), start));
  EXPECT_TRUE(uses.UsedLately(Key(0), start + RecentUses::kShortWhile));
  const absl::Time late = start + RecentUses::kShortWhile + absl::Seconds(1);
  EXPECT_FALSE(uses.UsedLately(Key(0), late));
  uses.Note(Key(0), late);
  EXPECT_TRUE(uses.UsedLately(Key(0), late));
}

TEST(RecentUses, OldOnesMakeRoom) {
  RecentUses uses;
  const absl::Time start = absl::FromUnixSeconds(1000000);
  const absl::Time later = start + RecentUses::kShortWhile;
  for (std::uint32_t i = 0; i < RecentUses::kMost; ++i) uses.Note(Key(i), i == 0 ? later : start);
  EXPECT_TRUE(uses.UsedLately(Key(1), later));
  uses.Note(Key(RecentUses::kMost), later + absl::Seconds(1));
  EXPECT_TRUE(uses.UsedLately(Key(0), later));
  EXPECT_FALSE(uses.UsedLately(Key(1), later));
}

RigOptions Both(RigModel model = FullModel()) {
  RigOptions options(model);
  options.durable = true;
  options.cache.reader_threads = 1;  // one thing after the other
  return options;
}

// `count` tokens in one park that RAM does not hold any more.
std::vector<Token> OnePark(Rig& rig, std::uint64_t seed, std::size_t count) {
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(seed, count);
  engine->Append(text);
  rig.Park(*engine);
  EXPECT_TRUE(rig.cache().SetBudget(TierKind::kRam, 0).ok());
  EXPECT_TRUE(rig.cache().SetBudget(TierKind::kRam, kRamBytes).ok());
  return text;
}

LookupRecord Branch(Rig& rig, const std::vector<Token>& text, std::size_t at, std::uint64_t seed) {
  auto engine = rig.MakeEngine();
  return rig.Run(*engine, Fork(text, at, seed, 5)).record;
}

// Parks that went up to the RAM tier since the sink was reset.
void WaitPromoted(Rig& rig, std::size_t parks) {
  ASSERT_TRUE(
      rig.sink().WaitUntil([&](const RecordedEvents& e) { return e.spills.size() == parks; }));
}

std::vector<TierKind> TiersOf(Rig& rig, std::uint32_t tokens) {
  for (const ConversationInfo& info : rig.cache().List(100, ConversationId())) {
    if (info.tokens == tokens) return info.tiers;
  }
  return {};
}

const std::vector<TierKind> kDiskOnly = {TierKind::kDisk};
const std::vector<TierKind> kRamAndDisk = {TierKind::kRam, TierKind::kDisk};

TEST(ManagerPromotion, TheSecondPartialUseBringsTheWholeParkUp) {
  Rig rig(Both());
  const std::vector<Token> text = OnePark(rig, 1, 900);
  rig.sink().Reset();
  EXPECT_EQ(Hit(Branch(rig, text, 300, 2), Source::kDisk), 300u);
  EXPECT_EQ(TiersOf(rig, 900), kDiskOnly);
  EXPECT_EQ(Hit(Branch(rig, text, 310, 3), Source::kDisk), 310u);
  WaitPromoted(rig, 1);
  EXPECT_EQ(rig.sink().events().spills[0].tier, TierKind::kRam);
  EXPECT_EQ(rig.sink().events().spills[0].bytes, 900u * 8 * 64);
  // Two extents by each restore, and the two others once.
  EXPECT_EQ(rig.durable().calls(TierCall::kReadExtent), 6u);
  const std::uint64_t read = rig.durable().payload_bytes_read();
  EXPECT_EQ(Hit(Branch(rig, text, 320, 4), Source::kRam), 320u);
  EXPECT_EQ(Hit(Branch(rig, text, 899, 5), Source::kRam), 899u);
  EXPECT_EQ(rig.durable().payload_bytes_read(), read);
}

// A restore needs only the last of a park's window rows, so such a park is never read whole.
TEST(ManagerPromotion, AParkWithMoreWindowRowsThanARestoreNeeds) {
  RigModel model = WindowModel();
  model.window_tokens = 400;
  Rig rig(Both(model));
  const std::vector<Token> text = OnePark(rig, 1, 1200);
  rig.sink().Reset();
  EXPECT_EQ(Hit(Branch(rig, text, 1200, 2), Source::kDisk), 1200u);
  EXPECT_EQ(Hit(Branch(rig, text, 1200, 3), Source::kDisk), 1200u);
  WaitPromoted(rig, 1);
  EXPECT_EQ(Hit(Branch(rig, text, 1200, 4), Source::kRam), 1200u);
}

TEST(ManagerPromotion, WhatWouldFillTheRamTierStaysBelow) {
  Rig rig(Both());
  const std::vector<Token> large = OnePark(rig, 1, 1500);
  const std::vector<Token> small = OnePark(rig, 2, 600);
  const std::uint64_t fixed = kRamBytes - rig.ram().usage().budget_bytes;
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kRam, fixed + 1400 * 8 * 64).ok());
  rig.sink().Reset();
  for (std::uint64_t seed = 3; seed < 5; ++seed) Branch(rig, large, 300, seed);
  for (std::uint64_t seed = 5; seed < 7; ++seed) Branch(rig, small, 300, seed);
  WaitPromoted(rig, 1);
  EXPECT_EQ(TiersOf(rig, 1500), kDiskOnly);
  EXPECT_EQ(TiersOf(rig, 600), kRamAndDisk);
  EXPECT_LE(rig.ram().usage().used_bytes, rig.ram().usage().budget_bytes);
}

// The rows in use are whole: damage behind them must not cost them.
TEST(ManagerPromotion, DamageInTheRestTakesNothingAway) {
  Rig rig(Both());
  const std::vector<Token> damaged = OnePark(rig, 1, 900);
  const std::vector<Token> whole = OnePark(rig, 2, 600);
  Fault fault;
  fault.call = TierCall::kReadExtent;
  fault.kind = Fault::Kind::kFlip;
  fault.extent = 3;
  rig.durable().AddFault(fault);
  rig.sink().Reset();
  for (std::uint64_t seed = 3; seed < 5; ++seed) Branch(rig, damaged, 300, seed);
  for (std::uint64_t seed = 5; seed < 7; ++seed) Branch(rig, whole, 300, seed);
  WaitPromoted(rig, 1);
  EXPECT_EQ(rig.durable().faults_hit(), 1u);
  EXPECT_EQ(TiersOf(rig, 600), kRamAndDisk);
  EXPECT_EQ(TiersOf(rig, 900), kDiskOnly);
  EXPECT_TRUE(rig.sink().events().corrupt.empty());
  EXPECT_EQ(Hit(Branch(rig, damaged, 300, 7), Source::kDisk), 300u);
}

// Forgotten while it was read: no copy comes back.
TEST(ManagerPromotion, WhatIsForgottenMeanwhileIsNotStored) {
  Rig rig(Both());
  const std::vector<Token> text = OnePark(rig, 1, 900);
  const ConversationId id = rig.cache().List(1, ConversationId()).at(0).id;
  absl::Notification reading;
  absl::Notification forgotten;
  rig.durable().SetObserver([&](const CallSubject& call) {
    if (call.call != TierCall::kReadExtent || call.extent != 3u) return;
    reading.Notify();
    forgotten.WaitForNotification();
  });
  rig.sink().Reset();
  for (std::uint64_t seed = 3; seed < 5; ++seed) Branch(rig, text, 300, seed);
  reading.WaitForNotification();
  ASSERT_TRUE(rig.cache().Forget(id).ok());
  forgotten.Notify();
  rig.Close();
  EXPECT_TRUE(rig.sink().events().spills.empty());
}

}  // namespace
}  // namespace parkade::test
