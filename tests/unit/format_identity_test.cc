#include <gtest/gtest.h>

#include <set>

#include "parkade/events.h"
#include "parkade/identity.h"
#include "parkade/tier.h"
#include "src/format/checksum.h"
#include "tests/unit/format_samples.h"

namespace parkade {
namespace {

Identity Make(const std::vector<IdentityField>& fields) {
  Identity identity;
  for (const IdentityField& field : fields) identity.Set(field.name, field.value);
  return identity;
}

TEST(Digest, HexGoesBothWays) {
  const Digest128 digest{0x0123456789abcdefull, 0x00000000000000ffull};
  EXPECT_EQ(ToHex(digest), "0123456789abcdef00000000000000ff");
  EXPECT_EQ(DigestFromHex("0123456789ABCDEF00000000000000fF"), digest);
  EXPECT_EQ(DigestFromHex(ToHex({})), Digest128{});
}

TEST(Digest, RefusesWhatIsNotThirtyTwoHexadecimalDigits) {
  EXPECT_FALSE(DigestFromHex(""));
  EXPECT_FALSE(DigestFromHex("0123456789abcdef00000000000000f"));
  EXPECT_FALSE(DigestFromHex("0123456789abcdef00000000000000fff"));
  EXPECT_FALSE(DigestFromHex("0123456789abcdef00000000000000fg"));
  EXPECT_FALSE(DigestFromHex("0x23456789abcdef00000000000000ff"));
  EXPECT_FALSE(DigestFromHex(" 123456789abcdef00000000000000ff"));
}

TEST(Digest, OrderIsThatOfTheHighHalfFirst) {
  EXPECT_LT((Digest128{1, 9}), (Digest128{2, 0}));
  EXPECT_LT((Digest128{1, 0}), (Digest128{1, 1}));
  EXPECT_TRUE(Digest128{}.IsZero());
  EXPECT_FALSE((Digest128{0, 1}).IsZero());
}

TEST(IdentityFields, SetReplacesInPlace) {
  Identity identity = Make({{"weights", "a"}, {"rope", "b"}});
  identity.Set("weights", "c");
  EXPECT_EQ(identity, Make({{"weights", "c"}, {"rope", "b"}}));
}

TEST(IdentityFields, DigestDependsOnNamesValuesLengthsAndOrder) {
  const std::vector<Identity> different = {
      Make({}),
      Make({{"ab", "c"}}),
      Make({{"a", "bc"}}),
      Make({{"abc", ""}}),
      Make({{"", "abc"}}),
      Make({{"ab", "c"}, {"d", ""}}),
      Make({{"d", ""}, {"ab", "c"}}),
      Make({{"ab", std::string("c\0", 2)}}),
  };
  std::set<Digest128> digests;
  for (const Identity& identity : different) digests.insert(identity.digest());
  EXPECT_EQ(digests.size(), different.size());
  EXPECT_EQ(Make({{"ab", "c"}}).digest(), Make({{"ab", "c"}}).digest());
}

TEST(IdentityFields, FirstDifferenceFollowsTheWantedOrder) {
  const Identity wanted = Make({{"weights", "1"}, {"rope", "2"}, {"window", "3"}});
  EXPECT_EQ(FirstDifference(wanted, wanted), "");
  EXPECT_EQ(FirstDifference(wanted, Make({{"window", "9"}, {"rope", "8"}, {"weights", "1"}})),
            "rope");
  EXPECT_EQ(FirstDifference(wanted, Make({{"weights", "1"}, {"window", "3"}})), "rope");
  EXPECT_EQ(FirstDifference(wanted, {}), "weights");
  EXPECT_EQ(FirstDifference({}, wanted), "weights");
  EXPECT_EQ(FirstDifference(
                wanted, Make({{"weights", "1"}, {"rope", "2"}, {"window", "3"}, {"adapter", "4"}})),
            "adapter");
}

TEST(IdentityFields, AnotherOrderIsADifferenceBecauseTheDigestIsAnother) {
  const Identity wanted = Make({{"weights", "1"}, {"rope", "2"}});
  const Identity stored = Make({{"rope", "2"}, {"weights", "1"}});
  EXPECT_NE(wanted.digest(), stored.digest());
  EXPECT_EQ(FirstDifference(wanted, stored), "weights");
}

TEST(Checksums, AreThoseOfXxh3) {
  // The published values for no bytes, seed 0.
  EXPECT_EQ(ToHex(Checksum({})), "99aa06d3014798d86001c324468d497f");
  const std::string bytes(1000, 'x');
  const Digest128 whole = Checksum(bytes);
  EXPECT_EQ(whole, Checksum(std::string(1000, 'x')));
  EXPECT_NE(whole, Checksum(std::string(999, 'x')));
}

TEST(Checksums, RandomDigestsDiffer) {
  std::set<Digest128> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(RandomDigest());
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_EQ(seen.count({}), 0u);
}

TEST(Chain, DependsOnSecretIdentityAndEveryToken) {
  const Digest128 secret{1, 2};
  const Digest128 identity{3, 4};
  std::vector<Token> tokens(2 * kPageTokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i * 7);
  const auto second_page = [&tokens](std::uint64_t seed) {
    return ChainHash(ChainHash(seed, tokens.data()), tokens.data() + kPageTokens);
  };
  std::set<std::uint64_t> hashes;
  hashes.insert(second_page(ChainSeed(secret, identity)));
  hashes.insert(second_page(ChainSeed({1, 3}, identity)));
  hashes.insert(second_page(ChainSeed({2, 2}, identity)));
  hashes.insert(second_page(ChainSeed(secret, {3, 5})));
  hashes.insert(second_page(ChainSeed(secret, {4, 4})));
  hashes.insert(second_page(ChainSeed(identity, secret)));
  EXPECT_EQ(hashes.size(), 6u);
  for (Token& token : tokens) {
    ++token;
    EXPECT_TRUE(hashes.insert(second_page(ChainSeed(secret, identity))).second);
    --token;
  }
}

TEST(Names, AreThoseOfTheInterface) {
  const std::vector<std::string_view> reasons = {
      "new",        "cold",       "diverged", "identity",  "evicted",     "corrupt",
      "incomplete", "checkpoint", "remote",   "too_short", "unsupported", "disabled"};
  ASSERT_EQ(reasons.size(), static_cast<std::size_t>(kMissReasons));
  for (int i = 0; i < kMissReasons; ++i) {
    EXPECT_EQ(MissReasonName(static_cast<MissReason>(i)), reasons[i]);
  }
  const std::vector<std::string_view> skips = {"too_short", "queue_full", "no_space", "too_large",
                                               "unsupported"};
  ASSERT_EQ(skips.size(), static_cast<std::size_t>(kSkipReasons));
  for (int i = 0; i < kSkipReasons; ++i) {
    EXPECT_EQ(SkipReasonName(static_cast<SkipReason>(i)), skips[i]);
  }
  const std::vector<std::string_view> evictions = {"budget", "slots",   "min_free",  "ttl",
                                                   "manual", "corrupt", "superseded"};
  ASSERT_EQ(evictions.size(), static_cast<std::size_t>(kEvictReasons));
  for (int i = 0; i < kEvictReasons; ++i) {
    EXPECT_EQ(EvictReasonName(static_cast<EvictReason>(i)), evictions[i]);
  }
  EXPECT_EQ(LookupOutcomeName(LookupOutcome::kFull), "full");
  EXPECT_EQ(LookupOutcomeName(LookupOutcome::kPartial), "partial");
  EXPECT_EQ(LookupOutcomeName(LookupOutcome::kMiss), "miss");
  EXPECT_EQ(SourceName(Source::kSlot), "slot");
}

TEST(Names, ATierAndItsSourceAreCalledTheSame) {
  EXPECT_EQ(TierName(TierKind::kRam), "ram");
  EXPECT_EQ(TierName(TierKind::kDisk), "disk");
  EXPECT_EQ(TierName(TierKind::kRemote), "remote");
  for (const TierKind kind : {TierKind::kRam, TierKind::kDisk, TierKind::kRemote}) {
    EXPECT_EQ(SourceName(SourceOf(kind)), TierName(kind));
  }
}

}  // namespace
}  // namespace parkade
