// Two disk tiers in folders of their own, conversations to move from one to the other, and files.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/cli/container_file.h"
#include "src/cli/export.h"
#include "src/cli/import.h"
#include "src/engine/fake/fake_engine.h"
#include "tests/support/faulty_tier.h"
#include "tests/support/sample_park.h"
#include "tests/unit/disk_fixture.h"
#include "tiers/disk/disk_tier.h"

namespace parkade::test {

class TransferTest : public ::testing::Test {
 protected:
  // The `skip`th call from now on, and all after it, go wrong.
  static Fault Failing(TierCall call, std::uint64_t skip = 0,
                       Fault::Kind kind = Fault::Kind::kFail) {
    Fault fault;
    fault.call = call;
    fault.kind = kind;
    fault.skip = skip;
    fault.at = 17;
    return fault;
  }

  static constexpr std::int64_t kNow = 1'800'000'000'000;

  TransferTest() {
    std::string name = DiskTestRoot() + "/parkade-cli-XXXXXX";
    root_ = mkdtemp(name.data());
    source_ = Open("source");
    target_ = Open("target");
  }
  ~TransferTest() override {
    source_.reset();
    target_.reset();
    std::filesystem::remove_all(root_);
  }

  std::unique_ptr<FaultyTier> Open(const std::string& name, std::uint64_t budget_bytes = 1u << 30) {
    DiskTierOptions options;
    options.directory = root_ + "/" + name;
    options.budget_bytes = budget_bytes;
    options.min_free_bytes = 0;
    auto opened = OpenDiskTier(options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? std::make_unique<FaultyTier>(*std::move(opened)) : nullptr;
  }

  static ConversationId Id(std::uint64_t number) { return {0x7777 + number, number}; }
  std::string File() const { return root_ + "/files/chat.parkade"; }

  SampleParkSpec Spec(std::uint64_t number, std::uint32_t park, std::uint32_t first,
                      std::uint32_t count) const {
    SampleParkSpec spec;
    spec.key = {Id(number), park};
    spec.layout = layout_;
    spec.stages = MakeFakeStages(layout_, {2, 3});
    spec.first_token = first;
    spec.token_count = count;
    return spec;
  }
  SamplePark Put(const SampleParkSpec& spec) {
    const SamplePark park = MakeSamplePark(spec);
    EXPECT_EQ(source_->PutIdentity(park.record.summary.identity, SampleIdentity(layout_)),
              absl::OkStatus());
    EXPECT_EQ(source_->Store(park.record, park.payload), absl::OkStatus());
    return park;
  }
  // 300 tokens in three parks: all groups, window rows behind their tokens, a park without tokens.
  std::vector<SamplePark> PutChat(std::uint64_t number) {
    std::vector<SamplePark> parks;
    for (std::uint32_t i = 0; i < 3; ++i) {
      SampleParkSpec spec = Spec(number, i, 100 * i, 100);
      spec.window_rows = {{100 * i + 50, 100 * i + 100}};
      spec.checkpoints = {100 * i + 40, 100 * i + 100};
      parks.push_back(Put(spec));
    }
    SampleParkSpec spec = Spec(number, 5, 300, 0);
    spec.window_rows = {{210, 250}};
    parks.push_back(Put(spec));
    return parks;
  }

  void Name(Tier& tier, std::uint64_t number, const std::string& name, std::uint32_t tokens,
            bool pinned = true) {
    ConversationAttributes attributes;
    attributes.conversation = Id(number);
    attributes.name = name;
    attributes.name_tokens = tokens;
    attributes.pinned = pinned;
    attributes.hits = 5;
    EXPECT_EQ(tier.WriteAttributes(absl::MakeConstSpan(&attributes, 1), true), absl::OkStatus());
  }

  absl::StatusOr<ExportReport> Export(const std::string& what, bool replace = false,
                                      const WorkWatch& watch = nullptr) {
    std::filesystem::create_directories(root_ + "/files");
    return ExportConversation(*source_, {what, File(), replace}, watch);
  }
  absl::StatusOr<ExportReport> Export(std::uint64_t number) { return Export(ToHex(Id(number))); }

  absl::StatusOr<CheckedContainer> Check() {
    absl::StatusOr<ContainerFile> file = ContainerFile::Open(File());
    if (!file.ok()) return file.status();
    return CheckContainer(*file, nullptr);
  }
  absl::StatusOr<ImportReport> Import(const WorkWatch& watch = nullptr) {
    absl::StatusOr<ContainerFile> file = ContainerFile::Open(File());
    if (!file.ok()) return file.status();
    const absl::StatusOr<CheckedContainer> checked = CheckContainer(*file, nullptr);
    if (!checked.ok()) return checked.status();
    return ImportConversation(*target_, *file, *checked, kNow, watch);
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + "/files")) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  std::string Bytes() const {
    std::ifstream stream(File(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  void Write(const std::string& bytes) const {
    std::ofstream(File(), std::ios::binary | std::ios::trunc) << bytes;
  }

  static std::vector<ParkSummary> Summaries(Tier& tier) {
    std::vector<ParkSummary> found;
    EXPECT_EQ(tier.Enumerate([&](const ParkSummary& one) { found.push_back(one); }),
              absl::OkStatus());
    return found;
  }
  static std::vector<ConversationAttributes> Attributes(Tier& tier) {
    std::vector<ConversationAttributes> found;
    EXPECT_EQ(
        tier.EnumerateAttributes([&](const ConversationAttributes& one) { found.push_back(one); }),
        absl::OkStatus());
    return found;
  }

  // Full and window planes in two layers each and one of states.
  StateLayout layout_ = MakeFakeLayout(4, 64, 2, 40, 1, 3000);
  std::string root_;
  std::unique_ptr<FaultyTier> source_;
  std::unique_ptr<FaultyTier> target_;
};

}  // namespace parkade::test
