// The whole cache over a disk that fills up, is lost in part, or is one byte too small.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/faulty_files.h"
#include "tests/unit/manager_rig.h"
#include "tiers/disk/space.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMib = 1ull << 20;

// The disk tier alone: 300 tokens are 2.3 MiB.
RigOptions DiskOnly(disk::FileDoor* files) {
  RigModel model = FullModel();
  model.row_bytes = 1024;
  RigOptions options(model);
  options.ram = false;
  options.cache.ram_budget_bytes = 0;
  options.disk = true;
  options.disk_files = files;
  return options;
}

std::vector<Token> Chat(std::uint64_t number) { return Tokens(number, 301); }

void ParkChat(Rig& rig, std::uint64_t number) {
  auto engine = rig.MakeEngine();
  engine->Append(absl::MakeConstSpan(Chat(number)).subspan(0, 300));
  rig.Park(*engine);
}

// The request is answered, whatever the disk does; how much of it came from there.
std::uint32_t AskAgain(Rig& rig, std::uint64_t number) {
  auto engine = rig.MakeEngine();
  return Hit(rig.Run(*engine, Chat(number)).record, Source::kDisk);
}

std::uint64_t Skips(Rig& rig, SkipReason reason) {
  std::uint64_t count = 0;
  for (const auto& skip : rig.sink().events().skips) count += skip.reason == reason ? 1 : 0;
  return count;
}

void TickUntilUp(Rig& rig) {
  // A tick does nothing while the cache's own one is at work.
  for (int i = 0; i < 20000 && rig.durable().usage().state != "up"; ++i) rig.durable().Tick();
  EXPECT_EQ(rig.durable().usage().state, "up");
}

// A disk smaller than the budget fills up; another process takes the space; then gives it back.
TEST(ManagerDisk, Scenario15ADiskSmallerThanTheBudgetFillsUpAndEmptiesAgain) {
  FaultyFiles files(true);
  RigOptions options = DiskOnly(&files);
  Rig rig(options);
  const std::uint64_t size = 96 * kMib;
  files.SetDisk(rig.folder(), size, 0);
  // More than the disk has: the oldest go, and nothing fails.
  for (std::uint64_t chat = 1; chat <= 40; ++chat) ParkChat(rig, chat);
  EXPECT_LE(BlockBytesBelow(rig.folder()), size);
  EXPECT_EQ(rig.durable().usage().state, "up");
  EXPECT_EQ(AskAgain(rig, 40), 300u);
  EXPECT_EQ(AskAgain(rig, 1), 0u);
  EXPECT_EQ(Skips(rig, SkipReason::kNoSpace), 0u);

  // All that is free goes to another process, and so does what is evicted.
  std::vector<std::uint64_t> alive;
  for (std::uint64_t chat = 1; chat <= 40; ++chat) {
    if (AskAgain(rig, chat) == 300) alive.push_back(chat);
  }
  ASSERT_GT(alive.size(), 5u);
  files.SetDisk(rig.folder(), 0, 0);
  FileFault full;
  full.call = FileCall::kAllocate;
  full.error = ENOSPC;
  files.AddFault(full);
  ParkChat(rig, 101);
  ParkChat(rig, 102);
  EXPECT_EQ(rig.durable().usage().state.rfind("read_only: ", 0), 0u) << rig.durable().usage().state;
  EXPECT_EQ(AskAgain(rig, 101), 0u);
  std::uint64_t still = 0;
  for (const std::uint64_t chat : alive) still += AskAgain(rig, chat) == 300 ? 1 : 0;
  EXPECT_GT(still, 0u) << "reads go on";

  files.ClearFaults();
  files.SetDisk(rig.folder(), size, 0);
  TickUntilUp(rig);
  ParkChat(rig, 103);
  EXPECT_EQ(AskAgain(rig, 103), 300u);
  rig.Close();
  rig.Open();
  EXPECT_EQ(AskAgain(rig, 103), 300u);
}

