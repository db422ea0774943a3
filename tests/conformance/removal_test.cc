// Remove and Forget.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/conformance/tier_under_test.h"

namespace parkade::test {
namespace {

bool AnyFileContains(const std::string& directory, std::string_view needle) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    if (text.str().find(needle) != std::string::npos) return true;
  }
  return false;
}

TEST_P(TierConformance, RemoveTakesWhatItIsGivenAndNothingElse) {
  Open();
  std::vector<SamplePark> parks;
  for (std::uint32_t i = 0; i < 4; ++i) {
    parks.push_back(MakePlainPark({Conversation(i / 2), i % 2}, 100000));
    ASSERT_EQ(Put(parks.back(), PlainLayout(100000)), absl::OkStatus());
  }
  const std::vector<ParkKey> keys{
      parks[1].key(), {Conversation(5), 0}, parks[2].key(), parks[1].key()};
  ASSERT_EQ(tier().Remove(keys), absl::OkStatus());
  ASSERT_EQ(tier().Remove(keys), absl::OkStatus());
  ASSERT_EQ(tier().Remove({}), absl::OkStatus());
  ExpectHeld(parks[0]);
  ExpectNotHeld(parks[1].key());
  ExpectNotHeld(parks[2].key());
  ExpectHeld(parks[3]);
}

TEST_P(ListingTier, AttributesGoWithTheLastPark) {
  Open();
  std::vector<ConversationAttributes> rows;
  for (std::uint32_t i = 0; i < 3; ++i) {
    ConversationAttributes row;
    row.conversation = Conversation(i);
    row.name = "name " + std::to_string(i);
    row.pinned = true;
    rows.push_back(row);
  }
  for (std::uint32_t park = 0; park < 2; ++park) {
    ASSERT_EQ(PutPlain({Conversation(0), park}, 1000), absl::OkStatus());
    ASSERT_EQ(PutPlain({Conversation(1), park}, 1000), absl::OkStatus());
  }
  ASSERT_EQ(tier().WriteAttributes(rows, true), absl::OkStatus());
  ASSERT_EQ(tier().Remove({{Conversation(0), 0}}), absl::OkStatus());
  EXPECT_EQ(Attributes().size(), 3u);
  // The second of two; nothing that was ever there; a park that is not, of one that has others.
  ASSERT_EQ(tier().Remove({{Conversation(0), 1}, {Conversation(2), 0}, {Conversation(1), 7}}),
            absl::OkStatus());
  for (int round = 0; round < (GetParam().durable ? 2 : 1); ++round) {
    ASSERT_EQ(Attributes().size(), 1u);
    EXPECT_EQ(Attributes()[0].name, "name 1");
    if (GetParam().durable) Open();
  }
}

TEST_P(TierConformance, ForgetTakesTheParksItIsGiven) {
  Open();
  const SamplePark gone0 = MakePlainPark({Conversation(0), 0}, 100000);
  const SamplePark gone1 = MakePlainPark({Conversation(0), 1}, 100000);
  const SamplePark needed = MakePlainPark({Conversation(0), 2}, 100000);  // by a fork
  const SamplePark other = MakePlainPark({Conversation(1), 0}, 100000);
  for (const SamplePark* park : {&gone0, &gone1, &needed, &other}) {
    ASSERT_EQ(Put(*park, PlainLayout(100000)), absl::OkStatus());
  }
  ASSERT_EQ(tier().Forget(Conversation(0), {gone0.key(), gone1.key(), {Conversation(0), 77}}),
            absl::OkStatus());
  for (int round = 0; round < (GetParam().durable ? 2 : 1); ++round) {
    ExpectNotHeld(gone0.key());
    ExpectNotHeld(gone1.key());
    ExpectHeld(needed);
    ExpectHeld(other);
    if (GetParam().durable) Open();
  }
  EXPECT_EQ(tier().Forget(Conversation(14), {}), absl::OkStatus());
}

