#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/format/checksum.h"
#include "src/format/segment.h"
#include "tests/support/sample_park.h"
#include "tiers/remote/keys.h"
#include "tiers/remote/values.h"

namespace parkade::remote {
namespace {

const Digest128 kRow{0x0123456789abcdefull, 0xfedcba9876543210ull};

Chain ChainOf(std::size_t steps) {
  Chain chain;
  for (std::size_t i = 0; i < steps; ++i) {
    chain.steps.push_back({{1, i + 1}, {7, i / 3}, static_cast<std::uint32_t>(100 * (i + 1))});
  }
  return chain;
}

RowValue Sample(const SharedSealKey& key) {
  test::SampleParkSpec spec;
  spec.key = {{5, 6}, 3};
  spec.layout = test::PlainLayout(4096);
  spec.stages.stages = {Stage{"CPU", {0}}};
  spec.first_token = 128;
  spec.token_count = 300;
  const test::SamplePark park = test::MakeSamplePark(spec);
  RowValue value;
  value.record = park.record;
  value.sealer = NewSegmentSealer(key);
  for (std::size_t i = 0; i < park.payload.size(); ++i) {
    StoredExtent extent;
    extent.info = park.record.extents[i];
    extent.ordinal = static_cast<std::uint32_t>(i);
    extent.stored_bytes = extent.info.raw_bytes;
    value.extents.push_back(extent);
    if (key == nullptr) continue;
    std::string sealed(extent.stored_bytes, '\0');
    value.headers.push_back(SealExtent(*value.sealer, park.key(), extent,
                                       {park.payload[i]->data(), park.payload[i]->size()},
                                       sealed.data()));
  }
  value.before = ChainOf(2);
  return value;
}

SharedSealKey KeyOf(char byte) { return *SealKey::Parse(std::string(kSealKeyBytes, byte)); }

TEST(RemoteKeys, HaveThePrefixAndNothingOfThePrompt) {
  const Keys keys("team/a");
  EXPECT_EQ(keys.Secret(), "team/a:secret");
  EXPECT_EQ(keys.Boundary(0xab), "team/a:b:00000000000000ab");
  EXPECT_EQ(keys.Row(kRow), "team/a:r:0123456789abcdeffedcba9876543210");
  EXPECT_EQ(keys.Extent(kRow, 12), "team/a:x:0123456789abcdeffedcba9876543210:12");
  EXPECT_EQ(keys.Tombstone(kRow), "team/a:t:0123456789abcdeffedcba9876543210");
}

TEST(RemoteValues, BoundariesComeBack) {
  for (const std::size_t steps : {1u, 2u, 7u, 64u}) {
    const Chain chain = ChainOf(steps);
    const auto read = DecodeBoundary(EncodeBoundary(chain));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, chain);
  }
}

TEST(RemoteValues, LongChainsNameTheirLastSteps) {
  const Chain chain = ChainOf(200);
  const Chain kept = Shortened(chain);
  EXPECT_FALSE(kept.whole);
  ASSERT_EQ(kept.steps.size(), kMostSteps);
  EXPECT_EQ(kept.steps.back(), chain.steps.back());
  EXPECT_EQ(*DecodeBoundary(EncodeBoundary(kept)), kept);
  EXPECT_TRUE(Shortened(ChainOf(kMostSteps)).whole);
}

TEST(RemoteValues, EveryByteOfABoundaryCounts) {
  const std::string sound = EncodeBoundary(ChainOf(3));
  for (std::size_t i = 0; i < sound.size(); ++i) {
    std::string damaged = sound;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(DecodeBoundary(damaged).ok()) << i;
    EXPECT_FALSE(DecodeBoundary(sound.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(DecodeBoundary(sound + "x").ok());
}

TEST(RemoteValues, RowsComeBack) {
  for (const bool sealed : {false, true}) {
    const SharedSealKey key = sealed ? KeyOf('k') : nullptr;
    const RowValue value = Sample(key);
    const auto bytes = EncodeRow(kRow, value);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto read = DecodeRow(kRow, *bytes, key.get());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->record.tokens, value.record.tokens);
    EXPECT_EQ(read->record.extents, value.record.extents);
    EXPECT_EQ(read->record.summary.key, value.record.summary.key);
    EXPECT_EQ(read->record.summary.first_token, 128u);
    EXPECT_EQ(read->before, value.before);
    EXPECT_EQ(read->headers, value.headers);
    EXPECT_EQ(read->sealer != nullptr, sealed);
  }
}

TEST(RemoteValues, WhatAReaderWouldRefuseIsNotWritten) {
  const auto code = [](void (*break_it)(RowValue&)) {
    RowValue value = Sample(nullptr);
    break_it(value);
    return EncodeRow(kRow, value).status().code();
  };
  EXPECT_EQ(code([](RowValue&) {}), absl::StatusCode::kOk);
  for (const auto break_it : std::vector<void (*)(RowValue&)>{
           [](RowValue& value) { value.record.tokens.pop_back(); },
           [](RowValue& value) { value.record.summary.page_hashes.push_back(0); },
           [](RowValue& value) { ++value.record.summary.payload_bytes; },
           [](RowValue& value) {
             value.record.summary.checkpoints = {9, 9};
           },
           [](RowValue& value) { value.extents[0].info.stage = 7; },
           [](RowValue& value) { value.extents[0].info.raw_bytes = kExtentBytes + 1; },
           [](RowValue& value) { value.extents[0].ordinal = 9; },
           [](RowValue& value) { value.before.steps.resize(kMostSteps + 1); }}) {
    EXPECT_EQ(code(break_it), absl::StatusCode::kInvalidArgument);
  }
}

TEST(RemoteValues, ARowIsItsOwnAndWhole) {
  for (const bool sealed : {false, true}) {
    const SharedSealKey key = sealed ? KeyOf('k') : nullptr;
    const std::string sound = *EncodeRow(kRow, Sample(key));
    EXPECT_FALSE(DecodeRow({kRow.high + 1, kRow.low}, sound, key.get()).ok());
    EXPECT_FALSE(DecodeRow({kRow.high, kRow.low + 1}, sound, key.get()).ok());
    EXPECT_FALSE(DecodeRow(kRow, sound + std::string(64, '\0'), key.get()).ok());
    for (std::size_t i = 0; i < sound.size(); ++i) {
      std::string damaged = sound;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
      const auto read = DecodeRow(kRow, damaged, key.get());
      EXPECT_FALSE(read.ok()) << i << " of " << sound.size();
      if (i % 7 == 0) {
        EXPECT_FALSE(DecodeRow(kRow, sound.substr(0, i), key.get()).ok()) << i;
      }
    }
  }
}

TEST(RemoteValues, OnlyTheKeyOpensASealedRow) {
  const std::string sealed = *EncodeRow(kRow, Sample(KeyOf('k')));
  EXPECT_FALSE(DecodeRow(kRow, sealed, KeyOf('l').get()).ok());
  EXPECT_FALSE(DecodeRow(kRow, sealed, nullptr).ok());
  const std::string plain = *EncodeRow(kRow, Sample(nullptr));
  EXPECT_FALSE(DecodeRow(kRow, plain, KeyOf('k').get()).ok());
}

}  // namespace
}  // namespace parkade::remote
