#include <gtest/gtest.h>

#include <cstring>

#include "tests/crash/disk_crash_worker.h"

int main(int argc, char** argv) {
  if (argc == 2 + parkade::test::CrashOrder::kArguments && std::strcmp(argv[1], "--work") == 0) {
    return parkade::test::RunCrashWorker(parkade::test::CrashOrder::FromArguments(argv + 2));
  }
  if (argc == 3 && std::strcmp(argv[1], "--read") == 0) {
    return parkade::test::RunCrashReader(argv[2]);
  }
  if (argc == 3 && std::strcmp(argv[1], "--verify") == 0) {
    return parkade::test::RunCrashVerifier(argv[2], false);
  }
  if (argc == 3 && std::strcmp(argv[1], "--repair") == 0) {
    return parkade::test::RunCrashVerifier(argv[2], true);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
