// An encrypted directory: nothing of a conversation can be read from its files, and only its key
// opens it.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "src/engine/fake/fake_engine.h"
#include "tests/support/heap_buffer.h"
#include "tests/support/sample_park.h"
#include "tiers/disk/disk_tier.h"

namespace parkade {
namespace {

namespace fs = std::filesystem;

SharedSealKey KeyOf(char byte) { return *SealKey::Parse(std::string(kSealKeyBytes, byte)); }

std::string Content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class SealedDirectory : public ::testing::Test {
 protected:
  SealedDirectory() {
    std::string name = (fs::temp_directory_path() / "parkade-sealed-XXXXXX").string();
    root_ = mkdtemp(name.data());
    directory_ = root_ + "/tier";
  }
  ~SealedDirectory() override {
    tier_.reset();
    fs::remove_all(root_);
  }

  absl::StatusOr<std::unique_ptr<Tier>> TryOpen(SharedSealKey key) {
    DiskTierOptions options;
    options.directory = directory_;
    options.budget_bytes = 1ull << 30;
    options.min_free_bytes = 0;
    options.codec = codec_;
    options.key = std::move(key);
    return OpenDiskTier(options);
  }
  void Open(SharedSealKey key) {
    tier_.reset();
    auto opened = TryOpen(std::move(key));
    ASSERT_TRUE(opened.ok()) << opened.status();
    tier_ = *std::move(opened);
  }
  // A park whose tokens, name and payload are easy to find.
  void Put() {
    const StateLayout layout = MakeFakeLayout(3, 1024, 0, 0, 0, 0);
    test::SampleParkSpec spec;
    spec.key = {{1, 1}, 0};
    spec.layout = layout;
    spec.stages = MakeFakeStages(layout, {2, 1});
    spec.token_count = 100;
    park_ = test::MakeSamplePark(spec);
    park_.record.tokens.assign(park_.record.tokens.size(), 0x41424344);
    ASSERT_TRUE(
        tier_->PutIdentity(test::SampleIdentityDigest(layout), test::SampleIdentity(layout)).ok());
    ASSERT_TRUE(tier_->Store(park_.record, park_.payload).ok());
    ConversationAttributes attributes;
    attributes.conversation = park_.key().conversation;
    attributes.pinned = true;
    attributes.name = "a name nobody should read";
    ASSERT_TRUE(tier_->WriteAttributes({attributes}, true).ok());
  }
  void ExpectHeld() {
    const auto tokens = tier_->ReadTokens(park_.key());
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(*tokens, park_.record.tokens);
    for (std::uint32_t i = 0; i < park_.payload.size(); ++i) {
      const auto bytes = tier_->ReadExtent(park_.key(), i, MakeHeapBuffer);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      ASSERT_EQ((*bytes)->size(), park_.payload[i]->size());
      EXPECT_EQ(std::memcmp((*bytes)->data(), park_.payload[i]->data(), (*bytes)->size()), 0);
    }
    std::string name;
    ASSERT_TRUE(
        tier_->EnumerateAttributes([&](const ConversationAttributes& one) { name = one.name; })
            .ok());
    EXPECT_EQ(name, "a name nobody should read");
  }
  // Every file with its content.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      if (entry.is_regular_file()) files[entry.path().string()] = Content(entry.path());
    }
    return files;
  }
  int FilesThatShow(const std::string& text) const {
    int found = 0;
    for (const auto& [path, content] : Files()) {
      found += content.find(text) != std::string::npos ? 1 : 0;
    }
    return found;
  }
  std::vector<fs::path> Segments() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::recursive_directory_iterator(directory_ + "/segments")) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
    return paths;
  }

  std::string root_, directory_;
  CodecChoice codec_ = CodecChoice::kNone;
  std::unique_ptr<Tier> tier_;
  test::SamplePark park_;
};

