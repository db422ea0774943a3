// Bytes of RocksDB's own files flipped and cut off. It may even end the process, once; the next
// start has everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>

#include "tests/crash/disk_crash_process.h"
#include "tests/crash/disk_crash_worker.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;

TEST(DiskCatalogueDamage, NothingAcknowledgedIsLost) {
  const char* given = std::getenv("PARKADE_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::cerr << "PARKADE_SEED=" << seed << "\n";
  const char* rounds = std::getenv("PARKADE_CRASH_ROUNDS");
  std::mt19937_64 random(seed);
  std::string name = (fs::temp_directory_path() / "parkade-damage-XXXXXX").string();
  const std::string root = mkdtemp(name.data());
  const std::string original = root + "/original";
  const std::string copy = root + "/copy";

  // Two kills, so that there are tables and a log; more where one came right after a removal of
  // nearly everything. Then a clean look, so that rows and files agree.
  constexpr std::size_t kLeastLines = 6;
  constexpr std::uint64_t kMostKills = 20;
  CrashOutcome whole;
  for (std::uint64_t i = 0; i < kMostKills && (i < 2 || whole.lines.size() < kLeastLines); ++i) {
    int lines = 60;
    CrashOrder order;
    order.directory = original;
    order.seed = seed + i;
    RunCrashProcess(order.ToArguments(), [&](const std::string&) { return --lines == 0; });
    whole = RunCrashProcess({"--read", original}, nullptr);
    ASSERT_EQ(whole.exit_code, 0);
  }
  ASSERT_GE(whole.lines.size(), kLeastLines);
  std::sort(whole.lines.begin(), whole.lines.end());

  int aborts = 0;
  for (int round = 0; round < (rounds != nullptr ? std::atoi(rounds) : 30); ++round) {
    SCOPED_TRACE(round);
    fs::remove_all(copy);
    fs::copy(original, copy, fs::copy_options::recursive);
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(copy + "/catalogue")) {
      if (entry.file_size() > 0) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    const fs::path& file = files[random() % files.size()];
    const std::uint64_t size = fs::file_size(file);
    const std::uint64_t at = random() % 3 == 0
                                 ? size - 1 - random() % std::min<std::uint64_t>(size, 64)
                                 : random() % size;
    const bool cut = random() % 3 == 0;
    if (cut) {
      fs::resize_file(file, at);
    } else {
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(static_cast<std::streamoff>(at));
      const char byte = static_cast<char>(stream.get() ^ (1 << random() % 8));
      stream.seekp(static_cast<std::streamoff>(at));
      stream.put(byte);
    }
    CrashOutcome outcome = RunCrashProcess({"--read", copy}, nullptr);
    if (outcome.signal != 0) {
      ++aborts;
      outcome = RunCrashProcess({"--read", copy}, nullptr);
    }
    std::sort(outcome.lines.begin(), outcome.lines.end());
    EXPECT_EQ(outcome.exit_code, 0)
        << file.filename() << (cut ? " cut at " : " flipped at ") << at << " of " << size;
    EXPECT_EQ(outcome.lines, whole.lines)
        << file.filename() << (cut ? " cut at " : " flipped at ") << at << " of " << size;
    if (::testing::Test::HasFailure()) break;
  }
  std::cerr << aborts << " starts ended inside RocksDB\n";
  fs::remove_all(root);
}

}  // namespace
}  // namespace parkade::test
