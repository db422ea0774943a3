#include "tests/conformance/tier_under_test.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>

#include "src/engine/fake/fake_engine.h"
#include "src/format/checksum.h"
#include "tests/support/heap_buffer.h"
#include "tiers/ram/ram_tier.h"
#ifdef PARKADE_HAS_DISK_TIER
#include "tiers/disk/disk_tier.h"
#endif
#ifdef PARKADE_HAS_REMOTE_TIER
#include "tests/conformance/remote_under_test.h"
#endif

namespace parkade::test {
namespace {

TierUnderTest RamUnderTest() {
  TierUnderTest tier;
  tier.name = "Ram";
  tier.kind = TierKind::kRam;
  tier.open = [](const std::string&, std::uint64_t budget_bytes) {
    RamTierOptions options;
    options.budget_bytes = budget_bytes;
    return MakeRamTier(options);
  };
  return tier;
}

#ifdef PARKADE_HAS_DISK_TIER
TierUnderTest DiskUnderTest(const std::string& name, SharedSealKey key) {
  TierUnderTest tier;
  tier.name = name;
  tier.kind = TierKind::kDisk;
  tier.durable = true;
  tier.encrypted = key != nullptr;
  tier.race_steps = 40;
  tier.open = [key](const std::string& directory,
                    std::uint64_t budget_bytes) -> std::unique_ptr<Tier> {
    DiskTierOptions options;
    options.key = key;
    options.directory = directory;
    options.budget_bytes = budget_bytes;
    options.min_free_bytes = 0;
    auto opened = OpenDiskTier(options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  };
  return tier;
}
#endif

std::vector<TierUnderTest> TiersThat(bool (*are)(const TierUnderTest&)) {
  std::vector<TierUnderTest> tiers = AllTiers();
  std::erase_if(tiers, [are](const TierUnderTest& tier) { return !are(tier); });
  return tiers;
}

}  // namespace

std::vector<TierUnderTest> AllTiers() {
  std::vector<TierUnderTest> tiers{RamUnderTest()};
#ifdef PARKADE_HAS_DISK_TIER
  tiers.push_back(DiskUnderTest("Disk", nullptr));
  tiers.push_back(DiskUnderTest("DiskEncrypted", *SealKey::Parse(std::string(32, 'k'))));
#endif
#ifdef PARKADE_HAS_REMOTE_TIER
  for (TierUnderTest& tier : RemoteTiers()) tiers.push_back(std::move(tier));
#endif
  const std::size_t bare = tiers.size();
  for (std::size_t i = 0; i < bare; ++i) {
    TierUnderTest decorated = tiers[i];
    decorated.name += "Decorated";
    decorated.decorated = true;
    tiers.push_back(std::move(decorated));
  }
#ifdef PARKADE_HAS_REMOTE_TIER
  // Begins three servers for every test: once is enough.
  tiers.push_back(RemoteClusterUnderTest());
#endif
  return tiers;
}

std::vector<TierUnderTest> DurableTiers() {
  return TiersThat([](const TierUnderTest& tier) { return tier.durable; });
}

std::vector<TierUnderTest> BudgetTiers() {
  return TiersThat([](const TierUnderTest& tier) { return tier.has_budget; });
}

std::vector<TierUnderTest> BoundlessTiers() {
  return TiersThat([](const TierUnderTest& tier) { return !tier.has_budget; });
}

std::vector<TierUnderTest> ListingTiers() {
  return TiersThat([](const TierUnderTest& tier) { return tier.lists; });
}

std::vector<TierUnderTest> DecoratedTiers() {
  return TiersThat([](const TierUnderTest& tier) { return tier.decorated; });
}

TierConformance::TierConformance() {
  if (const char* given = std::getenv(kDirectoryVariable)) {
    directory_ = given;
    return;
  }
  std::string name =
      (std::filesystem::temp_directory_path() / "parkade-conformance-XXXXXX").string();
  directory_ = mkdtemp(name.data());
}

TierConformance::~TierConformance() {
  Close();
  std::filesystem::remove_all(directory_);
}

void TierConformance::SetUp() {
  const std::string missing = GetParam().missing == nullptr ? "" : GetParam().missing();
  if (!missing.empty()) GTEST_SKIP() << missing;
}

void TierConformance::Open(std::uint64_t budget_bytes) {
  Close();
  tier_ = GetParam().open(directory_, budget_bytes);
  // Every test starts here; a null tier would only crash further on.
  if (tier_ == nullptr) std::abort();
  if (GetParam().decorated) tier_ = std::make_unique<FaultyTier>(std::move(tier_));
}

absl::Status TierConformance::Put(const SamplePark& park, const StateLayout& layout) {
  const absl::Status status =
      tier().PutIdentity(SampleIdentityDigest(layout), SampleIdentity(layout));
  return status.ok() ? tier().Store(park.record, park.payload) : status;
}

absl::Status TierConformance::PutPlain(const ParkKey& key, std::uint64_t payload_bytes,
                                       std::uint64_t variant) {
  return Put(MakePlainPark(key, payload_bytes, variant), PlainLayout(payload_bytes));
}

std::vector<ParkSummary> TierConformance::Summaries() {
  std::vector<ParkSummary> summaries;
  EXPECT_EQ(tier().Enumerate([&](const ParkSummary& one) { summaries.push_back(one); }),
            absl::OkStatus());
  return summaries;
}

std::vector<ConversationAttributes> TierConformance::Attributes() {
  std::vector<ConversationAttributes> rows;
  EXPECT_EQ(
      tier().EnumerateAttributes([&](const ConversationAttributes& one) { rows.push_back(one); }),
      absl::OkStatus());
  return rows;
}

void TierConformance::ExpectHeld(const SamplePark& park) {
  SCOPED_TRACE(testing::Message() << ToHex(park.key().conversation) << " park " << park.key().park);
  auto tokens = tier().ReadTokens(park.key());
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*tokens, park.record.tokens);
  auto extents = tier().ReadExtents(park.key());
  ASSERT_TRUE(extents.ok()) << extents.status();
  ASSERT_EQ(*extents, park.record.extents);
  for (std::uint32_t i = 0; i < extents->size(); ++i) {
    auto bytes = tier().ReadExtent(park.key(), i, MakeHeapBuffer);
    ASSERT_TRUE(bytes.ok()) << "extent " << i << ": " << bytes.status();
    EXPECT_EQ(Checksum({(*bytes)->data(), (*bytes)->size()}), (*extents)[i].checksum);
    EXPECT_TRUE(ViewOf(*bytes) == ViewOf(park.payload[i])) << "extent " << i;
  }
  int listed = 0;
  for (const ParkSummary& summary : Summaries()) {
    if (summary.key != park.key()) continue;
    ++listed;
    EXPECT_EQ(summary, park.record.summary);
  }
  EXPECT_EQ(listed, 1);
}

void TierConformance::ExpectNotHeld(const ParkKey& key) {
  EXPECT_EQ(tier().ReadTokens(key).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(tier().ReadExtents(key).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(tier().ReadExtent(key, 0, MakeHeapBuffer).status().code(), absl::StatusCode::kNotFound);
  for (const ParkSummary& summary : Summaries()) EXPECT_NE(summary.key, key);
}

std::uint64_t RaceSeed() {
  const char* given = std::getenv("PARKADE_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "PARKADE_SEED=" << seed << "\n";
  return seed;
}

StateLayout MixedLayout() { return MakeFakeLayout(6, 96, 3, 40, 3, kExtentBytes / 2 + 1000); }

SampleParkSpec MixedSpec(const ParkKey& key) {
  SampleParkSpec spec;
  spec.key = key;
  spec.layout = MixedLayout();
  spec.stages = MakeFakeStages(spec.layout, {4, 4, 1});
  spec.first_token = 100;
  spec.token_count = 600;
  spec.window_rows = {{300, 341}, {650, 700}};
  spec.checkpoints = {341, 700};
  return spec;
}

std::string NameOf(const ::testing::TestParamInfo<TierUnderTest>& tested) {
  return tested.param.name;
}

INSTANTIATE_TEST_SUITE_P(Tiers, TierConformance, ::testing::ValuesIn(AllTiers()), NameOf);
INSTANTIATE_TEST_SUITE_P(Tiers, BudgetTier, ::testing::ValuesIn(BudgetTiers()), NameOf);
INSTANTIATE_TEST_SUITE_P(Tiers, ListingTier, ::testing::ValuesIn(ListingTiers()), NameOf);
// A build without a remote tier has none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BoundlessTier);
INSTANTIATE_TEST_SUITE_P(Tiers, BoundlessTier, ::testing::ValuesIn(BoundlessTiers()), NameOf);
// A build without a disk tier has none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DurableTier);
INSTANTIATE_TEST_SUITE_P(Tiers, DurableTier, ::testing::ValuesIn(DurableTiers()), NameOf);

}  // namespace parkade::test