TEST_F(SealedDirectory, ShowsNothingOfAConversation) {
  const auto shown = [this] {
    const std::string payload(park_.payload[0]->data() + 1000, 64);
    return std::vector<int>{FilesThatShow("ABCD") + FilesThatShow("DCBA"), FilesThatShow(payload),
                            FilesThatShow("nobody should read")};
  };
  Open(nullptr);
  Put();
  for (const int files : shown()) EXPECT_GT(files, 0) << "this test can't see what is plain";
  tier_.reset();
  fs::remove_all(directory_);
  Open(KeyOf('k'));
  Put();
  ExpectHeld();
  EXPECT_EQ(shown(), (std::vector<int>{0, 0, 0}));
  Open(KeyOf('k'));
  ExpectHeld();
  EXPECT_EQ(shown(), (std::vector<int>{0, 0, 0}));
}

TEST_F(SealedDirectory, PacksBeforeItEncrypts) {
  for (const CodecChoice codec : {CodecChoice::kLz4, CodecChoice::kZstd}) {
    codec_ = codec;
    Open(KeyOf('k'));
    Put();
    Open(KeyOf('k'));
    ExpectHeld();
    tier_.reset();
    fs::remove_all(directory_);
  }
}

TEST_F(SealedDirectory, OpensWithItsOwnKeyOnlyAndIsNotTouchedOtherwise) {
  Open(KeyOf('k'));
  Put();
  tier_.reset();
  const std::string id = ToHex(KeyOf('k')->id());
  const auto before = Files();
  const absl::Status none = TryOpen(nullptr).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(none.message(),
            directory_ + " is encrypted with the key " + id + "; give its key file");
  const absl::Status other = TryOpen(KeyOf('x')).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(other.message(), directory_ + " is encrypted with the key " + id +
                                 "; the key file given holds another one, " +
                                 ToHex(KeyOf('x')->id()));
  EXPECT_EQ(VerifyDiskTier(directory_, true, nullptr, nullptr).status(), none);
  EXPECT_EQ(Files(), before);
  Open(KeyOf('k'));
  ExpectHeld();
}

TEST_F(SealedDirectory, APlainOneIsNotEncryptedLater) {
  Open(nullptr);
  Put();
  tier_.reset();
  const auto before = Files();
  const absl::Status refused = TryOpen(KeyOf('k')).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(), directory_ +
                                   " is not encrypted; a key file goes with a directory "
                                   "of its own");
  EXPECT_EQ(Files(), before);
}

TEST_F(SealedDirectory, IsKnownByItsSegmentsWhenItsLinesAreLost) {
  Open(KeyOf('k'));
  Put();
  tier_.reset();
  for (const char* name : {"KEY", "VERSION"}) fs::remove(directory_ + "/" + name);
  EXPECT_EQ(TryOpen(nullptr).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(TryOpen(KeyOf('x')).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(fs::exists(directory_ + "/KEY"));
  Open(KeyOf('k'));
  ExpectHeld();
  EXPECT_TRUE(fs::exists(directory_ + "/KEY"));
}

TEST_F(SealedDirectory, IsRebuiltFromItsSegments) {
  Open(KeyOf('k'));
  Put();
  tier_.reset();
  fs::remove_all(directory_ + "/catalogue");
  Open(KeyOf('k'));
  ExpectHeld();
}

TEST_F(SealedDirectory, IsVerifiedAndDamageIsFound) {
  Open(KeyOf('k'));
  Put();
  tier_.reset();
  const auto clean = VerifyDiskTier(directory_, false, nullptr, KeyOf('k'));
  ASSERT_TRUE(clean.ok()) << clean.status();
  EXPECT_EQ(clean->findings, std::vector<std::string>{});
  EXPECT_EQ(clean->extents, park_.payload.size());
  for (const fs::path& path : Segments()) {
    if (fs::file_size(path) < 100000) continue;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(path) - 1000));
    file.put('x');
  }
  Open(KeyOf('k'));
  const auto last = static_cast<std::uint32_t>(park_.payload.size() - 1);
  EXPECT_TRUE(absl::IsDataLoss(tier_->ReadExtent(park_.key(), last, MakeHeapBuffer).status()));
  tier_.reset();
  const auto damaged = VerifyDiskTier(directory_, false, nullptr, KeyOf('k'));
  ASSERT_TRUE(damaged.ok()) << damaged.status();
  EXPECT_EQ(damaged->damaged_segments, 1u);
}

}  // namespace
}  // namespace parkade
