// Row values and keys of the catalogue. Input: a byte that chooses the kind, then the value.
#include <algorithm>
#include <vector>

#include "src/format/catalogue.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/right_checksums.h"

namespace parkade::fuzz {
namespace {

constexpr ParkKey kKey = {{1, 2}, 3};
// Fixed tables, and what growing a vector from small asks for.
constexpr std::size_t kSlackBytes = 64 << 10;
// What a field in memory takes at most of its bytes in a row: a stage.
constexpr std::size_t kGrowth = 16;
// An LZ4 block may really hold 255 times its size.
constexpr std::size_t kLz4Growth = 255;

// What decodes encodes to the same bytes.
template <typename Decode, typename Encode>
void RoundTrip(const std::string& value, Decode decode, Encode encode) {
  const auto decoded = decode(value);
  if (decoded.ok()) FUZZ_CHECK(encode(*decoded) == value);
}

void Tokens(const std::string& value) {
  const auto tokens = DecodeTokens(value);
  if (!tokens.ok()) return;
  // Of the compressed block there is more than one form.
  const auto again = DecodeTokens(EncodeTokens(*tokens));
  FUZZ_CHECK(again.ok() && *again == *tokens);
}

void Keys(std::string_view key) {
  if (const auto park = ParseManifestKey(key); park.ok()) FUZZ_CHECK(ManifestKey(*park) == key);
  if (const auto image = ParseImageKey(key); image.ok()) {
    FUZZ_CHECK(ImageKey(image->first, image->second) == key);
  }
  if (const auto id = ParseConversationKey(key); id.ok()) FUZZ_CHECK(ConversationKey(*id) == key);
}

void Decode(int kind, const std::string& value) {
  switch (kind) {
    case 0:
      return RoundTrip(
          value, [](const std::string& v) { return DecodeManifest(kKey, v); }, EncodeManifest);
    case 1:
      return Tokens(value);
    case 2:
      return RoundTrip(value, DecodeImage,
                       [](const ImageRow& row) { return EncodeImage(row.segment, row.extents); });
    case 3:
      return RoundTrip(value, DecodeIdentity, EncodeIdentity);
    case 4:
      return RoundTrip(
          value, [](const std::string& v) { return DecodeAttributes(kKey.conversation, v); },
          EncodeAttributes);
    default:
      return Keys(value);
  }
}

}  // namespace
}  // namespace parkade::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parkade::fuzz;
  Input input(data, size);
  const std::uint8_t choice = input.U8();
  std::string value(input.Rest());
  const int kind = choice % 6;
  if ((choice & 0x80) == 0 && kind < 5) {
    if (!value.empty()) value[0] = "MTIDA"[kind];
    RightFrame(&value, 0, value.size());
  }
  const AllocationWatch watch;
  Decode(kind, value);
  const std::size_t growth = kind == 1 ? kLz4Growth : kGrowth;
  FUZZ_CHECK(watch.largest_bytes() <= kSlackBytes + growth * value.size());
  return 0;
}
