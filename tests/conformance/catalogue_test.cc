// Secret, enumeration, identities, attributes, statistics.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "src/engine/fake/fake_engine.h"
#include "tests/conformance/tier_under_test.h"
#include "tests/support/heap_buffer.h"

namespace parkade::test {
namespace {

ConversationAttributes Row(std::uint64_t conversation, std::uint64_t hits) {
  ConversationAttributes row;
  row.conversation = Conversation(conversation);
  row.last_used_unix_ms = 1'700'000'000'123;
  row.hits = hits;
  return row;
}

void ExpectEqual(const ConversationAttributes& actual, const ConversationAttributes& wanted) {
  EXPECT_EQ(actual.conversation, wanted.conversation);
  EXPECT_EQ(actual.last_used_unix_ms, wanted.last_used_unix_ms);
  EXPECT_EQ(actual.hits, wanted.hits);
  EXPECT_EQ(actual.pinned, wanted.pinned);
  EXPECT_EQ(actual.name, wanted.name);
  EXPECT_EQ(actual.name_tokens, wanted.name_tokens);
}

TEST_P(ListingTier, NewTierIsEmpty) {
  Open();
  EXPECT_TRUE(Summaries().empty());
  EXPECT_TRUE(Attributes().empty());
  EXPECT_EQ(tier().EnumerateIdentities([](const Digest128&, const StoredIdentity&) { FAIL(); }),
            absl::OkStatus());
}

TEST_P(TierConformance, NewTierHasASecretOfItsOwn) {
  Open();
  const Digest128 secret = tier().secret();
  EXPECT_FALSE(secret.IsZero());
  EXPECT_EQ(tier().secret(), secret);
}

TEST_P(TierConformance, ReopenedTierHasItsOldSecretIfDurableAndIsNewIfNot) {
  Open();
  const SamplePark park = MakePlainPark({Conversation(1), 0}, 1000);
  ASSERT_EQ(Put(park, PlainLayout(1000)), absl::OkStatus());
  const Digest128 secret = tier().secret();
  Open();
  if (GetParam().durable) {
    ExpectHeld(park);
  } else {
    ExpectNotHeld(park.key());
  }
  EXPECT_EQ(tier().secret() == secret, GetParam().durable);
}

TEST_P(ListingTier, EnumerationIsByKeyWithEveryField) {
  Open();
  std::vector<ParkSummary> wanted;
  for (const std::uint64_t conversation : {8, 1, 15, 0}) {
    for (const std::uint32_t park : {256u, 0u, 1u}) {
      SampleParkSpec spec = MixedSpec({Conversation(conversation), park});
      spec.checkpoints = {};
      spec.parent = Conversation(conversation + 1);
      spec.parent_tokens = 100;
      const SamplePark sample = MakeSamplePark(spec);
      ASSERT_EQ(Put(sample, spec.layout), absl::OkStatus());
      wanted.push_back(sample.record.summary);
    }
  }
  std::sort(wanted.begin(), wanted.end(),
            [](const ParkSummary& a, const ParkSummary& b) { return a.key < b.key; });
  EXPECT_EQ(Summaries(), wanted);
}

TEST_P(TierConformance, WhatIsAskedBeforeReadingCostsNoPayload) {
  Open();
  const SampleParkSpec spec = MixedSpec({Conversation(1), 0});
  const SamplePark park = MakeSamplePark(spec);
  ASSERT_EQ(Put(park, spec.layout), absl::OkStatus());
  const std::uint64_t read_before = tier().usage().read_bytes;
  EXPECT_EQ(Summaries().size(), 1u);
  EXPECT_TRUE(tier().ReadTokens(park.key()).ok());
  EXPECT_TRUE(tier().ReadExtents(park.key()).ok());
  EXPECT_EQ(tier().usage().read_bytes, read_before);
}

TEST_P(ListingTier, IdentitiesComeBackOnceEach) {
  Open();
  std::map<Digest128, StoredIdentity> wanted;
  for (const StateLayout& layout : {MixedLayout(), PlainLayout(1000), PlainLayout(2000)}) {
    wanted[SampleIdentityDigest(layout)] = SampleIdentity(layout);
  }
  for (int round = 0; round < 2; ++round) {
    for (const auto& [digest, stored] : wanted) {
      ASSERT_EQ(tier().PutIdentity(digest, stored), absl::OkStatus());
    }
  }
  if (GetParam().durable) Open();
  std::map<Digest128, StoredIdentity> seen;
  ASSERT_EQ(tier().EnumerateIdentities([&](const Digest128& digest, const StoredIdentity& stored) {
    EXPECT_TRUE(seen.emplace(digest, stored).second);
  }),
            absl::OkStatus());
  ASSERT_EQ(seen.size(), wanted.size());
  for (const auto& [digest, stored] : wanted) {
    EXPECT_EQ(seen[digest].identity, stored.identity);
    EXPECT_EQ(seen[digest].layout, stored.layout);
  }
}

TEST_P(ListingTier, LastAttributesWin) {
  Open();
  ConversationAttributes named = Row(1, 5);
  named.pinned = true;
  named.name = std::string("a name, \0 and \xc3\xa4", 17);
  named.name_tokens = 777;
  ASSERT_EQ(tier().WriteAttributes({Row(1, 1), Row(8, 2)}, false), absl::OkStatus());
  ASSERT_EQ(tier().WriteAttributes({}, true), absl::OkStatus());
  ASSERT_EQ(tier().WriteAttributes({Row(1, 3), Row(1, 4), named}, true), absl::OkStatus());
  std::vector<ConversationAttributes> rows = Attributes();
  ASSERT_EQ(rows.size(), 2u);
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.hits < b.hits; });
  ExpectEqual(rows[0], Row(8, 2));
  ExpectEqual(rows[1], named);
  ASSERT_EQ(tier().WriteAttributes({Row(1, 9)}, false), absl::OkStatus());
  rows = Attributes();
  ASSERT_EQ(rows.size(), 2u);
  for (const ConversationAttributes& row : rows) {
    ExpectEqual(row, row.hits == 2 ? Row(8, 2) : Row(1, 9));
  }
}

