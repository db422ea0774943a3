// Identities: known in memory, stored with what is parked under them, dropped when nothing is.

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

RigOptions Both() {
  RigOptions options;
  options.durable = true;
  return options;
}

Identity WithScale(int scale) {
  Identity identity;
  identity.Set("weights", "w");
  identity.Set("adapters", "a*" + std::to_string(scale));
  return identity;
}

std::set<Digest128> Stored(Tier& tier) {
  std::set<Digest128> digests;
  EXPECT_TRUE(tier.EnumerateIdentities([&](const Digest128& digest, const StoredIdentity&) {
                    digests.insert(digest);
                  })
                  .ok());
  return digests;
}

Digest128 Register(Rig& rig, int scale) {
  const auto digest = rig.cache().RegisterIdentity(WithScale(scale), FullModel().layout());
  EXPECT_TRUE(digest.ok()) << digest.status();
  return digest.ok() ? *digest : Digest128();
}

// Parks 100 tokens under another identity than the rig's; how many were taken.
std::uint32_t ParkUnder(Rig& rig, const Digest128& identity) {
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(5, 100);
  engine->Append(text);
  const ParkOutcome outcome = rig.cache().Park(*engine, ParkRequest{identity, text, true});
  rig.Settle();
  return outcome.captured_tokens;
}

TEST(ManagerIdentity, ATierGetsItWithTheFirstPark) {
  Rig rig(Both());
  const Digest128 one = Register(rig, 1);
  for (FaultyTier* tier : rig.tiers()) EXPECT_EQ(tier->calls(TierCall::kPutIdentity), 0u);
  EXPECT_EQ(ParkUnder(rig, one), 100u);
  for (FaultyTier* tier : rig.tiers()) {
    EXPECT_EQ(tier->calls(TierCall::kPutIdentity), 1u);
    EXPECT_EQ(Stored(*tier), (std::set<Digest128>{one}));
  }
  // Known to the tier after a restart, too.
  rig.Close();
  rig.Open();
  EXPECT_EQ(ParkUnder(rig, one), 100u);
  EXPECT_EQ(rig.durable().calls(TierCall::kPutIdentity), 0u);
}

TEST(ManagerIdentity, TheOldestThatNothingIsParkedUnderAreDropped) {
  Rig rig(Both());
  const Digest128 parked = Register(rig, -1);
  ASSERT_EQ(ParkUnder(rig, parked), 100u);
  std::vector<Digest128> digests;
  for (int scale = 0; scale < 300; ++scale) {
    digests.push_back(Register(rig, scale));
    // In use all the time.
    if (scale == 10) continue;
    rig.cache().Lookup(
        LookupRequest{digests[std::min<std::size_t>(10, scale)], Tokens(1, 100), 100});
  }
  EXPECT_EQ(Stored(rig.durable()), (std::set<Digest128>{parked}));
  // The rig's own went first, then 44 of these but for the one in use: 256 are left.
  EXPECT_EQ(ParkUnder(rig, rig.identity()), 0u);
  EXPECT_EQ(ParkUnder(rig, digests[0]), 0u);
  EXPECT_EQ(ParkUnder(rig, digests[44]), 0u);
  EXPECT_EQ(ParkUnder(rig, digests[45]), 100u);
  EXPECT_EQ(ParkUnder(rig, digests[10]), 100u);
  EXPECT_EQ(ParkUnder(rig, digests[299]), 100u);
  EXPECT_EQ(ParkUnder(rig, parked), 100u);
  EXPECT_EQ(Register(rig, 0), digests[0]);
  EXPECT_EQ(ParkUnder(rig, digests[0]), 100u);
}

TEST(ManagerIdentity, WhatNoParkNeedsIsLeftOutWhenItIsOpened) {
  Rig rig(Both());
  const Digest128 one = Register(rig, 1);
  const Digest128 two = Register(rig, 2);
  ASSERT_EQ(ParkUnder(rig, one), 100u);
  ASSERT_EQ(ParkUnder(rig, two), 100u);
  ASSERT_TRUE(rig.cache().Forget(rig.cache().List(1, ConversationId()).at(0).id).ok());
  rig.Close();
  rig.Open();
  EXPECT_EQ((ParkUnder(rig, one) > 0) + (ParkUnder(rig, two) > 0), 1);
}

}  // namespace
}  // namespace parkade::test
