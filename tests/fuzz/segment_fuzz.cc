// Segment heads and extent headers, plain and sealed. Input: a byte of switches, an extent header,
// the length of its stored bytes (u16), those, then a plain segment's head.
#include <algorithm>
#include <vector>

#include "src/format/segment.h"
#include "src/format/wire.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/right_checksums.h"

namespace parkade::fuzz {
namespace {

constexpr std::uint8_t kLeaveChecksums = 0x80;
constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kBoundBytes = 40;
constexpr std::size_t kSlackBytes = 64 << 10;
constexpr std::size_t kGrowth = 16;

const SharedSealKey& Key() {
  static const SharedSealKey key = *SealKey::Parse(std::string(kSealKeyBytes, 'k'));
  return key;
}

const Sealer& SegmentSealer() {
  static const Sealer sealer(*Key(), {3, 4}, "parkade segment 1");
  return sealer;
}

void CheckPlain(const std::string& bytes) {
  std::uint64_t needed = 0;
  const auto head = DecodeSegmentHead(bytes, &needed);
  FUZZ_CHECK(needed <= kMostHeadBytes);
  if (absl::IsOutOfRange(head.status())) FUZZ_CHECK(needed > bytes.size());
  const auto id = DecodeSegmentKeyId(bytes);
  if (!head.ok()) return;
  FUZZ_CHECK(id.ok() && id->IsZero() && head->head_bytes == needed);
  const std::string again = EncodeSegmentHead(head->segment, head->rows, head->payload_bytes);
  FUZZ_CHECK(again == std::string_view(bytes).substr(0, needed));
  FUZZ_CHECK(SegmentHeadBytes(head->rows) == needed);
}

// The same rows frame, sealed as a writer does it, whatever is in it.
std::string Sealed(const std::string& plain) {
  std::string header = plain.substr(0, kHeaderBytes);
  header[8] = 2;
  std::string frame = plain.substr(kHeaderBytes);
  const SealTag tag = SegmentSealer().Seal({0, 0}, std::string_view(header).substr(0, kBoundBytes),
                                           {frame.data(), frame.size()}, frame.data());
  ByteWriter block;
  block.Digest(SegmentSealer().key_id());
  block.Digest(SegmentSealer().salt());
  block.Digest(tag);
  block.U64(0);
  block.U64(Checksum64(block.bytes()));
  ByteWriter checksum;
  checksum.U64(Checksum64(frame));
  header.replace(kBoundBytes, 8, checksum.bytes());
  std::string bytes = header + block.Take() + frame;
  RightFrame(&bytes, 0, kHeaderBytes);
  return bytes;
}

// A sealed head decodes exactly where the plain one does, to the same rows.
void CheckSealed(const std::string& plain, std::size_t flip) {
  std::uint64_t needed = 0;
  const auto open = DecodeSegmentHead(plain, &needed);
  if (needed != plain.size()) return;
  std::string bytes = Sealed(plain);
  const auto sealed = DecodeSegmentHead(bytes, &needed, Key().get());
  FUZZ_CHECK(sealed.ok() == open.ok());
  if (!open.ok()) return;
  FUZZ_CHECK(absl::IsFailedPrecondition(DecodeSegmentHead(bytes, &needed).status()));
  FUZZ_CHECK(sealed->segment == open->segment && sealed->payload_bytes == open->payload_bytes);
  FUZZ_CHECK(sealed->rows.size() == open->rows.size());
  for (std::size_t i = 0; i < open->rows.size(); ++i) {
    FUZZ_CHECK(sealed->rows[i].family == open->rows[i].family &&
               sealed->rows[i].key == open->rows[i].key &&
               sealed->rows[i].value == open->rows[i].value);
  }
  // One bit of it, with every checksum made right again: the tag stays.
  bytes[flip % bytes.size()] ^= 1 << flip % 8;
  RightFrame(&bytes, kHeaderBytes, kHeaderBytes);
  ByteWriter checksum;
  checksum.U64(Checksum64(std::string_view(bytes).substr(kSegmentSealBytes)));
  bytes.replace(kBoundBytes, 8, checksum.bytes());
  RightFrame(&bytes, 0, kHeaderBytes);
  const auto damaged = DecodeSegmentHead(bytes, &needed, Key().get());
  // What the flip only brought to checksums was made right again.
  if (bytes != Sealed(plain)) FUZZ_CHECK(!damaged.ok());
}

StoredExtent ExtentOf(const std::string& header, ParkKey* key) {
  ByteReader reader(std::string_view(header).substr(4));
  StoredExtent extent;
  key->conversation = reader.Digest();
  key->park = reader.U32();
  extent.ordinal = reader.U32();
  extent.stored_bytes = reader.U32();
  extent.info.raw_bytes = reader.U32();
  extent.codec = static_cast<Codec>(reader.U8());
  extent.info.group = static_cast<RowGroup>(reader.U8());
  extent.info.stage = reader.U16();
  extent.info.checksum = reader.Digest();
  return extent;
}

void CheckExtent(std::string header, std::string_view stored, bool right, std::size_t flip) {
  if (right) {
    header.replace(0, 4, "PKEX");
    RightFrame(&header, 0, header.size());
  }
  ParkKey key;
  StoredExtent extent = ExtentOf(header, &key);
  const bool same = EncodeExtentHeader(key, extent) == header;
  FUZZ_CHECK(CheckExtentHeader(header, key, extent).ok() == same);
  FUZZ_CHECK(!right || same);
  if (stored.empty()) return;
  extent.stored_bytes = static_cast<std::uint32_t>(stored.size());
  std::string bytes(stored);
  std::string sealed_header =
      SealExtent(SegmentSealer(), key, extent, {stored.data(), stored.size()}, bytes.data());
  std::string opened(bytes.size(), '\0');
  const auto open = [&] {
    return OpenExtent(SegmentSealer(), sealed_header, key, extent, {bytes.data(), bytes.size()},
                      opened.data());
  };
  FUZZ_CHECK(open().ok() && opened == stored);
  std::string& hit = flip % 2 == 0 ? sealed_header : bytes;
  hit[flip / 2 % hit.size()] ^= 1 << flip % 8;
  if (flip % 2 == 0) RightFrame(&sealed_header, 0, sealed_header.size());
  // A flip in the header's own checksum is made right again.
  const bool unchanged = flip % 2 == 0 && flip / 2 % hit.size() >= 56;
  FUZZ_CHECK(open().ok() == unchanged);
  if (!unchanged) FUZZ_CHECK(!absl::IsFailedPrecondition(open()));
}

}  // namespace
}  // namespace parkade::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parkade;
  using namespace parkade::fuzz;
  Input input(data, size);
  const std::uint8_t switches = input.U8();
  std::string header(input.Bytes(kExtentHeaderBytes));
  header.resize(kExtentHeaderBytes);
  const std::uint16_t flip = input.U16();
  const std::string_view stored = input.Bytes(flip % 512);
  std::string head(input.Rest());
  const bool right = (switches & kLeaveChecksums) == 0;
  if (right && head.size() >= 8) {
    head.replace(0, 8, "PARKSEG1");
    RightSegmentHead(&head, 0);
  }
  const AllocationWatch watch;
  CheckExtent(std::move(header), stored, right, flip);
  CheckPlain(head);
  if (right && head.size() >= kHeaderBytes && head[8] == 1) CheckSealed(head, flip);
  // OpenSSL's own contexts are smaller than the slack.
  FUZZ_CHECK(watch.largest_bytes() <= kSlackBytes + kGrowth * size);
  return 0;
}
