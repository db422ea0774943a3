// Which values are packed for the link.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "src/format/catalogue.h"
#include "tests/support/float_bytes.h"
#include "tiers/remote/packing.h"

namespace parkade::remote {
namespace {

constexpr std::size_t kBytes = 1u << 20;

std::string Floats() { return test::FloatBytes(7, kBytes); }

// Of so many bytes a second.
void Measure(Packing& packing, double speed, int times = 1) {
  for (int i = 0; i < times; ++i) packing.NoteSent(kBytes, absl::Seconds(kBytes / speed));
}

TEST(PackingTest, PacksForASlowLink) {
  Packing packing(CodecChoice::kAuto);
  const std::string raw = Floats();
  std::string stored;
  EXPECT_EQ(packing.Pack(raw, &stored), Codec::kRaw) << "nothing was measured";
  Measure(packing, 1e6);
  ASSERT_EQ(packing.Pack(raw, &stored), Codec::kZstdShuffled);
  std::string back(raw.size(), '\0');
  EXPECT_TRUE(Decompress(Codec::kZstdShuffled, stored, absl::MakeSpan(back)).ok());
  EXPECT_EQ(back, raw);
}

TEST(PackingTest, LeavesItToAFastLink) {
  Packing packing(CodecChoice::kAuto);
  std::string stored;
  Measure(packing, 100e9);
  EXPECT_EQ(packing.Pack(Floats(), &stored), Codec::kRaw);
  // What shrinks by itself is packed whatever the link.
  EXPECT_EQ(packing.Pack(std::string(kBytes, 'z'), &stored), Codec::kLz4);
}

TEST(PackingTest, TheFastestOfTheLastFewCounts) {
  Packing packing(CodecChoice::kAuto);
  const std::string raw = Floats();
  std::string stored;
  Measure(packing, 100e9);
  Measure(packing, 1e6, 7);
  EXPECT_EQ(packing.Pack(raw, &stored), Codec::kRaw);
  Measure(packing, 1e6);
  EXPECT_EQ(packing.Pack(raw, &stored), Codec::kZstdShuffled);
  Measure(packing, 100e9);
  EXPECT_EQ(packing.Pack(raw, &stored), Codec::kRaw);
}

TEST(PackingTest, SmallValuesAndNoTimeSayNothing) {
  Packing packing(CodecChoice::kAuto);
  std::string stored;
  packing.NoteSent(60000, absl::Seconds(10));
  packing.NoteSent(kBytes, absl::ZeroDuration());
  EXPECT_EQ(packing.Pack(Floats(), &stored), Codec::kRaw);
}

TEST(PackingTest, WhatDoesNotShrinkIsNotPacked) {
  Packing packing(CodecChoice::kAuto);
  std::mt19937_64 random(8);
  std::string noise(kBytes, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  std::string stored;
  Measure(packing, 1e3);
  EXPECT_EQ(packing.Pack(noise, &stored), Codec::kRaw);
}

TEST(PackingTest, OtherChoicesAreWhatTheySay) {
  const std::string raw = Floats();
  std::string stored;
  Packing none(CodecChoice::kNone);
  Measure(none, 1e3);
  EXPECT_EQ(none.Pack(raw, &stored), Codec::kRaw);
  Packing zstd(CodecChoice::kZstd);
  Measure(zstd, 100e9);
  EXPECT_EQ(zstd.Pack(raw, &stored), Codec::kZstdShuffled);
}

}  // namespace
}  // namespace parkade::remote
