#include <gtest/gtest.h>

#include "src/format/checksum.h"
#include "src/format/segment.h"
#include "src/format/wire.h"
#include "tests/unit/format_samples.h"

namespace parkade {
namespace {

absl::StatusCode HeadCode(std::string_view bytes) {
  std::uint64_t needed = 0;
  return DecodeSegmentHead(bytes, &needed).status().code();
}

// The head with both checksums made right again.
std::string Reseal(std::string head) {
  ByteWriter rows;
  rows.U64(Checksum64(std::string_view(head).substr(64)));
  head.replace(40, 8, rows.Take());
  ByteWriter header;
  header.U64(Checksum64(std::string_view(head).substr(0, 56)));
  head.replace(56, 8, header.Take());
  return head;
}

TEST(SegmentHeads, GoBothWays) {
  for (const auto& rows : {SampleRows(), std::vector<CatalogueRow>{}}) {
    const std::string head = EncodeSegmentHead(77, rows, 4096);
    EXPECT_EQ(head.size(), SegmentHeadBytes(rows));
    EXPECT_EQ(head.size() % kExtentAlignment, 0u);
    std::uint64_t needed = 0;
    const auto decoded = DecodeSegmentHead(head + "payload", &needed);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->segment, 77u);
    EXPECT_EQ(decoded->payload_bytes, 4096u);
    EXPECT_EQ(decoded->head_bytes, head.size());
    EXPECT_EQ(decoded->rows, rows);
    EXPECT_EQ(needed, head.size());
  }
}

TEST(SegmentHeads, SizeIsRightForEveryLengthOfARow) {
  for (std::size_t length = 0; length < 200; ++length) {
    const std::vector<CatalogueRow> rows = {
        {CatalogueRow::Family::kMeta, "secret", std::string(length, 'v')}};
    const std::string head = EncodeSegmentHead(1, rows, 0);
    ASSERT_EQ(head.size(), SegmentHeadBytes(rows));
    std::uint64_t needed = 0;
    ASSERT_EQ(DecodeSegmentHead(head, &needed)->rows, rows);
  }
}

TEST(SegmentHeads, AShortReadSaysHowMuchIsNeeded) {
  const std::string head = EncodeSegmentHead(77, SampleRows(), 4096);
  for (std::size_t length = 0; length < head.size(); ++length) {
    std::uint64_t needed = 0;
    const auto decoded = DecodeSegmentHead(std::string_view(head).substr(0, length), &needed);
    ASSERT_EQ(decoded.status().code(), absl::StatusCode::kOutOfRange) << length;
    ASSERT_EQ(needed, length < 64 ? 64u : head.size()) << length;
  }
}

TEST(SegmentHeads, EveryFlippedBitIsDataLoss) {
  const std::string head = EncodeSegmentHead(77, SampleRows(), 4096);
  for (std::size_t i = 0; i < head.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = head;
      damaged[i] = static_cast<char>(damaged[i] ^ 1 << bit);
      ASSERT_EQ(HeadCode(damaged), absl::StatusCode::kDataLoss) << i << " " << bit;
    }
  }
}

