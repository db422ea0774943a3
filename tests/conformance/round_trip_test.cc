// Store, ReadTokens, ReadExtents, ReadExtent: what goes in comes out, whole or not at all.
#include <gtest/gtest.h>

#include <set>

#include "src/engine/fake/fake_engine.h"
#include "tests/conformance/tier_under_test.h"
#include "tests/support/heap_buffer.h"

namespace parkade::test {
namespace {

TEST_P(TierConformance, SaysWhatItIs) {
  Open();
  EXPECT_EQ(tier().kind(), GetParam().kind);
  EXPECT_EQ(tier().durable(), GetParam().durable);
  EXPECT_EQ(tier().usage().state, "up");
}

TEST_P(TierConformance, MixedParkComesBackWhole) {
  Open();
  const SampleParkSpec spec = MixedSpec({Conversation(3), 0});
  const SamplePark park = MakeSamplePark(spec);
  std::set<std::uint16_t> stages;
  std::set<RowGroup> groups;
  bool has_parts = false;
  for (const ExtentInfo& extent : park.record.extents) {
    stages.insert(extent.stage);
    groups.insert(extent.group);
    has_parts |= extent.parts > 1;
  }
  ASSERT_EQ(stages.size(), 3u);
  ASSERT_EQ(groups.size(), 3u);
  ASSERT_TRUE(has_parts);
  ASSERT_EQ(Put(park, spec.layout), absl::OkStatus());
  ExpectHeld(park);
}

TEST_P(TierConformance, StepsAndForksOfConversationsComeBack) {
  Open();
  std::vector<SamplePark> parks;
  SampleParkSpec spec = MixedSpec({Conversation(1), 0});
  spec.first_token = 0;
  parks.push_back(MakeSamplePark(spec));
  spec.key.park = 1;  // another split goes on
  spec.first_token = 600;
  spec.token_count = 1;
  spec.window_rows = {};
  spec.checkpoints = {};
  spec.stages = MakeFakeStages(spec.layout, {1, 1});
  parks.push_back(MakeSamplePark(spec));
  spec.key = {Conversation(8), 0};  // a fork
  spec.parent = Conversation(1);
  spec.parent_tokens = 600;
  spec.token_count = 70;
  parks.push_back(MakeSamplePark(spec));
  for (const SamplePark& park : parks) ASSERT_EQ(Put(park, spec.layout), absl::OkStatus());
  for (const SamplePark& park : parks) ExpectHeld(park);
}

TEST_P(TierConformance, ParksWithoutTokensComeBack) {
  Open();
  SampleParkSpec spec = MixedSpec({Conversation(0), 4});
  spec.first_token = 700;
  spec.token_count = 0;
  const SamplePark rows_only = MakeSamplePark(spec);
  ASSERT_FALSE(rows_only.record.extents.empty());
  spec.key.park = 5;
  spec.window_rows = {};
  spec.checkpoints = {};
  const SamplePark nothing = MakeSamplePark(spec);
  ASSERT_TRUE(nothing.record.extents.empty());
  ASSERT_EQ(Put(rows_only, spec.layout), absl::OkStatus());
  ASSERT_EQ(Put(nothing, spec.layout), absl::OkStatus());
  ExpectHeld(rows_only);
  ExpectHeld(nothing);
}

TEST_P(TierConformance, OddSizesComeBack) {
  Open();
  const StateLayout layout = MakeFakeLayout(1, 1, 0, 0, 0, 0);
  SampleParkSpec spec;
  spec.layout = layout;
  spec.stages = MakeFakeStages(layout, {1});
  for (const std::uint32_t tokens : {1u, 63u, 64u, 255u, 256u, 257u, 513u}) {
    spec.key = {Conversation(2), tokens};
    spec.token_count = tokens;
    const SamplePark park = MakeSamplePark(spec);
    ASSERT_EQ(Put(park, layout), absl::OkStatus());
    ExpectHeld(park);
  }
}

TEST_P(TierConformance, BytesThatCompressComeBack) {
  Open();
  SamplePark park = MakePlainPark({Conversation(2), 0}, kMiB);
  park.payload[0] = CopyToHeap(std::string(kMiB, 'a'));
  park.record.extents[0].checksum = {};  // the tier does not look at it
  ASSERT_EQ(Put(park, PlainLayout(kMiB)), absl::OkStatus());
  auto bytes = tier().ReadExtent(park.key(), 0, MakeHeapBuffer);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_TRUE(ViewOf(*bytes) == std::string(kMiB, 'a'));
}

TEST_P(TierConformance, LargestParkFits) {
  Open();
  const SamplePark park = MakePlainPark({Conversation(2), 0}, kParkBytes);
  ASSERT_EQ(tier().Shortfall(kParkBytes), 0u);
  ASSERT_EQ(Put(park, PlainLayout(kParkBytes)), absl::OkStatus());
  ExpectHeld(park);
}

TEST_P(TierConformance, AbsentParksAreNotFound) {
  Open();
  ExpectNotHeld({Conversation(1), 0});
  ASSERT_EQ(PutPlain({Conversation(1), 1}, 1000), absl::OkStatus());
  ExpectNotHeld({Conversation(1), 0});
  ExpectNotHeld({Conversation(1), 2});
  ExpectNotHeld({Conversation(0), 1});
  EXPECT_FALSE(tier().ReadExtent({Conversation(1), 1}, 1, MakeHeapBuffer).ok());
}

TEST_P(TierConformance, SecondStoreOfAKeyIsRefusedAndChangesNothing) {
  Open();
  SampleParkSpec spec = MixedSpec({Conversation(1), 0});
  const SamplePark first = MakeSamplePark(spec);
  ASSERT_EQ(Put(first, spec.layout), absl::OkStatus());
  spec.token_count = 900;  // a collapsed, longer version of it
  spec.variant = 1;
  const SamplePark longer = MakeSamplePark(spec);
  EXPECT_EQ(Put(longer, spec.layout).code(), absl::StatusCode::kAlreadyExists);
  ExpectHeld(first);
  // What the manager does then.
  ASSERT_EQ(tier().Remove({first.key()}), absl::OkStatus());
  ASSERT_EQ(Put(longer, spec.layout), absl::OkStatus());
  ExpectHeld(longer);
}

TEST_P(TierConformance, StoreThatCantBeWholeStoresNothing) {
  Open();
  const SampleParkSpec spec = MixedSpec({Conversation(1), 0});
  const SamplePark park = MakeSamplePark(spec);
  std::vector<SamplePark> broken(4, park);
  broken[0].payload.pop_back();
  broken[1].payload.push_back(broken[1].payload[0]);
  broken[2].payload.back() = nullptr;
  broken[3].payload.back() = CopyToHeap(ViewOf(park.payload.back()).substr(1));
  for (std::size_t i = 0; i < broken.size(); ++i) {
    EXPECT_EQ(Put(broken[i], spec.layout).code(), absl::StatusCode::kInvalidArgument) << i;
    ExpectNotHeld(park.key());
  }
  ASSERT_EQ(Put(park, spec.layout), absl::OkStatus());
  ExpectHeld(park);
}

TEST_P(TierConformance, BuffersAreAskedForInTheRightSizeAndFilled) {
  Open();
  const SampleParkSpec spec = MixedSpec({Conversation(1), 0});
  const SamplePark park = MakeSamplePark(spec);
  ASSERT_EQ(Put(park, spec.layout), absl::OkStatus());
  for (std::uint32_t i = 0; i < park.payload.size(); ++i) {
    std::vector<std::shared_ptr<ExtentBuffer>> given;
    auto bytes = tier().ReadExtent(park.key(), i, [&](std::size_t size) {
      given.push_back(MakeHeapBuffer(size));
      return given.back();
    });
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ((*bytes)->size(), park.record.extents[i].raw_bytes);
    EXPECT_LE(given.size(), 1u);
    // Either shared from memory, or the buffer that was asked for.
    const char* expected = given.empty() ? park.payload[i]->data() : given[0]->data();
    EXPECT_EQ((*bytes)->data(), expected);
  }
}

TEST_P(TierConformance, BytesOutliveRemovalForTheirReader) {
  Open();
  const SamplePark park = MakePlainPark({Conversation(1), 0}, 100000);
  ASSERT_EQ(Put(park, PlainLayout(100000)), absl::OkStatus());
  auto bytes = tier().ReadExtent(park.key(), 0, MakeHeapBuffer);
  ASSERT_TRUE(bytes.ok());
  ASSERT_EQ(tier().Remove({park.key()}), absl::OkStatus());
  EXPECT_EQ(CheckSampleBytes(park.key(), 0, {(*bytes)->data(), (*bytes)->size()}),
            absl::OkStatus());
}

}  // namespace
}  // namespace parkade::test
