// Decoders allocate in proportion to their input, whatever its counts say.
#include <gtest/gtest.h>

#include "src/format/catalogue.h"
#include "src/format/segment.h"
#include "src/format/wire.h"
#include "tests/unit/format_largest_request.h"
#include "tests/unit/format_samples.h"

namespace parkade {
namespace {

// The largest request while every 32-bit window of `value` in turn claims to be a huge count.
template <typename Decode>
std::size_t LargestRequest(const std::string& value, std::size_t begin, Decode decode) {
  largest_request_bytes = 0;
  for (std::size_t at = begin; at + 12 <= value.size(); ++at) {
    for (const char high : {'\x00', '\x0f', '\x7f', '\xff'}) {
      std::string claimed = value;
      for (int i = 0; i < 3; ++i) claimed[at + i] = '\xff';
      claimed[at + 3] = high;
      decode(claimed);
    }
  }
  return largest_request_bytes;
}

void Reseal(std::string& value) {
  ByteWriter trailer;
  trailer.U64(Checksum64(std::string_view(value).substr(0, value.size() - 8)));
  value.replace(value.size() - 8, 8, trailer.Take());
}

TEST(Allocation, RowsStayInProportion) {
  const auto check = [](std::string value, auto decode, std::size_t most_bytes) {
    EXPECT_LE(LargestRequest(value, 2,
                             [&decode](std::string claimed) {
                               Reseal(claimed);
                               (void)decode(claimed);
                             }),
              most_bytes);
  };
  check(
      EncodeManifest(SampleSummary()),
      [](const std::string& value) { return DecodeManifest(SampleKey(), value).ok(); }, 16384);
  check(
      EncodeImage(1, SampleExtents()),
      [](const std::string& value) { return DecodeImage(value).ok(); }, 16384);
  check(
      EncodeIdentity(SampleIdentity()),
      [](const std::string& value) { return DecodeIdentity(value).ok(); }, 16384);
  check(
      EncodeAttributes(SampleAttributes()),
      [](const std::string& value) { return DecodeAttributes({}, value).ok(); }, 16384);
  // An LZ4 block may really hold 255 times its size.
  const std::string tokens = EncodeTokens(std::vector<Token>{1, 2, 3});
  check(
      tokens, [](const std::string& value) { return DecodeTokens(value).ok(); },
      255 * tokens.size());
}

TEST(Allocation, SegmentHeadsStayInProportion) {
  const std::string head = EncodeSegmentHead(77, SampleRows(), 4096);
  const std::size_t largest = LargestRequest(head, 8, [](std::string claimed) {
    std::uint64_t needed = 0;
    ByteWriter rows_checksum;
    rows_checksum.U64(Checksum64(std::string_view(claimed).substr(64)));
    claimed.replace(40, 8, rows_checksum.Take());
    std::string header = claimed.substr(0, 64);
    Reseal(header);
    claimed.replace(0, 64, header);
    (void)DecodeSegmentHead(claimed, &needed);
    ASSERT_LE(needed, kMostHeadBytes);
  });
  EXPECT_LE(largest, 16384u);
}

}  // namespace
}  // namespace parkade
