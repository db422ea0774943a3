// kill -9 at every step and at random moments. What was acknowledged is there, every park is whole,
// no file is without an owner, and the budget holds.
#include <filesystem>

#include "tests/crash/disk_crash_fixture.h"

namespace parkade::test {
namespace {

TEST_F(DiskCrashTest, AtEveryStep) { EndAtEveryStep(); }

TEST_F(DiskCrashTest, AtRandomMoments) {
  const std::uint64_t rounds = FromEnvironment("PARKADE_CRASH_ROUNDS", 50);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    WorkForLines(1 + random_() % 120);
    ASSERT_NO_FATAL_FAILURE(Look());
    if (HasFailure()) break;
  }
}

// Killed again and again without a look in between, and the catalogue lost at the end.
TEST_F(DiskCrashTest, ThenTheCatalogueIsLost) {
  for (int round = 0; round < 5; ++round) WorkForLines(20 + random_() % 60);
  std::filesystem::remove_all(directory_ + "/catalogue");
  for (const char* point : kRecoveryPoints) {
    if (std::string(point) != "recovery.deleted") WorkUntil(point, 1);
  }
  Look();
}

}  // namespace
}  // namespace parkade::test
