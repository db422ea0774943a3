// Every kind of byte of a segment, damaged in every way: what stands on it is lost, and nothing
// else; verifying finds it, repairing leaves a directory in which nothing more is found.
#include <set>
#include <tuple>

#include "src/format/segment.h"
#include "tests/unit/disk_byte_classes.h"
#include "tests/unit/disk_fixture.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;
using Parks = std::map<std::uint64_t, std::vector<std::uint32_t>>;
using ParkSet = std::set<std::pair<std::uint64_t, std::uint32_t>>;

class DiskDamageClasses : public DiskTierTest {
 protected:
  // Segments in the order written: the secret; conversation 1 with three parks; a fork of it that
  // needs its first 150 tokens, one that needs 250; conversation 4; a name for it; a tombstone.
  void Fill(bool sealed, char key = 'k') {
    options_.codec = CodecChoice::kNone;
    options_.key = sealed ? *SealKey::Parse(std::string(kSealKeyBytes, key)) : nullptr;
    Open();
    PutConversation(DiskConversation(1), 3);
    PutConversation(DiskConversation(2), 1, DiskConversation(1), 150);
    PutConversation(DiskConversation(3), 1, DiskConversation(1), 250);
    PutConversation(DiskConversation(4), 2);
    PutConversation(DiskConversation(5), 1);
    ConversationAttributes named;
    named.conversation = DiskConversation(4);
    named.pinned = true;
    named.name = "kept";
    named.name_tokens = 150;
    ASSERT_EQ(tier().WriteAttributes({named}, true), absl::OkStatus());
    ASSERT_EQ(tier().Forget(DiskConversation(5), {{DiskConversation(5), 0}}), absl::OkStatus());
    secret_ = tier().secret();
    tier_.reset();
    files_ = Segments();
    ASSERT_EQ(files_.size(), 1u + 7 + 2);
    fs::copy(directory(), root_ + "/sound", fs::copy_options::recursive);
  }
  static Parks Everything() { return {{1, {0, 1, 2}}, {2, {0}}, {3, {0}}, {4, {0, 1}}}; }
  // What is left when the second park of conversation 1 is lost.
  static Parks WithoutSecondPark() { return {{1, {0}}, {4, {0, 1}}}; }
  const fs::path& SecondPark() const { return files_[2]; }
  const fs::path& LastPark() const { return files_[7]; }