TEST_P(ListingTier, ForgetTakesAttributesOfOneConversation) {
  Open();
  ASSERT_EQ(PutPlain({Conversation(0), 0}, 1000), absl::OkStatus());
  ASSERT_EQ(PutPlain({Conversation(0), 1}, 1000), absl::OkStatus());  // needed by a fork
  std::vector<ConversationAttributes> rows(2);
  rows[0].conversation = Conversation(0);
  rows[1].conversation = Conversation(1);
  rows[1].hits = 4;
  ASSERT_EQ(tier().WriteAttributes(rows, true), absl::OkStatus());
  ASSERT_EQ(tier().Forget(Conversation(0), {{Conversation(0), 0}}), absl::OkStatus());
  for (int round = 0; round < (GetParam().durable ? 2 : 1); ++round) {
    ASSERT_EQ(Attributes().size(), 1u);
    EXPECT_EQ(Attributes()[0].hits, 4u);
    if (GetParam().durable) Open();
  }
}

// Less of it is needed now; a restart must not bring the rest of it back.
TEST_P(ListingTier, WhatSaysThatItWasForgottenStaysWithItsParks) {
  Open();
  const SamplePark gone = MakePlainPark({Conversation(0), 1}, 100000);
  const SamplePark needed = MakePlainPark({Conversation(0), 0}, 100000);  // by a fork
  for (const SamplePark* park : {&gone, &needed}) {
    ASSERT_EQ(Put(*park, PlainLayout(100000)), absl::OkStatus());
  }
  ConversationAttributes mark;
  mark.conversation = Conversation(0);
  mark.name_tokens = 64;
  ASSERT_TRUE(mark.forgotten());
  ASSERT_EQ(tier().WriteAttributes({mark}, true), absl::OkStatus());
  ASSERT_EQ(tier().Forget(Conversation(0), {gone.key()}), absl::OkStatus());
  for (int round = 0; round < (GetParam().durable ? 2 : 1); ++round) {
    ExpectNotHeld(gone.key());
    ExpectHeld(needed);
    ASSERT_EQ(Attributes().size(), 1u);
    EXPECT_TRUE(Attributes()[0].forgotten());
    if (GetParam().durable) Open();
  }
  ASSERT_EQ(tier().Forget(Conversation(0), {needed.key()}), absl::OkStatus());
  EXPECT_EQ(Attributes().size(), 0u);
}

TEST_P(DurableTier, ForgottenTextIsNotOnTheMedium) {
  Open();
  SampleParkSpec spec = MixedSpec({Conversation(1), 0});
  spec.checkpoints = {};
  const SamplePark park = MakeSamplePark(spec);
  ASSERT_EQ(Put(park, spec.layout), absl::OkStatus());
  ASSERT_EQ(PutPlain({Conversation(2), 0}, 1000), absl::OkStatus());
  ConversationAttributes row;
  row.conversation = Conversation(1);
  row.name = "zebra quartz lullaby";
  row.pinned = true;
  ASSERT_EQ(tier().WriteAttributes({row}, true), absl::OkStatus());
  // Token ids of a prompt are its text. Nothing repeats in four of them, so a packer of bytes
  // leaves them as they are.
  std::string ids(4 * sizeof(Token), '\0');
  std::memcpy(ids.data(), park.record.tokens.data() + 40, ids.size());
  EXPECT_EQ(AnyFileContains(directory(), row.name), !GetParam().encrypted)
      << "this test looks for the wrong thing";
  ASSERT_EQ(tier().Forget(Conversation(1), {park.key()}), absl::OkStatus());
  EXPECT_FALSE(AnyFileContains(directory(), row.name));
  EXPECT_FALSE(AnyFileContains(directory(), ids));
  Close();
  EXPECT_FALSE(AnyFileContains(directory(), row.name));
  EXPECT_FALSE(AnyFileContains(directory(), ids));
}

}  // namespace
}  // namespace parkade::test
