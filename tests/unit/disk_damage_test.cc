// Segments and catalogue that are lost, cut short, or changed.
#include "tests/unit/disk_fixture.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;
using Parks = std::map<std::uint64_t, std::vector<std::uint32_t>>;

class DiskDamageTest : public DiskTierTest {
 protected:
  // Conversation 1: 5 parks. 2: forks from 1 at 150. 3: forks from 1 at 400. 4: forks from 3.
  void Fill() {
    Open();
    PutConversation(DiskConversation(1), 5);
    PutConversation(DiskConversation(2), 2, DiskConversation(1), 150);
    PutConversation(DiskConversation(3), 2, DiskConversation(1), 400);
    PutConversation(DiskConversation(4), 1, DiskConversation(3), 450);
    ConversationAttributes named;
    named.conversation = DiskConversation(2);
    named.pinned = true;
    named.name = "kept";
    named.name_tokens = 250;
    named.hits = 7;
    ConversationAttributes unnamed = named;
    unnamed.conversation = DiskConversation(1);
    ASSERT_EQ(tier().WriteAttributes({named, unnamed}, true), absl::OkStatus());
    unnamed.pinned = false;
    unnamed.name = "";
    unnamed.name_tokens = 0;
    ASSERT_EQ(tier().WriteAttributes({unnamed}, true), absl::OkStatus());
    secret_ = tier().secret();
    tier_.reset();
  }
  // What Fill wrote; segments in the order written, the secret's first.
  fs::path SegmentOfPark(std::size_t number) { return Segments()[1 + number]; }
  static Parks Everything() { return {{1, {0, 1, 2, 3, 4}}, {2, {0, 1}}, {3, {0, 1}}, {4, {0}}}; }
  void ExpectAllSmallRows() {
    EXPECT_EQ(tier().secret(), secret_);
    std::map<std::uint64_t, std::string> names;
    ASSERT_EQ(tier().EnumerateAttributes([&](const ConversationAttributes& one) {
      if (one.pinned) names[one.conversation.low] = one.name;
    }),
              absl::OkStatus());
    EXPECT_EQ(names, (std::map<std::uint64_t, std::string>{{2, "kept"}}));
    std::vector<Digest128> identities;
    ASSERT_EQ(tier().EnumerateIdentities([&](const Digest128& digest, const StoredIdentity& one) {
      EXPECT_EQ(one.layout, Layout());
      identities.push_back(digest);
    }),
              absl::OkStatus());
    EXPECT_EQ(identities, std::vector<Digest128>{SampleIdentityDigest(Layout())});
  }
  Digest128 secret_;
};

TEST_F(DiskDamageTest, AMissingSegmentEndsItsConversationAndForksThatNeedIt) {
  Fill();
  ASSERT_TRUE(fs::remove(SegmentOfPark(2)));  // tokens [200, 300) of conversation 1
  Open();
  EXPECT_EQ(Held(), (Parks{{1, {0, 1}}, {2, {0, 1}}}));
  EXPECT_EQ(Segments().size(), 1u + 4 + 2) << "secret, parks, names";
  // What was given up can be stored again.
  EXPECT_EQ(Put(Park(DiskConversation(1), 2)), absl::OkStatus());
  Open();
  EXPECT_EQ(Held(), (Parks{{1, {0, 1, 2}}, {2, {0, 1}}}));
}

TEST_F(DiskDamageTest, AShorterOrLongerSegmentCountsAsMissing) {
  Fill();
  fs::resize_file(SegmentOfPark(4), fs::file_size(SegmentOfPark(4)) - 1);
  fs::resize_file(SegmentOfPark(6), fs::file_size(SegmentOfPark(6)) + 1);
  Open();
  EXPECT_EQ(Held(), (Parks{{1, {0, 1, 2, 3}}, {2, {0}}, {3, {0, 1}}, {4, {0}}}));
}

TEST_F(DiskDamageTest, TheFirstSegmentTakesAllThatStandsOnIt) {
  Fill();
  ASSERT_TRUE(fs::remove(SegmentOfPark(0)));
  Open();
  EXPECT_EQ(Held(), Parks{});
  EXPECT_EQ(Segments().size(), 1u) << "the secret";
}

TEST_F(DiskDamageTest, WhileOpenAMissingSegmentIsDataLoss) {
  Fill();
  Open();
  fs::resize_file(SegmentOfPark(1), 100);
  ASSERT_TRUE(fs::remove(SegmentOfPark(2)));
  EXPECT_TRUE(absl::IsDataLoss(tier().ReadExtents({DiskConversation(1), 1}).status()));
  EXPECT_TRUE(absl::IsDataLoss(tier().ReadExtents({DiskConversation(1), 2}).status()));
  EXPECT_TRUE(
      absl::IsDataLoss(tier().ReadExtent({DiskConversation(1), 1}, 0, MakeHeapBuffer).status()));
  EXPECT_TRUE(
      absl::IsDataLoss(tier().ReadExtent({DiskConversation(1), 2}, 0, MakeHeapBuffer).status()));
  EXPECT_EQ(tier().usage().state, "up");
}

// Whatever of RocksDB's is lost: everything is there again, from the segments.
class DiskCatalogueLossTest : public DiskDamageTest,
                              public ::testing::WithParamInterface<const char*> {};