  void Restore(const std::string& from) {
    tier_.reset();
    fs::remove_all(directory());
    fs::copy(root_ + "/" + from, directory(), fs::copy_options::recursive);
  }
  static void WriteFile(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  VerifyReport Verify(bool repair) {
    auto report = VerifyDiskTier(directory(), repair, nullptr, options_.key);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : VerifyReport();
  }
  bool Names(const VerifyReport& report, const fs::path& file) {
    return std::any_of(report.findings.begin(), report.findings.end(),
                       [&](const std::string& finding) {
                         return finding.find(file.filename().string()) != std::string::npos;
                       });
  }
  void ExpectSmallRows() {
    EXPECT_EQ(tier().secret(), secret_);
    std::string names;
    EXPECT_EQ(tier().EnumerateAttributes([&](const ConversationAttributes& one) {
      if (one.pinned) names += one.name + std::to_string(one.conversation.low);
    }),
              absl::OkStatus());
    EXPECT_EQ(names, "kept4");
  }
  // Opens and reads: each park of `left` is whole, and what is not whole says so.
  void ExpectAtLeast(const Parks& left) {
    Open();
    if (tier_ == nullptr) return;
    ParkSet whole;
    std::vector<ParkSummary> summaries;
    ASSERT_EQ(tier().Enumerate([&](const ParkSummary& one) { summaries.push_back(one); }),
              absl::OkStatus());
    for (const ParkSummary& summary : summaries) {
      const absl::Status read = CheckWhole(summary);
      // Other bytes than those that were stored would be InternalError.
      EXPECT_TRUE(read.ok() || absl::IsDataLoss(read)) << read;
      if (read.ok()) whole.emplace(summary.key.conversation.low, summary.key.park);
    }
    for (const auto& [id, parks] : left) {
      for (const std::uint32_t park : parks) {
        EXPECT_TRUE(whole.contains({id, park})) << id << "/" << park;
      }
    }
    ExpectSmallRows();
    tier_.reset();
  }

  // The directory is damaged in `file`; with what stands on it given up, `left` is left.
  void Judge(const fs::path& file, const Parks& left) {
    fs::remove_all(root_ + "/damaged");
    fs::copy(directory(), root_ + "/damaged", fs::copy_options::recursive);
    const VerifyReport found = Verify(false);
    EXPECT_GE(found.damaged_segments + found.damaged_rows, 1u);
    EXPECT_TRUE(Names(found, file)) << "not found";
    ExpectAtLeast(left);

    Restore("damaged");
    Verify(true);
    EXPECT_EQ(Verify(false).findings, std::vector<std::string>{}) << "after a repair";
    Open();
    EXPECT_EQ(Held(), left);
    ExpectSmallRows();
    tier_.reset();
    EXPECT_EQ(Verify(false).findings, std::vector<std::string>{}) << "after an open";

    Restore("damaged");
    fs::remove_all(directory() + "/catalogue");
    ExpectAtLeast(left);
  }

  Digest128 secret_;
  std::vector<fs::path> files_;
};

class DiskSegmentBytes : public DiskDamageClasses,
                         public ::testing::WithParamInterface<std::tuple<bool, ByteDamage>> {};

TEST_P(DiskSegmentBytes, CostWhatRefersToThem) {
  const auto [sealed, damage] = GetParam();
  Fill(sealed);
  const std::string sound = ReadFile(SecondPark());
  const std::string other = ReadFile(LastPark());
  int damages = 0;
  for (const ByteClass& where : ByteClassesOf(sound, options_.key.get())) {
    SCOPED_TRACE(where.name);
    const std::string damaged = Damaged(sound, where, damage, other);
    if (damaged == sound) continue;
    ++damages;
    Restore("sound");
    WriteFile(SecondPark(), damaged);
    Judge(SecondPark(), WithoutSecondPark());
    if (HasFailure()) break;
  }
  EXPECT_GE(damages, damage == ByteDamage::kSwapped ? 15 : 30);
}
INSTANTIATE_TEST_SUITE_P(Ways, DiskSegmentBytes,
                         ::testing::Combine(::testing::Bool(), ::testing::ValuesIn(kByteDamages)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param) ? "Sealed" : "Plain") +
                                  DamageName(std::get<1>(instance.param));
                         });

class DiskSegmentFiles : public DiskDamageClasses, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Ways, DiskSegmentFiles, ::testing::Bool(), [](const auto& instance) {
  return std::string(instance.param ? "Sealed" : "Plain");
});

TEST_P(DiskSegmentFiles, ADeletedOne) {
  Fill(GetParam());
  fs::remove(SecondPark());
  Judge(SecondPark(), WithoutSecondPark());
}

TEST_P(DiskSegmentFiles, AnEmptyOne) {
  Fill(GetParam());
  WriteFile(SecondPark(), "");
  Judge(SecondPark(), WithoutSecondPark());
}

TEST_P(DiskSegmentFiles, ZerosOfTheSameSize) {
  Fill(GetParam());
  WriteFile(SecondPark(), std::string(fs::file_size(SecondPark()), '\0'));
  Judge(SecondPark(), WithoutSecondPark());
}

TEST_P(DiskSegmentFiles, OneThatIsLonger) {
  Fill(GetParam());
  WriteFile(SecondPark(), ReadFile(SecondPark()) + std::string(64, '\0'));
  Judge(SecondPark(), WithoutSecondPark());
}

