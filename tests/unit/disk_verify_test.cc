// Verifying finds every changed byte; repairing ends conversations before it.
#include <random>

#include "tests/unit/disk_fixture.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;
using Parks = std::map<std::uint64_t, std::vector<std::uint32_t>>;

std::uint64_t Seed() {
  const char* given = std::getenv("PARKADE_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::cerr << "PARKADE_SEED=" << seed << "\n";
  return seed;
}

class DiskVerifyTest : public DiskTierTest {
 protected:
  void Fill(CodecChoice codec = CodecChoice::kAuto) {
    options_.codec = codec;
    Open();
    PutConversation(DiskConversation(1), 3);
    PutConversation(DiskConversation(2), 1, DiskConversation(1), 250);
    tier_.reset();
  }
  VerifyReport Verify(bool repair) {
    auto report = VerifyDiskTier(directory(), repair, nullptr);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : VerifyReport();
  }
};

TEST_F(DiskVerifyTest, AWholeDirectoryHasNoFindings) {
  for (const CodecChoice codec : {CodecChoice::kAuto, CodecChoice::kZstd}) {
    Fill(codec);
    std::uint64_t last = 0, all = 0;
    auto report = VerifyDiskTier(directory(), false, [&](std::uint64_t done, std::uint64_t total) {
      EXPECT_GT(done, last);
      last = done;
      all = total;
    });
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->findings, std::vector<std::string>{});
    EXPECT_EQ(report->segments, 5u);
    EXPECT_EQ(report->extents, 4 * Park(DiskConversation(1), 0).payload.size());
    EXPECT_EQ(report->bytes, all);
    EXPECT_EQ(last, all);
    EXPECT_EQ(report->damaged_segments + report->damaged_rows + report->orphan_files, 0u);
    fs::remove_all(directory());
  }
  EXPECT_TRUE(absl::IsNotFound(VerifyDiskTier(directory(), true, nullptr).status()));
}

TEST_F(DiskVerifyTest, EveryByteOfASegmentCounts) {
  Fill();
  const fs::path segment = Segments()[2];
  const std::uint64_t size = fs::file_size(segment);
  std::mt19937_64 random(Seed());
  for (int i = 0; i < 60; ++i) {
    const std::uint64_t at = i < 8 ? i * (size - 1) / 7 : random() % size;
    FlipByte(segment, at);
    const VerifyReport report = Verify(false);
    EXPECT_EQ(report.damaged_segments, 1u) << "byte " << at << " of " << size;
    EXPECT_EQ(report.segments, 5u);
    FlipByte(segment, at);
  }
  EXPECT_EQ(Verify(false).findings, std::vector<std::string>{});
}

TEST_F(DiskVerifyTest, RepairEndsTheConversationBeforeTheDamage) {
  Fill();
  const fs::path segment = Segments()[3];
  FlipByte(segment, fs::file_size(segment) - 1);
  Open();
  // Not found by opening, which reads no payload; the caller's checksum finds it.
  EXPECT_EQ(tier().ReadExtents({DiskConversation(1), 2}).status(), absl::OkStatus());
  tier_.reset();
  const VerifyReport report = Verify(true);
  EXPECT_EQ(report.damaged_segments, 1u);
  EXPECT_FALSE(report.catalogue_rebuilt);
  EXPECT_FALSE(fs::exists(segment));
  EXPECT_EQ(Verify(false).findings, std::vector<std::string>{});
  Open();
  EXPECT_EQ(Held(), (Parks{{1, {0, 1}}}));
}

TEST_F(DiskVerifyTest, ALostCatalogueIsFoundAndRebuilt) {
  Fill();
  fs::remove(directory() + "/catalogue/CURRENT");
  VerifyReport report = Verify(false);
  EXPECT_EQ(report.damaged_segments, 0u);
  EXPECT_EQ(report.damaged_rows, 1u);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].rfind("catalogue: ", 0), 0u) << report.findings[0];
  EXPECT_FALSE(fs::exists(directory() + "/catalogue/CURRENT")) << "looking changes nothing";
  report = Verify(true);
  EXPECT_TRUE(report.catalogue_rebuilt);
  EXPECT_EQ(report.damaged_segments, 0u);
  EXPECT_EQ(Verify(false).findings, std::vector<std::string>{});
  Open();
  EXPECT_EQ(Held(), (Parks{{1, {0, 1, 2}}, {2, {0}}}));
}

TEST_F(DiskVerifyTest, MissingSegmentsAndOrphansAreCounted) {
  Fill();
  fs::rename(Segments()[4], root_ + "/away");
  fs::create_directories(directory() + "/segments/07");
  std::ofstream(directory() + "/segments/07/readme") << "";
  const VerifyReport report = Verify(false);
  EXPECT_EQ(report.damaged_rows, 1u);
  EXPECT_EQ(report.orphan_files, 1u);
  EXPECT_EQ(report.damaged_segments, 0u);
}

}  // namespace
}  // namespace parkade::test