TEST_P(DiskCatalogueLossTest, IsRebuiltFromSegments) {
  Fill();
  const std::string prefix = GetParam();
  int lost = 0;
  for (const fs::path& file : Files("catalogue")) {
    const std::string name = file.filename().string();
    const bool matches =
        prefix[0] == '*' ? name.ends_with(prefix.substr(1)) : name.starts_with(prefix);
    if (matches) lost += fs::remove(file);
  }
  ASSERT_GT(lost, 0);
  Open();
  EXPECT_EQ(Held(), Everything());
  ExpectAllSmallRows();
  for (const auto& entry : fs::directory_iterator(directory())) {
    EXPECT_EQ(entry.path().string().find("damaged"), std::string::npos) << entry.path();
  }
  EXPECT_EQ(Segments().size(), 1u + 10 + 2);
  Open();
  EXPECT_EQ(Held(), Everything());
  ExpectAllSmallRows();
}
INSTANTIATE_TEST_SUITE_P(Files, DiskCatalogueLossTest,
                         ::testing::Values("CURRENT", "MANIFEST", "*.log", "OPTIONS", "0", ""));

// The log of a directory so young that its secret is in no table yet.
TEST_F(DiskDamageTest, AnotherDirectorysLogDoesNotReplaceTheSecret) {
  const auto log = [this] {
    for (const fs::path& file : Files("catalogue")) {
      if (file.extension() == ".log") return ReadFile(file);
    }
    return std::string();
  };
  Open();
  PutConversation(DiskConversation(7), 2);
  tier_.reset();
  const std::string theirs = log();
  fs::remove_all(directory());
  Open();
  PutConversation(DiskConversation(1), 5);
  secret_ = tier().secret();
  tier_.reset();
  for (const fs::path& file : Files("catalogue")) {
    if (file.extension() == ".log") std::ofstream(file, std::ios::binary) << theirs;
  }
  Open();
  EXPECT_EQ(Held(), (Parks{{1, {0, 1, 2, 3, 4}}}));
  EXPECT_EQ(tier().secret(), secret_);
}

TEST_F(DiskDamageTest, TheWholeFolderLostIsRebuilt) {
  Fill();
  fs::remove_all(directory() + "/catalogue");
  Open();
  EXPECT_EQ(Held(), Everything());
  ExpectAllSmallRows();
}

TEST_F(DiskDamageTest, AMarkerOfAStartThatEndedInsideRocksDbRebuildsAtOnce) {
  Fill();
  std::ofstream(directory() + "/catalogue.opening") << "";
  fs::create_directory(directory() + "/catalogue.damaged-1");
  std::ofstream(directory() + "/catalogue.damaged-1/CURRENT") << "";
  Open();
  EXPECT_EQ(Held(), Everything());
  ExpectAllSmallRows();
  EXPECT_FALSE(fs::exists(directory() + "/catalogue.opening"));
  EXPECT_FALSE(fs::exists(directory() + "/catalogue.damaged-1"));
  int hits = 0;
  ASSERT_EQ(tier().EnumerateAttributes(
                [&](const ConversationAttributes& one) { hits += static_cast<int>(one.hits); }),
            absl::OkStatus());
  EXPECT_EQ(hits, 14) << "written again with the name, for both";
}

TEST_F(DiskDamageTest, RebuildingLeavesOutWhatIsNotWhole) {
  Fill();
  fs::remove_all(directory() + "/catalogue");
  FlipByte(SegmentOfPark(3), 70);  // in the rows of park 3 of conversation 1
  fs::create_directories(directory() + "/segments/ff");
  fs::copy_file(SegmentOfPark(0), directory() + "/segments/ff/00000000000000ff.segment");
  Open();
  EXPECT_EQ(Held(), (Parks{{1, {0, 1, 2}}, {2, {0, 1}}}));
  EXPECT_FALSE(fs::exists(directory() + "/segments/ff/00000000000000ff.segment"));
}

TEST_F(DiskDamageTest, TheSecretIsInEverySegment) {
  Fill();
  fs::remove_all(directory() + "/catalogue");
  ASSERT_TRUE(fs::remove(Segments()[0]));
  Open();
  EXPECT_EQ(Held(), Everything());
  ExpectAllSmallRows();
}

TEST_F(DiskDamageTest, SmallSegmentsThatAreLostAreWrittenAgain) {
  Fill();
  const std::vector<fs::path> before = Segments();
  for (const std::size_t i : {std::size_t{0}, before.size() - 1, before.size() - 2}) {
    ASSERT_TRUE(fs::remove(before[i]));
  }
  Open();
  ExpectAllSmallRows();
  tier_.reset();
  fs::remove_all(directory() + "/catalogue");
  Open();
  EXPECT_EQ(Held(), Everything());
  ExpectAllSmallRows();
}

TEST_F(DiskDamageTest, ARebuildDoesNotBringBackWhatWasForgotten) {
  Fill();
  Open();
  const std::vector<fs::path> all = Segments();
  const std::string kept = root_ + "/kept";
  fs::create_directories(kept);
  for (const fs::path& file : all) fs::copy_file(file, kept + "/" + file.filename().string());
  std::vector<ParkKey> keys = {{DiskConversation(2), 0}, {DiskConversation(2), 1}};
  ASSERT_EQ(tier().Forget(DiskConversation(2), keys), absl::OkStatus());
  tier_.reset();
  // As after a power cut that undid the unlinking, with the catalogue lost as well.
  for (const fs::path& file : all) {
    if (!fs::exists(file)) fs::copy_file(kept + "/" + file.filename().string(), file);
  }
  fs::remove_all(directory() + "/catalogue");
  Open();
  EXPECT_EQ(Held(), (Parks{{1, {0, 1, 2, 3, 4}}, {3, {0, 1}}, {4, {0}}}));
  EXPECT_EQ(tier().secret(), secret_);
}

}  // namespace
}  // namespace parkade::test
