#include <gtest/gtest.h>

#include <string>

#include "src/format/catalogue.h"
#include "tests/support/float_bytes.h"
#include "tests/unit/format_samples.h"

namespace parkade {
namespace {

std::string Noise(std::mt19937_64& random, std::size_t bytes) {
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

// Unpacks into exactly `raw_bytes` and gives what came out, or the error's text.
std::string Unpack(Codec codec, std::string_view stored, std::size_t raw_bytes) {
  std::string raw(raw_bytes, '?');
  const absl::Status status = Decompress(codec, stored, absl::MakeSpan(raw.data(), raw.size()));
  if (status.ok()) return raw;
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  return std::string(status.message());
}

TEST(Codecs, GoBothWays) {
  std::mt19937_64 random = SeededRandom();
  const std::string raw = Noise(random, 1000) + std::string(100000, 'z') + Noise(random, 1000);
  for (const auto& [choice, codec] :
       {std::pair(CodecChoice::kLz4, Codec::kLz4), std::pair(CodecChoice::kZstd, Codec::kZstd),
        std::pair(CodecChoice::kAuto, Codec::kLz4)}) {
    std::string stored;
    ASSERT_EQ(Compress(choice, raw, &stored), codec);
    EXPECT_LT(stored.size(), 5000u);
    EXPECT_EQ(Unpack(codec, stored, raw.size()), raw);
  }
}

TEST(Codecs, ZstdShufflesFloats) {
  std::mt19937_64 random = SeededRandom();
  for (const std::size_t bytes : {300000u, 300001u, 1u << 20}) {
    const std::string raw = test::FloatBytes(random(), bytes);
    EXPECT_NEAR(ZstdSavedShare(raw), 0.37, 0.04);
    std::string stored;
    ASSERT_EQ(Compress(CodecChoice::kZstd, raw, &stored), Codec::kZstdShuffled);
    EXPECT_LT(stored.size() * 100, raw.size() * 68);
    EXPECT_EQ(Unpack(Codec::kZstdShuffled, stored, raw.size()), raw);
    // Another order of the bytes is not what was packed.
    EXPECT_NE(Unpack(Codec::kZstd, stored, raw.size()), raw);
    EXPECT_EQ(Unpack(Codec::kZstdShuffled, stored, raw.size() - 1),
              "extent: zstd frame is damaged");
    EXPECT_EQ(Unpack(Codec::kZstdShuffled, stored, raw.size() + 1),
              "extent: zstd frame is too short");
  }
}

TEST(Codecs, WhatSavesNothingIsSeenInTheSample) {
  std::mt19937_64 random = SeededRandom();
  EXPECT_EQ(ZstdSavedShare({}), 0);
  EXPECT_LT(ZstdSavedShare(Noise(random, 300000)), 0.01);
  EXPECT_GT(ZstdSavedShare(std::string(300000, 'z')), 0.99);
  EXPECT_GT(ZstdSavedShare("z"), -0.01);
}

TEST(Codecs, NoneKeepsRaw) {
  std::string stored = "left over";
  EXPECT_EQ(Compress(CodecChoice::kNone, std::string(100000, 'z'), &stored), Codec::kRaw);
  EXPECT_TRUE(stored.empty());
  EXPECT_EQ(Unpack(Codec::kRaw, "abc", 3), "abc");
  EXPECT_EQ(Unpack(Codec::kRaw, "abc", 4), "extent: raw size differs");
}

TEST(Codecs, WhatDoesNotShrinkStaysRawUnderEveryChoice) {
  std::mt19937_64 random = SeededRandom();
  for (const std::string& raw : {std::string(), std::string("a"), Noise(random, 300000)}) {
    for (const CodecChoice choice :
         {CodecChoice::kAuto, CodecChoice::kNone, CodecChoice::kLz4, CodecChoice::kZstd}) {
      std::string stored = "left over";
      EXPECT_EQ(Compress(choice, raw, &stored), Codec::kRaw);
      EXPECT_TRUE(stored.empty());
    }
  }
}

TEST(Codecs, AutoWantsFivePercent) {
  std::mt19937_64 random = SeededRandom();
  // A run of n equal bytes saves a little less than n bytes. 64 KiB is all sample.
  constexpr std::size_t kBytes = 16384;
  std::string stored;
  const std::string four =
      Noise(random, kBytes - kBytes * 4 / 100) + std::string(kBytes * 4 / 100, 'z');
  EXPECT_EQ(Compress(CodecChoice::kAuto, four, &stored), Codec::kRaw);
  EXPECT_EQ(Compress(CodecChoice::kLz4, four, &stored), Codec::kLz4);
  const std::string six =
      Noise(random, kBytes - kBytes * 6 / 100) + std::string(kBytes * 6 / 100, 'z');
  EXPECT_EQ(Compress(CodecChoice::kAuto, six, &stored), Codec::kLz4);
  EXPECT_LE(stored.size() * 100, six.size() * 95);
}

TEST(Codecs, AutoLooksAtBeginMiddleAndEnd) {
  std::mt19937_64 random = SeededRandom();
  const std::string noise = Noise(random, 1u << 20);
  const std::string zeros(1u << 20, '\0');
  std::string stored;
  EXPECT_EQ(Compress(CodecChoice::kAuto, zeros + noise, &stored), Codec::kLz4);
  EXPECT_EQ(Compress(CodecChoice::kAuto, noise + zeros, &stored), Codec::kLz4);
  EXPECT_EQ(Compress(CodecChoice::kAuto, noise + zeros + noise, &stored), Codec::kLz4);
}

TEST(Codecs, AutoKeepsRawWhenOnlyTheSampleShrinks) {
  std::mt19937_64 random = SeededRandom();
  std::string raw = Noise(random, 3u << 20);
  std::fill(raw.begin(), raw.begin() + 16384, '\0');
  std::string stored;
  EXPECT_EQ(Compress(CodecChoice::kAuto, raw, &stored), Codec::kRaw);
  EXPECT_TRUE(stored.empty());
  EXPECT_EQ(Compress(CodecChoice::kLz4, raw, &stored), Codec::kLz4);
}

TEST(Codecs, AWrongSizeIsDataLoss) {
  const std::string raw(1000, 'z');
  std::string stored;
  ASSERT_EQ(Compress(CodecChoice::kLz4, raw, &stored), Codec::kLz4);
  EXPECT_EQ(Unpack(Codec::kLz4, stored, 999), "extent: LZ4 block is damaged");
  EXPECT_EQ(Unpack(Codec::kLz4, stored, 1001), "extent: LZ4 block is too short");
  EXPECT_EQ(Unpack(Codec::kLz4, stored, 0), "extent: size that LZ4 can't have");
  EXPECT_EQ(Unpack(Codec::kLz4, "", 10), "extent: LZ4 block is damaged");
  ASSERT_EQ(Compress(CodecChoice::kZstd, raw, &stored), Codec::kZstd);
  EXPECT_EQ(Unpack(Codec::kZstd, stored, 999), "extent: zstd frame is damaged");
  EXPECT_EQ(Unpack(Codec::kZstd, stored, 1001), "extent: zstd frame is too short");
  EXPECT_EQ(Unpack(Codec::kZstd, "", 10), "extent: zstd frame is too short");
  EXPECT_EQ(Unpack(static_cast<Codec>(4), stored, 1000), "extent: unknown codec");
}

TEST(Codecs, DamagedBytesNeverLeaveTheirBuffers) {
  std::mt19937_64 random = SeededRandom();
  const std::string runs = Noise(random, 500) + std::string(5000, 'z') + Noise(random, 500);
  const std::string floats = test::FloatBytes(random(), 6000);
  for (const auto& [choice, raw, wanted] :
       {std::tuple(CodecChoice::kLz4, runs, Codec::kLz4),
        std::tuple(CodecChoice::kZstd, runs, Codec::kZstd),
        std::tuple(CodecChoice::kZstd, floats, Codec::kZstdShuffled)}) {
    std::string stored;
    const Codec codec = Compress(choice, raw, &stored);
    ASSERT_EQ(codec, wanted);
    for (std::size_t length = 0; length < stored.size(); ++length) {
      EXPECT_NE(Unpack(codec, std::string(stored, 0, length), raw.size()), raw);
    }
    for (int round = 0; round < 5000; ++round) {
      std::string damaged = stored;
      for (std::uint64_t i = Draw(random, 1, 4); i > 0; --i) {
        damaged[Draw(random, 0, damaged.size() - 1)] = static_cast<char>(random());
      }
      Unpack(codec, damaged, raw.size());  // bytes or DataLoss; the sanitizers watch the rest
    }
  }
}

}  // namespace
}  // namespace parkade