TEST(SegmentHeads, AForeignFileIsDataLossFromItsFirstByte) {
  EXPECT_EQ(HeadCode("#"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(HeadCode("PARKSEG2"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(HeadCode(std::string(1000, '\0')), absl::StatusCode::kDataLoss);
  EXPECT_EQ(HeadCode(""), absl::StatusCode::kOutOfRange);
}

TEST(SegmentHeads, ALaterVersionIsNotDamage) {
  std::string head = EncodeSegmentHead(77, SampleRows(), 4096);
  head[8] = 3;
  EXPECT_EQ(HeadCode(head), absl::StatusCode::kDataLoss);
  EXPECT_EQ(HeadCode(Reseal(head)), absl::StatusCode::kFailedPrecondition);
  head[8] = 0;
  EXPECT_EQ(HeadCode(Reseal(head)), absl::StatusCode::kDataLoss);
}

TEST(SegmentHeads, RulesAreHeld) {
  const std::string head = EncodeSegmentHead(77, SampleRows(), 4096);
  const auto code = [&head](std::size_t at, char value) {
    std::string changed = head;
    changed[at] = value;
    return HeadCode(Reseal(changed));
  };
  ASSERT_EQ(HeadCode(Reseal(head)), absl::StatusCode::kOk);
  EXPECT_EQ(code(12, 2), absl::StatusCode::kDataLoss) << "fewer rows than there are";
  EXPECT_EQ(code(12, 4), absl::StatusCode::kDataLoss) << "more rows than there are";
  EXPECT_EQ(code(15, 1), absl::StatusCode::kDataLoss) << "more rows than fit";
  EXPECT_EQ(code(30, 1), absl::StatusCode::kDataLoss) << "payload out of bounds";
  EXPECT_EQ(code(36, 1), absl::StatusCode::kDataLoss) << "rows frame out of bounds";
  EXPECT_EQ(code(32, head[32] + 1), absl::StatusCode::kDataLoss) << "rows frame not aligned";
  EXPECT_EQ(code(48, 1), absl::StatusCode::kDataLoss) << "reserved";
  EXPECT_EQ(code(64, 8), absl::StatusCode::kDataLoss) << "family";
  EXPECT_EQ(code(68, 1), absl::StatusCode::kDataLoss) << "key longer than the frame";
  EXPECT_EQ(code(72, 1), absl::StatusCode::kDataLoss) << "value longer than the frame";
  EXPECT_EQ(code(head.size() - 1, 1), absl::StatusCode::kDataLoss) << "padding";
}

TEST(SegmentHeads, RandomHeadsAreRefusedOrCanonical) {
  std::mt19937_64 random = SeededRandom();
  const std::string head = EncodeSegmentHead(77, SampleRows(), 4096);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string mutated = head;
    for (std::uint64_t i = Draw(random, 1, 3); i > 0; --i) {
      mutated[Draw(random, 8, mutated.size() - 1)] = static_cast<char>(random());
    }
    mutated = Reseal(mutated);
    std::uint64_t needed = 0;
    const auto decoded = DecodeSegmentHead(mutated, &needed);
    ASSERT_LE(needed, kMostHeadBytes);
    if (!decoded.ok()) continue;
    ++accepted;
    ASSERT_EQ(EncodeSegmentHead(decoded->segment, decoded->rows, decoded->payload_bytes),
              mutated.substr(0, decoded->head_bytes));
  }
  EXPECT_GT(accepted, 0);
}

TEST(ExtentHeaders, StandForExactlyOneExtent) {
  const ParkKey key = SampleKey();
  const StoredExtent extent = SampleExtents()[0];
  const std::string header = EncodeExtentHeader(key, extent);
  ASSERT_EQ(header.size(), kExtentHeaderBytes);
  EXPECT_TRUE(CheckExtentHeader(header, key, extent).ok());

  const auto refuses = [&header](const ParkKey& other_key, const StoredExtent& other) {
    return CheckExtentHeader(header, other_key, other).message() ==
           "extent header: of another extent";
  };
  const auto changed = [&extent](auto change) {
    StoredExtent other = extent;
    change(other);
    return other;
  };
  EXPECT_TRUE(refuses({key.conversation, key.park + 1}, extent));
  EXPECT_TRUE(refuses({{key.conversation.high, 1}, key.park}, extent));
  EXPECT_TRUE(refuses(key, changed([](StoredExtent& e) { ++e.ordinal; })));
  EXPECT_TRUE(refuses(key, changed([](StoredExtent& e) { ++e.stored_bytes; })));
  EXPECT_TRUE(refuses(key, changed([](StoredExtent& e) { ++e.info.raw_bytes; })));
  EXPECT_TRUE(refuses(key, changed([](StoredExtent& e) { ++e.info.stage; })));
  EXPECT_TRUE(refuses(key, changed([](StoredExtent& e) { ++e.info.checksum.low; })));
  EXPECT_TRUE(refuses(key, changed([](StoredExtent& e) { e.codec = Codec::kZstd; })));
  EXPECT_TRUE(refuses(key, changed([](StoredExtent& e) { e.info.group = RowGroup::kWindow; })));
}

TEST(ExtentHeaders, EveryFlippedBitAndTruncationIsDataLoss) {
  const ParkKey key = SampleKey();
  const StoredExtent extent = SampleExtents()[1];
  const std::string header = EncodeExtentHeader(key, extent);
  for (std::size_t i = 0; i < header.size(); ++i) {
    EXPECT_EQ(CheckExtentHeader(header.substr(0, i), key, extent).code(),
              absl::StatusCode::kDataLoss);
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = header;
      damaged[i] = static_cast<char>(damaged[i] ^ 1 << bit);
      ASSERT_EQ(CheckExtentHeader(damaged, key, extent).code(), absl::StatusCode::kDataLoss);
    }
  }
  EXPECT_FALSE(CheckExtentHeader(header + '\0', key, extent).ok());
}

}  // namespace
}  // namespace parkade
