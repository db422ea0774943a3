// A disk tier over a folder of its own, conversations to put into it, and damage to do to it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/engine/fake/fake_engine.h"
#include "src/format/checksum.h"
#include "tests/support/heap_buffer.h"
#include "tests/support/sample_park.h"
#include "tests/support/test_root.h"
#include "tiers/disk/disk_tier.h"

namespace parkade::test {

inline constexpr std::uint64_t kDiskMiB = 1ull << 20;

inline ConversationId DiskConversation(std::uint64_t number) {
  return {0x1111111111111111ull * (number + 1), number};
}

class DiskTierTest : public ::testing::Test {
 protected:
  DiskTierTest() {
    std::string name = DiskTestRoot() + "/parkade-disk-XXXXXX";
    root_ = mkdtemp(name.data());
    options_.directory = root_ + "/tier";
    options_.budget_bytes = 512 * kDiskMiB;
    options_.min_free_bytes = 0;
  }
  ~DiskTierTest() override {
    tier_.reset();
    std::filesystem::remove_all(root_);
  }

  void Open() {
    tier_.reset();
    auto opened = OpenDiskTier(options_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    tier_ = *std::move(opened);
  }
  Tier& tier() { return *tier_; }
  const std::string& directory() const { return options_.directory; }

  static StateLayout Layout() { return MakeFakeLayout(4, 64, 2, 40, 1, 3000); }

  // Park number `park` of a conversation: 100 tokens, window rows and a checkpoint at its end.
  static SamplePark Park(const ConversationId& id, std::uint32_t park,
                         const ConversationId& parent = {}, std::uint32_t parent_tokens = 0) {
    SampleParkSpec spec;
    spec.key = {id, park};
    spec.layout = Layout();
    spec.stages = MakeFakeStages(spec.layout, {2, 3});
    spec.first_token = parent_tokens + 100 * park;
    spec.token_count = 100;
    spec.window_rows = {{spec.first_token + 50, spec.first_token + 100}};
    spec.checkpoints = {spec.first_token + 100};
    spec.parent = parent;
    spec.parent_tokens = parent_tokens;
    return MakeSamplePark(spec);
  }
  absl::Status Put(const SamplePark& park) {
    const absl::Status status =
        tier().PutIdentity(SampleIdentityDigest(Layout()), SampleIdentity(Layout()));
    return status.ok() ? tier().Store(park.record, park.payload) : status;
  }
  void PutConversation(const ConversationId& id, std::uint32_t parks,
                       const ConversationId& parent = {}, std::uint32_t parent_tokens = 0) {
    for (std::uint32_t i = 0; i < parks; ++i) {
      ASSERT_EQ(Put(Park(id, i, parent, parent_tokens)), absl::OkStatus());
    }
  }

  // Parks held, by conversation; every one is read and checked whole.
  std::map<std::uint64_t, std::vector<std::uint32_t>> Held() {
    std::vector<ParkSummary> summaries;
    EXPECT_EQ(tier().Enumerate([&](const ParkSummary& one) { summaries.push_back(one); }),
              absl::OkStatus());
    std::map<std::uint64_t, std::vector<std::uint32_t>> held;
    for (const ParkSummary& summary : summaries) {
      held[summary.key.conversation.low].push_back(summary.key.park);
      const absl::Status whole = CheckWhole(summary);
      EXPECT_EQ(whole, absl::OkStatus()) << summary.key.conversation.low << "/" << summary.key.park;
    }
    return held;
  }
  absl::Status CheckWhole(const ParkSummary& summary) {
    auto tokens = tier().ReadTokens(summary.key);
    if (!tokens.ok()) return tokens.status();
    if (tokens->size() != summary.token_count) return absl::InternalError("tokens");
    auto extents = tier().ReadExtents(summary.key);
    if (!extents.ok()) return extents.status();
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < extents->size(); ++i) {
      auto read = tier().ReadExtent(summary.key, i, MakeHeapBuffer);
      if (!read.ok()) return read.status();
      bytes += (*read)->size();
      const absl::Span<const char> view((*read)->data(), (*read)->size());
      if (Checksum(view) != (*extents)[i].checksum) return absl::DataLossError("checksum");
      if (absl::Status s = CheckSampleBytes(summary.key, i, view); !s.ok()) return s;
    }
    return bytes == summary.payload_bytes ? absl::OkStatus() : absl::InternalError("bytes");
  }

  std::vector<std::filesystem::path> Files(const std::string& below) const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(directory() + "/" + below)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  // Ascending by number, so in the order in which they were written.
  std::vector<std::filesystem::path> Segments() const {
    std::vector<std::filesystem::path> files = Files("segments");
    std::sort(files.begin(), files.end(),
              [](const auto& a, const auto& b) { return a.filename() < b.filename(); });
    return files;
  }
  static void FlipByte(const std::filesystem::path& file, std::uint64_t at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    char byte = 0;
    stream.get(byte);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(static_cast<char>(byte ^ 0x40));
  }
  static std::string ReadFile(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  std::string root_;
  DiskTierOptions options_;
  std::unique_ptr<Tier> tier_;
};

}  // namespace parkade::test
