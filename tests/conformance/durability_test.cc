// What a durable tier keeps over the end of its process, and what it says about damage.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "src/format/checksum.h"
#include "tests/conformance/tier_under_test.h"
#include "tests/support/heap_buffer.h"

namespace parkade::test {
namespace {

constexpr std::uint64_t kPayload = 3 * kMiB;

// Files that can only be payload, whatever a tier calls them.
std::vector<std::filesystem::path> PayloadFiles(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file() && entry.file_size() >= kPayload) files.push_back(entry.path());
  }
  return files;
}

TEST_P(DurableTier, EverythingIsThereAfterReopening) {
  Open();
  const Digest128 secret = tier().secret();
  std::vector<SamplePark> parks;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const SampleParkSpec spec = MixedSpec({Conversation(i), i});
    parks.push_back(MakeSamplePark(spec));
    ASSERT_EQ(Put(parks.back(), spec.layout), absl::OkStatus());
  }
  ASSERT_EQ(tier().Remove({parks[1].key()}), absl::OkStatus());
  std::vector<ConversationAttributes> rows(2);
  rows[0].conversation = Conversation(0);
  rows[0].name = "synced";
  rows[1].conversation = Conversation(2);
  rows[1].name = "at close";
  ASSERT_EQ(tier().WriteAttributes({rows[0]}, true), absl::OkStatus());
  ASSERT_EQ(tier().WriteAttributes({rows[1]}, false), absl::OkStatus());
  const std::uint64_t used = tier().usage().used_bytes;

  Open();
  EXPECT_EQ(tier().usage().read_bytes, 0u);  // opening reads no payload
  EXPECT_LT(tier().usage().written_bytes, kMiB);
  EXPECT_GE(tier().usage().used_bytes + 2 * kMiB, used);
  EXPECT_LE(tier().usage().used_bytes, used + 2 * kMiB);
  EXPECT_EQ(tier().secret(), secret);
  ExpectHeld(parks[0]);
  ExpectNotHeld(parks[1].key());
  ExpectHeld(parks[2]);
  std::vector<std::string> names;
  for (const ConversationAttributes& row : Attributes()) names.push_back(row.name);
  EXPECT_EQ(names, (std::vector<std::string>{"synced", "at close"}));
}

TEST_P(DurableTier, AcknowledgedStoresSurviveAProcessThatJustStops) {
  // The child runs this test again from the start, and stops inside of EXPECT_EXIT.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const SampleParkSpec spec = MixedSpec({Conversation(1), 0});
  const SamplePark park = MakeSamplePark(spec);
  ConversationAttributes row;
  row.conversation = Conversation(1);
  row.name = "synced";
  setenv(kDirectoryVariable, directory().c_str(), 0);
  EXPECT_EXIT(
      {
        auto tier = GetParam().open(directory(), 256 * kMiB);
        const auto digest = SampleIdentityDigest(spec.layout);
        const bool stored = tier->PutIdentity(digest, SampleIdentity(spec.layout)).ok() &&
                            tier->Store(park.record, park.payload).ok() &&
                            tier->WriteAttributes({row}, true).ok();
        _exit(stored ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  unsetenv(kDirectoryVariable);
  Open();
  ExpectHeld(park);
  ASSERT_EQ(Attributes().size(), 1u);
  EXPECT_EQ(Attributes()[0].name, "synced");
}

TEST_P(DurableTier, MissingBytesAreSeenWithoutReadingThem) {
  for (const bool cut : {false, true}) {
    SCOPED_TRACE(cut ? "cut short" : "gone");
    Open();
    const ParkKey key{Conversation(1), cut ? 1u : 0u};
    ASSERT_EQ(PutPlain(key, kPayload), absl::OkStatus());
    ASSERT_TRUE(tier().ReadExtents(key).ok());
    const auto files = PayloadFiles(directory());
    ASSERT_FALSE(files.empty());
    for (const auto& file : files) {
      if (cut) {
        std::filesystem::resize_file(file, kPayload / 2);
      } else {
        std::filesystem::remove(file);
      }
    }
    const std::uint64_t read_before = tier().usage().read_bytes;
    EXPECT_EQ(tier().ReadExtents(key).status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(tier().usage().read_bytes, read_before);
    EXPECT_FALSE(tier().ReadExtent(key, 0, MakeHeapBuffer).ok());
    ASSERT_EQ(tier().Remove({key}), absl::OkStatus());
    ExpectNotHeld(key);
    EXPECT_EQ(PutPlain(key, kPayload), absl::OkStatus());
    ASSERT_EQ(tier().Remove({key}), absl::OkStatus());
  }
}

TEST_P(DurableTier, FlippedBytesNeverPassForGood) {
  Open();
  const SamplePark park = MakePlainPark({Conversation(1), 0}, kPayload);
  ASSERT_EQ(Put(park, PlainLayout(kPayload)), absl::OkStatus());
  const auto files = PayloadFiles(directory());
  ASSERT_EQ(files.size(), 1u);
  std::fstream file(files[0], std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(kPayload / 2);
  const char byte = static_cast<char>(file.get());
  file.seekp(kPayload / 2);
  file.put(static_cast<char>(byte ^ 0x10));
  file.close();
  auto bytes = tier().ReadExtent(park.key(), 0, MakeHeapBuffer);
  if (bytes.ok()) {
    EXPECT_NE(Checksum({(*bytes)->data(), (*bytes)->size()}), park.record.extents[0].checksum);
  } else {
    EXPECT_EQ(bytes.status().code(), absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace parkade::test
