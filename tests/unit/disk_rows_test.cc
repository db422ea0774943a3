// Rows and segments as bytes; see tiers/disk/LAYOUT.md.
#include "tests/unit/disk_fixture.h"
#include "tiers/disk/names.h"
#include "tiers/disk/rows.h"

namespace parkade::test {
namespace {

using disk::BuildParkSegment;
using disk::BuildRowsSegment;
using disk::Family;
using disk::ParkSegment;
using disk::SegmentRef;
using disk::UnwrapRef;
using disk::WrapRef;

class DiskRowsTest : public DiskTierTest {
 protected:
  static std::string Bytes(const ParkSegment& park) {
    std::string bytes;
    for (const iovec& piece : park.pieces) {
      bytes.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
    }
    return bytes;
  }
};

TEST_F(DiskRowsTest, NamesAreFixed) {
  EXPECT_EQ(disk::SegmentPath(0x0123456789abcdefull), "segments/ef/0123456789abcdef.segment");
  EXPECT_EQ(disk::ParseSegmentFileName("0123456789abcdef.segment"), 0x0123456789abcdefull);
  for (const char* other : {"0123456789abcdef.segmen", "0123456789ABCDEF.segment",
                            "0123456789abcde.segment", "0123456789abcdef.segment~", ""}) {
    EXPECT_EQ(disk::ParseSegmentFileName(other), std::nullopt) << other;
  }
}

TEST_F(DiskRowsTest, AReferenceIsCheckedToTheLastBit) {
  const SegmentRef ref{0x1122334455667788ull, 77};
  const std::string value = WrapRef(ref, "inner");
  ASSERT_EQ(value.size(), 24u + 5);
  EXPECT_EQ(value.substr(0, 8), "\x88\x77\x66\x55\x44\x33\x22\x11");
  auto row = UnwrapRef(value);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->ref, ref);
  EXPECT_EQ(row->inner, "inner");
  for (std::size_t bit = 0; bit < value.size() * 8; ++bit) {
    std::string damaged = value;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_TRUE(absl::IsDataLoss(UnwrapRef(damaged).status())) << bit;
  }
  EXPECT_TRUE(absl::IsDataLoss(UnwrapRef(value.substr(0, 23)).status()));
}

TEST_F(DiskRowsTest, ASegmentHoldsWhatItsRowsSay) {
  const SamplePark park = Park(DiskConversation(1), 2);
  const std::vector<CatalogueRow> copied = {{Family::kMeta, "secret", "value"}};
  auto built = BuildParkSegment(9, park.record, park.payload, CodecChoice::kNone, copied);
  ASSERT_TRUE(built.ok()) << built.status();
  const std::string bytes = Bytes(*built);
  EXPECT_EQ(bytes.size(), built->ref.size_bytes);
  ASSERT_EQ(built->rows.size(), 2u + 2) << "manifest, tokens, one image row a stage";
  std::uint64_t needed = 0;
  auto head = DecodeSegmentHead(bytes, &needed);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->head_bytes + head->payload_bytes, bytes.size());
  ASSERT_EQ(head->rows.size(), 5u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(head->rows[i].key, built->rows[i].key);
    EXPECT_EQ(head->rows[i].value, built->rows[i].value);
  }
  auto manifest = UnwrapRef(head->rows[0].value);
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(manifest->ref, (SegmentRef{9, bytes.size()}));
  auto extents = disk::JoinImageRows(9, {head->rows[2].value, head->rows[3].value});
  ASSERT_TRUE(extents.ok()) << extents.status();
  ASSERT_EQ(extents->size(), park.payload.size());
  for (std::size_t i = 0; i < extents->size(); ++i) {
    const StoredExtent& extent = (*extents)[i];
    EXPECT_EQ(extent.offset % kExtentAlignment, 0u);
    EXPECT_EQ(extent.info, park.record.extents[i]);
    EXPECT_EQ(bytes.substr(extent.offset, extent.stored_bytes), ViewOf(park.payload[i]));
    EXPECT_EQ(CheckExtentHeader(bytes.substr(extent.offset - 64, 64), park.key(), extent),
              absl::OkStatus());
  }
  EXPECT_TRUE(absl::IsDataLoss(disk::JoinImageRows(8, {head->rows[2].value}).status()));
  EXPECT_TRUE(absl::IsDataLoss(disk::JoinImageRows(9, {head->rows[3].value}).status()));
  EXPECT_TRUE(absl::IsDataLoss(
      disk::JoinImageRows(9, {head->rows[2].value, head->rows[2].value}).status()));
}

TEST_F(DiskRowsTest, RefusesAParkThatDoesNotFitItself) {
  SamplePark park = Park(DiskConversation(1), 0);
  const auto refused = [&] {
    return absl::IsInvalidArgument(
        BuildParkSegment(1, park.record, park.payload, CodecChoice::kNone, {}).status());
  };
  EXPECT_FALSE(refused());
  park.record.tokens.pop_back();
  EXPECT_TRUE(refused());
  park = Park(DiskConversation(1), 0);
  park.payload.pop_back();
  EXPECT_TRUE(refused());
  park = Park(DiskConversation(1), 0);
  park.payload.back() = CopyToHeap("short");
  EXPECT_TRUE(refused());
  park = Park(DiskConversation(1), 0);
  park.record.extents[0].stage = 2;
  EXPECT_TRUE(refused());
  park = Park(DiskConversation(1), 0);
  park.record.summary.page_hashes.push_back(1);  // could not be read back
  EXPECT_TRUE(refused());
}

TEST_F(DiskRowsTest, ASegmentOfRowsNamesItself) {
  const auto built = BuildRowsSegment(5, {{Family::kName, "k", "v"}, {Family::kMeta, "m", ""}});
  std::uint64_t needed = 0;
  auto head = DecodeSegmentHead(built.head, &needed);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->payload_bytes, 0u);
  EXPECT_EQ(built.ref, (SegmentRef{5, built.head.size()}));
  ASSERT_EQ(head->rows.size(), 2u);
  for (const CatalogueRow& row : head->rows) {
    auto unwrapped = UnwrapRef(row.value);
    ASSERT_TRUE(unwrapped.ok());
    EXPECT_EQ(unwrapped->ref, built.ref);
  }
}

}  // namespace
}  // namespace parkade::test
