// The power goes: what was not synced may be lost, of every file and folder on its own. At every
// step of the tier, before any change of a file, and again while it is opened; plain and encrypted.
#include <filesystem>

#include "tests/crash/disk_crash_fixture.h"

namespace parkade::test {
namespace {

class DiskPowerCutTest : public DiskCrashTest, public ::testing::WithParamInterface<bool> {
 protected:
  DiskPowerCutTest() {
    power_ = true;
    encrypted_ = GetParam();
  }
  void CutBefore(std::uint64_t change) {
    CrashOrder order;
    order.at_change = change;
    Work(order, nullptr);
  }
};

TEST_P(DiskPowerCutTest, AtEveryStep) { EndAtEveryStep(); }

TEST_P(DiskPowerCutTest, AtRandomMoments) {
  const std::uint64_t rounds = FromEnvironment("PARKADE_CRASH_ROUNDS", 50) / 2;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    CutBefore(1 + random_() % 1500);
    // The next one goes while the directory is opened.
    if (random_() % 3 == 0) CutBefore(1 + random_() % 60);
    ASSERT_NO_FATAL_FAILURE(Look());
    if (HasFailure()) break;
  }
}

// And the power goes again while it is rebuilt.
TEST_P(DiskPowerCutTest, ThenTheCatalogueIsLost) {
  for (int round = 0; round < 5; ++round) CutBefore(200 + random_() % 600);
  std::filesystem::remove_all(directory_ + "/catalogue");
  for (int round = 0; round < 5; ++round) CutBefore(1 + random_() % 80);
  Look();
}

// Of a medium that says it has synced and has not, nothing is believed that does not check: a park
// is what was stored, or a miss with a reason. What is damaged goes with one repair.
TEST_P(DiskPowerCutTest, AfterSyncsThatLied) {
  std::uint64_t lost = 0;
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    CrashOrder order;
    order.at_change = 200 + random_() % 800;
    order.lies = 30;
    Work(order, nullptr);
    const DiskTierOptions options = CrashTierOptions(directory_, encrypted_);
    {
      auto opened = OpenDiskTier(options);
      ASSERT_TRUE(opened.ok()) << opened.status();
      for (const ParkSummary& summary : Summaries(**opened)) {
        const absl::Status whole = CheckCrashPark(**opened, summary);
        EXPECT_TRUE(whole.ok() || absl::IsDataLoss(whole)) << whole;
      }
    }
    auto repaired = VerifyDiskTier(directory_, true, nullptr, options.key);
    ASSERT_TRUE(repaired.ok()) << repaired.status();
    ExpectNoFileWithoutOwner(options);
    auto opened = OpenDiskTier(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    ExpectWholeOrAbsent(**opened, Summaries(**opened), CheckSampleBytes);
    lost += expected_.Lost(Summaries(**opened));
    expected_ = ExpectedParks();
    if (HasFailure()) break;
  }
  EXPECT_GT(lost, 0u) << "the power did not go";
}

INSTANTIATE_TEST_SUITE_P(Directories, DiskPowerCutTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Encrypted" : "Plain"; });

}  // namespace
}  // namespace parkade::test