TEST_P(DiskSegmentFiles, AnothersBytesUnderItsName) {
  Fill(GetParam());
  ASSERT_EQ(fs::file_size(SecondPark()), fs::file_size(LastPark()));
  WriteFile(SecondPark(), ReadFile(LastPark()));
  Judge(SecondPark(), WithoutSecondPark());
}

TEST_P(DiskSegmentFiles, TwoThatWereSwapped) {
  Fill(GetParam());
  const std::string second = ReadFile(SecondPark());
  WriteFile(SecondPark(), ReadFile(LastPark()));
  WriteFile(LastPark(), second);
  Judge(SecondPark(), {{1, {0}}, {4, {0}}});
}

// Of a directory that is not encrypted while this one is, or the other way, or with another key.
TEST_P(DiskSegmentFiles, AnotherDirectorysBytesUnderItsName) {
  for (const bool other_key : {false, true}) {
    Fill(other_key || !GetParam(), 'x');
    const std::string theirs = ReadFile(SecondPark());
    for (const char* name : {"sound", "tier"}) fs::remove_all(root_ + "/" + name);
    Fill(GetParam());
    WriteFile(SecondPark(), theirs);
    Judge(SecondPark(), WithoutSecondPark());
    for (const char* name : {"sound", "tier"}) fs::remove_all(root_ + "/" + name);
  }
}

TEST_P(DiskSegmentFiles, AnExtentOfAnotherConversationWithItsHeader) {
  Fill(GetParam());
  const std::string sound = ReadFile(SecondPark());
  const std::string other = ReadFile(LastPark());
  std::uint64_t needed = 0;
  const auto head = DecodeSegmentHead(sound, &needed, options_.key.get());
  ASSERT_TRUE(head.ok()) << head.status();
  int swapped = 0;
  for (const CatalogueRow& row : head->rows) {
    if (row.family != CatalogueRow::Family::kImage) continue;
    const absl::StatusOr<ImageRow> image = DecodeImage(row.value);
    ASSERT_TRUE(image.ok()) << image.status();
    for (const StoredExtent& extent : image->extents) {
      SCOPED_TRACE(extent.ordinal);
      const ByteClass whole = {"", extent.offset - kExtentHeaderBytes,
                               kExtentHeaderBytes + extent.stored_bytes};
      Restore("sound");
      WriteFile(SecondPark(), Damaged(sound, whole, ByteDamage::kSwapped, other));
      Judge(SecondPark(), WithoutSecondPark());
      ++swapped;
    }
  }
  EXPECT_GE(swapped, 3);
}

// The secret's, a name's and a tombstone's: all of it is in the catalogue, too.
TEST_P(DiskSegmentFiles, SmallOnesCostNothingWhileTheCatalogueIsThere) {
  Fill(GetParam());
  for (const std::size_t number : {std::size_t{0}, files_.size() - 2, files_.size() - 1}) {
    Restore("sound");
    const std::string sound = ReadFile(files_[number]);
    ASSERT_FALSE(sound.empty());
    std::vector<std::string> damages = {"", sound.substr(0, 40), sound + "x",
                                        std::string(sound.size(), '\0')};
    // A third of the kinds in each: they are the same in all three.
    const std::vector<ByteClass> classes = ByteClassesOf(sound, options_.key.get());
    for (std::size_t i = number % 3; i < classes.size(); i += 3) {
      damages.push_back(Damaged(sound, classes[i], ByteDamage::kFlipped, ""));
    }
    for (std::size_t i = 0; i < damages.size(); ++i) {
      SCOPED_TRACE(files_[number].filename().string() + " " + std::to_string(number) + ", way " +
                   std::to_string(i));
      Restore("sound");
      WriteFile(files_[number], damages[i]);
      if (i == 0) fs::remove(files_[number]);
      EXPECT_TRUE(Names(Verify(false), files_[number])) << "not found";
      Verify(true);
      EXPECT_EQ(Verify(false).findings, std::vector<std::string>{}) << "after a repair";
      Open();
      EXPECT_EQ(Held(), Everything());
      ExpectSmallRows();
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace parkade::test
