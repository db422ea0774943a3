// tests/golden holds what version 1 of the format is, byte by byte. These files never change: a
// difference means that caches that users have would not load.
#include <gtest/gtest.h>

#include <fstream>

#include "src/format/checksum.h"
#include "src/format/page_hash.h"
#include "src/format/segment.h"
#include "tests/unit/format_container_samples.h"
#include "tests/unit/format_samples.h"

namespace parkade {
namespace {

// Hexadecimal text, 32 bytes a line; lines that begin with # are comments.
std::string ToHexLines(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto value = static_cast<unsigned char>(bytes[i]);
    out += {kDigits[value >> 4], kDigits[value & 15]};
    if (i % 32 == 31 || i + 1 == bytes.size()) out += '\n';
  }
  return out;
}

std::string ReadGolden(const std::string& name) {
  std::ifstream file(std::string(PARKADE_GOLDEN_FOLDER) + "/" + name + ".hex");
  EXPECT_TRUE(file.is_open()) << "no golden file " << name;
  std::string bytes;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] == '#') continue;
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      bytes.push_back(static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16)));
    }
  }
  return bytes;
}

void ExpectGolden(const std::string& name, std::string_view encoded) {
  EXPECT_EQ(ToHexLines(ReadGolden(name)), ToHexLines(encoded)) << name;
}

TEST(Golden, Manifest) {
  ExpectGolden("format_1_manifest", EncodeManifest(SampleSummary()));
  const auto summary = DecodeManifest(SampleKey(), ReadGolden("format_1_manifest"));
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(*summary, SampleSummary());
}

TEST(Golden, Tokens) {
  // So few bytes are literals in every version of LZ4.
  const std::vector<Token> few = {1, -1, 70000};
  ExpectGolden("format_1_tokens", EncodeTokens(few));
  const auto tokens = DecodeTokens(ReadGolden("format_1_tokens"));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*tokens, few);
}

TEST(Golden, TokensOfABlockWithMatches) {
  // Read only: how well LZ4 packs is its own affair.
  std::vector<Token> wanted(300);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<Token>(i % 10 * 1000);
  const auto tokens = DecodeTokens(ReadGolden("format_1_tokens_packed"));
  ASSERT_TRUE(tokens.ok()) << tokens.status() << "\n" << ToHexLines(EncodeTokens(wanted));
  EXPECT_EQ(*tokens, wanted);
}

TEST(Golden, Image) {
  ExpectGolden("format_1_image", EncodeImage(77, SampleExtents()));
  const auto row = DecodeImage(ReadGolden("format_1_image"));
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->segment, 77u);
  EXPECT_EQ(row->extents, SampleExtents());
}

TEST(Golden, Identity) {
  ExpectGolden("format_1_identity", EncodeIdentity(SampleIdentity()));
  const auto identity = DecodeIdentity(ReadGolden("format_1_identity"));
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->identity, SampleIdentity().identity);
  EXPECT_EQ(identity->layout, SampleIdentity().layout);
}

TEST(Golden, Attributes) {
  ExpectGolden("format_1_attributes", EncodeAttributes(SampleAttributes()));
  const auto attributes =
      DecodeAttributes(SampleKey().conversation, ReadGolden("format_1_attributes"));
  ASSERT_TRUE(attributes.ok()) << attributes.status();
  EXPECT_EQ(*attributes, SampleAttributes());
}

TEST(Golden, Keys) {
  const std::string keys = ManifestKey(SampleKey()) + ImageKey(SampleKey(), 0xabcd) +
                           ConversationKey(SampleKey().conversation);
  ExpectGolden("format_1_keys", keys);
  const std::string golden = ReadGolden("format_1_keys");
  ASSERT_EQ(golden.size(), 58u);
  EXPECT_EQ(*ParseManifestKey(golden.substr(0, 20)), SampleKey());
  EXPECT_EQ(*ParseImageKey(golden.substr(20, 22)), std::pair(SampleKey(), std::uint16_t{0xabcd}));
  EXPECT_EQ(*ParseConversationKey(golden.substr(42)), SampleKey().conversation);
}

TEST(Golden, SegmentHead) {
  ExpectGolden("format_1_segment_head", EncodeSegmentHead(77, SampleRows(), 313536));
  std::uint64_t needed = 0;
  const auto head = DecodeSegmentHead(ReadGolden("format_1_segment_head"), &needed);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->segment, 77u);
  EXPECT_EQ(head->payload_bytes, 313536u);
  EXPECT_EQ(head->rows, SampleRows());
}

// Key, salt and nonces are fixed, so the bytes are.
TEST(Golden, SealedSegmentHead) {
  std::string bytes(kSealKeyBytes, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  const SharedSealKey key = *SealKey::Parse(bytes);
  const Sealer sealer(*key, {0x0123456789abcdef, 0xfedcba9876543210}, "parkade segment 1");
  ExpectGolden("format_2_segment_head", EncodeSegmentHead(77, SampleRows(), 313536, &sealer));
  std::uint64_t needed = 0;
  const auto head = DecodeSegmentHead(ReadGolden("format_2_segment_head"), &needed, key.get());
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->rows, SampleRows());

  StoredExtent extent = SampleExtents()[0];
  extent.stored_bytes = 64;
  std::string sealed(64, 'r');
  const std::string header = SealExtent(sealer, SampleKey(), extent, sealed, sealed.data());
  ExpectGolden("format_2_extent", header + sealed);
  const std::string golden = ReadGolden("format_2_extent");
  std::string opened = golden.substr(64);
  EXPECT_TRUE(
      OpenExtent(sealer, golden.substr(0, 64), SampleKey(), extent, opened, opened.data()).ok());
  EXPECT_EQ(opened, std::string(64, 'r'));

  Token page[kPageTokens];
  for (std::uint32_t i = 0; i < kPageTokens; ++i) page[i] = static_cast<Token>(i * 1000);
  PageHasher hasher({1, 2}, {3, 4}, PageHashKey(key));
  std::string hashes;
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t hash = hasher.Next(page);
    for (int shift = 0; shift < 64; shift += 8) hashes.push_back(static_cast<char>(hash >> shift));
  }
  ExpectGolden("format_2_hashes", hashes);
}

TEST(Golden, ExtentHeader) {
  ExpectGolden("format_1_extent_header", EncodeExtentHeader(SampleKey(), SampleExtents()[0]));
  EXPECT_TRUE(
      CheckExtentHeader(ReadGolden("format_1_extent_header"), SampleKey(), SampleExtents()[0])
          .ok());
}

TEST(Golden, Container) {
  // So few bytes are literals in every version of LZ4; payload is not packed.
  ExpectGolden("format_1_container", SampleContainer());
}

TEST(Golden, Hashes) {
  // Page hashes and identity digests are stored, so the functions behind them are format, too.
  Token page[kPageTokens];
  for (std::uint32_t i = 0; i < kPageTokens; ++i) page[i] = static_cast<Token>(i * 1000);
  const std::uint64_t seed = ChainSeed({1, 2}, {3, 4});
  const std::uint64_t first = ChainHash(seed, page);
  const std::uint64_t second = ChainHash(first, page);
  const std::vector<std::uint64_t> hashes = {seed, first, second};
  std::string bytes;
  for (const std::uint64_t hash : hashes) {
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(hash >> shift));
  }
  bytes += ConversationKey(SampleIdentity().identity.digest());
  bytes += ConversationKey(Checksum(std::string(1000, 'x')));
  ExpectGolden("format_1_hashes", bytes);
}

}  // namespace
}  // namespace parkade