// The budget is exceeded by one byte.
TEST(ManagerDisk, Scenario25OnlyTheShortfallIsEvictedTailsFirst) {
  Rig rig(DiskOnly(nullptr));
  auto older = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 1201);
  for (std::size_t i = 0; i < 4; ++i) {
    older->Append(absl::MakeConstSpan(text).subspan(i * 300, 300));
    rig.Park(*older);
  }
  ParkChat(rig, 2);
  ParkChat(rig, 3);
  const std::uint64_t payload = rig.sink().events().spills.back().bytes;
  const std::uint64_t physical = rig.durable().usage().physical_bytes;
  ASSERT_TRUE(rig.cache()
                  .SetBudget(TierKind::kDisk,
                             physical + disk::EstimatedBytes(payload) + disk::kHeadroomBytes - 1)
                  .ok());
  ASSERT_EQ(rig.durable().Shortfall(payload), 1u);
  rig.sink().Reset();
  ParkChat(rig, 4);
  const auto evictions = rig.sink().events().evictions;
  ASSERT_EQ(evictions.size(), 1u);
  EXPECT_EQ(evictions[0].reason, EvictReason::kBudget);
  EXPECT_EQ(evictions[0].bytes, payload) << "one segment";
  EXPECT_EQ(rig.durable().calls(TierCall::kRemove), 1u);
  // The tail of the oldest conversation, and nothing else.
  auto engine = rig.MakeEngine();
  EXPECT_EQ(Hit(rig.Run(*engine, text).record, Source::kDisk), 900u);
  for (const std::uint64_t chat : {2, 3, 4}) EXPECT_EQ(AskAgain(rig, chat), 300u) << chat;
}

// A full disk, then a restart, then space again; then parts of the catalogue are lost, and a
// segment.
TEST(ManagerDisk, Scenario29AFullDiskARestartAndALostCatalogue) {
  FaultyFiles files(true);
  Rig rig(DiskOnly(&files));
  for (std::uint64_t chat = 1; chat <= 4; ++chat) ParkChat(rig, chat);
  files.SetDisk(rig.folder(), 0, 0);
  ParkChat(rig, 5);
  EXPECT_EQ(Skips(rig, SkipReason::kNoSpace), 1u);
  rig.Close();
  rig.Open();
  EXPECT_EQ(rig.durable().usage().state.rfind("read_only: ", 0), 0u) << rig.durable().usage().state;
  for (std::uint64_t chat = 1; chat <= 4; ++chat) EXPECT_EQ(AskAgain(rig, chat), 300u) << chat;
  files.SetDisk(rig.folder(), 1024 * kMib, 0);
  TickUntilUp(rig);
  ParkChat(rig, 5);

  for (const std::string lost : {"CURRENT", "MANIFEST-", ".log"}) {
    SCOPED_TRACE(lost);
    rig.Close();
    int removed = 0;
    for (const auto& entry : fs::directory_iterator(rig.folder() + "/catalogue")) {
      if (entry.path().filename().string().find(lost) == std::string::npos) continue;
      fs::remove(entry.path());
      ++removed;
    }
    EXPECT_GT(removed, 0);
    rig.Open();
    for (std::uint64_t chat = 1; chat <= 5; ++chat) EXPECT_EQ(AskAgain(rig, chat), 300u) << chat;
  }

  rig.Close();
  std::vector<fs::path> segments;
  for (const auto& entry : fs::recursive_directory_iterator(rig.folder() + "/segments")) {
    if (entry.is_regular_file() && entry.file_size() > kMib) segments.push_back(entry.path());
  }
  ASSERT_EQ(segments.size(), 5u);
  fs::remove(segments[0]);
  rig.Open();
  std::uint32_t hits = 0;
  for (std::uint64_t chat = 1; chat <= 5; ++chat) hits += AskAgain(rig, chat);
  EXPECT_EQ(hits, 4 * 300u);
}

// A budget that was lowered while nobody ran is honoured without a new park.
TEST(ManagerDisk, ALowerBudgetAtARestartIsReachedByItself) {
  Rig rig(DiskOnly(nullptr));
  for (std::uint64_t chat = 1; chat <= 20; ++chat) ParkChat(rig, chat);
  EXPECT_GT(BlockBytesBelow(rig.folder()), 46 * kMib);
  rig.Close();
  rig.options().durable_budget_bytes = 56 * kMib;
  rig.sink().Reset();
  rig.Open();
  ASSERT_TRUE(rig.sink().WaitUntil([](const RecordedEvents& e) { return !e.evictions.empty(); }));
  EXPECT_LE(BlockBytesBelow(rig.folder()), 56 * kMib);
  EXPECT_EQ(AskAgain(rig, 20), 300u);
  EXPECT_EQ(AskAgain(rig, 1), 0u);
}

}  // namespace
}  // namespace parkade::test