TEST_P(TierConformance, UsageCountsBytesThatMove) {
  Open();
  const TierUsage empty = tier().usage();
  constexpr std::uint64_t kPayload = 4 * kMiB;
  ASSERT_EQ(PutPlain({Conversation(1), 0}, kPayload), absl::OkStatus());
  ASSERT_EQ(PutPlain({Conversation(1), 1}, kPayload), absl::OkStatus());
  const TierUsage full = tier().usage();
  EXPECT_GE(full.written_bytes, empty.written_bytes + 2 * kPayload);
  EXPECT_LE(full.written_bytes, empty.written_bytes + 2 * kPayload + kMiB);
  EXPECT_EQ(full.read_bytes, empty.read_bytes);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(tier().ReadExtent({Conversation(1), 1}, 0, MakeHeapBuffer).ok());
  }
  EXPECT_EQ(tier().usage().read_bytes, full.read_bytes + 3 * kPayload);
  ASSERT_EQ(tier().Remove({ParkKey{Conversation(1), 0}}), absl::OkStatus());
  EXPECT_GE(tier().usage().written_bytes, full.written_bytes);
}

TEST_P(BudgetTier, UsageCountsBytesThatAreHeld) {
  Open(300 * kMiB);
  const TierUsage empty = tier().usage();
  EXPECT_EQ(empty.budget_bytes, 300 * kMiB);
  constexpr std::uint64_t kPayload = 4 * kMiB;
  ASSERT_EQ(PutPlain({Conversation(1), 0}, kPayload), absl::OkStatus());
  ASSERT_EQ(PutPlain({Conversation(1), 1}, kPayload), absl::OkStatus());
  const TierUsage full = tier().usage();
  EXPECT_GE(full.used_bytes, empty.used_bytes + 2 * kPayload);
  EXPECT_LE(full.used_bytes, empty.used_bytes + 2 * kPayload + kMiB);
  ASSERT_EQ(tier().Remove({ParkKey{Conversation(1), 0}}), absl::OkStatus());
  EXPECT_LE(tier().usage().used_bytes + kPayload, full.used_bytes + kMiB / 4);
}

TEST_P(TierConformance, HintsAndHousekeepingDisturbNothing) {
  Open();
  const SamplePark park = MakePlainPark({Conversation(1), 0}, 100000);
  ASSERT_EQ(Put(park, PlainLayout(100000)), absl::OkStatus());
  tier().WillRead({park.key(), ParkKey{Conversation(9), 9}});
  tier().WillRead({});
  tier().Tick();
  tier().Tick();
  ExpectHeld(park);
  EXPECT_EQ(tier().usage().state, "up");
}

}  // namespace
}  // namespace parkade::test
