// The budget is what `du` says, at every moment; a disk that is full, read-only or gone.
#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>

#include "tests/support/faulty_files.h"
#include "tests/unit/disk_fixture.h"
#include "tiers/disk/space.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;
using HeldParks = std::map<std::uint64_t, std::vector<std::uint32_t>>;

constexpr std::uint64_t kPayload = 2 * kDiskMiB;

// Looks at a folder again and again until it goes.
class DuSampler {
 public:
  explicit DuSampler(const std::string& folder)
      : thread_([this, folder] {
          while (!stop_) {
            most_ = std::max(most_.load(), BlockBytesBelow(folder));
            ++looks_;
          }
        }) {}
  ~DuSampler() { Stop(); }
  // The most it saw.
  std::uint64_t Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    EXPECT_GT(looks_, 10u);
    return most_;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> most_{0};
  std::atomic<std::uint64_t> looks_{0};
  std::thread thread_;
};

class DiskLimitsTest : public DiskTierTest {
 protected:
  DiskLimitsTest() { options_.files = &files_; }
  ~DiskLimitsTest() override { tier_.reset(); }

  absl::Status PutPlain(const ParkKey& key, std::uint64_t bytes = kPayload) {
    const SamplePark plain = MakePlainPark(key, bytes);
    const StateLayout layout = PlainLayout(bytes);
    const absl::Status status =
        tier().PutIdentity(SampleIdentityDigest(layout), SampleIdentity(layout));
    return status.ok() ? tier().Store(plain.record, plain.payload) : status;
  }
  // Conversations of one park, oldest first out; every fifth goes by Forget, every third has a
  // name.
  void Churn(std::uint64_t first, std::uint64_t count) {
    std::deque<std::uint64_t> held;
    for (std::uint64_t id = first; id < first + count; ++id) {
      while (tier().Shortfall(kPayload) > 0 && !held.empty()) {
        const ConversationId oldest = DiskConversation(held.front());
        const ParkKey key = {oldest, 0};
        ASSERT_EQ(held.front() % 5 == 0 ? tier().Forget(oldest, {key}) : tier().Remove({key}),
                  absl::OkStatus());
        held.pop_front();
      }
      const absl::Status stored = PutPlain({DiskConversation(id), 0});
      if (absl::IsResourceExhausted(stored)) continue;  // the other thread was quicker
      ASSERT_EQ(stored, absl::OkStatus());
      held.push_back(id);
      if (id % 3 != 0) continue;
      ConversationAttributes name;
      name.conversation = DiskConversation(id);
      name.name = std::to_string(id);
      ASSERT_EQ(tier().WriteAttributes({name}, true), absl::OkStatus());
    }
  }
  std::vector<ParkKey> Keys() {
    std::vector<ParkKey> keys;
    EXPECT_EQ(tier().Enumerate([&](const ParkSummary& one) { keys.push_back(one.key); }),
              absl::OkStatus());
    return keys;
  }
  bool ReadOnly(const std::string& why) {
    const std::string state = tier().usage().state;
    return state.rfind("read_only: ", 0) == 0 && state.find(why) != std::string::npos;
  }
  void Ticks(int count) {
    for (int i = 0; i < count; ++i) tier().Tick();
  }

  FaultyFiles files_{true};
};

TEST_F(DiskLimitsTest, DuIsWithinTheBudgetWhileTwoThreadsWriteAndEvict) {
  options_.files = nullptr;  // RocksDB allocates ahead as it does
  options_.budget_bytes = 80 * kDiskMiB;
  Open();
  DuSampler du(directory());
  std::thread other([this] { Churn(100000, 120); });
  Churn(1, 120);
  other.join();
  EXPECT_LE(du.Stop(), options_.budget_bytes);
  EXPECT_GT(BlockBytesBelow(directory()), 20 * kDiskMiB);
}

TEST_F(DiskLimitsTest, DuIsWithinTheBudgetWhenOpenedAgainFull) {
  options_.files = nullptr;
  options_.budget_bytes = 80 * kDiskMiB;
  Open();
  std::uint64_t next = 1;
  for (int round = 0; round < 4; ++round) {
    // Right up to where nothing more is let in.
    while (tier().Shortfall(kPayload) == 0) {
      ASSERT_EQ(PutPlain({DiskConversation(next++), 0}), absl::OkStatus());
    }
    DuSampler du(directory());
    Open();
    EXPECT_EQ(tier().usage().state, "up");
    EXPECT_GT(tier().usage().physical_bytes + disk::kHeadroomBytes,
              options_.budget_bytes - options_.budget_bytes / 20);
    const std::vector<ParkKey> keys = Keys();
    for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(tier().Remove({keys[i]}), absl::OkStatus());
    EXPECT_LE(du.Stop(), options_.budget_bytes);
  }
}

TEST_F(DiskLimitsTest, ALowerBudgetIsReachedByEvictingOnly) {
  options_.files = nullptr;
  options_.budget_bytes = 120 * kDiskMiB;
  Open();
  for (std::uint64_t id = 1; tier().Shortfall(kPayload) == 0; ++id) {
    ASSERT_EQ(PutPlain({DiskConversation(id), 0}), absl::OkStatus());
  }
  const std::uint64_t before = BlockBytesBelow(directory());
  options_.budget_bytes = 64 * kDiskMiB;
  DuSampler du(directory());
  Open();
  const std::uint64_t opened = tier().usage().physical_bytes;
  EXPECT_GT(opened, options_.budget_bytes);
  EXPECT_EQ(PutPlain({DiskConversation(999), 0}).code(), absl::StatusCode::kResourceExhausted);
  std::uint64_t freed = 0;
  for (const ParkKey& key : Keys()) {
    const std::uint64_t shortfall = tier().Shortfall(0);
    if (shortfall == 0) break;
    EXPECT_LE(shortfall, opened - freed - options_.budget_bytes + disk::kHeadroomBytes +
                             disk::EstimatedBytes(0));
    const std::uint64_t held = tier().usage().physical_bytes;
    ASSERT_EQ(tier().Remove({key}), absl::OkStatus());
    freed += held - tier().usage().physical_bytes;
  }
  EXPECT_LE(BlockBytesBelow(directory()), options_.budget_bytes);
  // While opening, RocksDB's log and tables may stand side by side.
  EXPECT_LE(du.Stop(), before + disk::kHeadroomBytes);
}

TEST_F(DiskLimitsTest, FreeSpaceStaysAboveTheFloor) {
  options_.min_free_bytes = 40 * kDiskMiB;
  files_.SetDisk(directory(), 160 * kDiskMiB, 0);
  Open();
  std::uint64_t id = 1;
  for (; tier().Shortfall(kPayload) == 0; ++id) {
    ASSERT_EQ(PutPlain({DiskConversation(id), 0}), absl::OkStatus());
    EXPECT_GE(tier().usage().free_bytes, options_.min_free_bytes);
  }
  EXPECT_GT(id, 20u);
  EXPECT_EQ(tier().usage().state, "up");
  // Another process takes some; what is over the floor has to be evicted.
  files_.SetDisk(directory(), 160 * kDiskMiB, 40 * kDiskMiB);
  EXPECT_TRUE(ReadOnly("floor 40 MiB")) << tier().usage().state;
  EXPECT_LT(tier().usage().budget_bytes, tier().usage().physical_bytes);
  for (const ParkKey& key : Keys()) {
    if (tier().Shortfall(kPayload) == 0) break;
    ASSERT_EQ(tier().Remove({key}), absl::OkStatus());
  }
  EXPECT_EQ(tier().usage().state, "up");
  EXPECT_EQ(PutPlain({DiskConversation(id), 0}), absl::OkStatus());
  EXPECT_GE(tier().usage().free_bytes, options_.min_free_bytes);
}

TEST_F(DiskLimitsTest, AReadOnlyFileSystemIsReadAndWritingComesBack) {
  Open();
  PutConversation(DiskConversation(1), 3);
  files_.FailChanges(EROFS);
  EXPECT_FALSE(Put(Park(DiskConversation(1), 3)).ok());
  EXPECT_TRUE(ReadOnly("Read-only file system")) << tier().usage().state;
  for (int i = 0; i < 12; ++i) {
    tier().Tick();
    EXPECT_EQ(Held(), (HeldParks{{1, {0, 1, 2}}}));
  }
  EXPECT_FALSE(tier().Remove({{DiskConversation(1), 2}}).ok());
  EXPECT_EQ(Held(), (HeldParks{{1, {0, 1, 2}}}));
  files_.ClearFaults();
  Ticks(6);
  EXPECT_EQ(tier().usage().state, "up");
  EXPECT_EQ(Put(Park(DiskConversation(1), 3)), absl::OkStatus());
  Open();
  EXPECT_EQ(Held(), (HeldParks{{1, {0, 1, 2, 3}}}));
}

TEST_F(DiskLimitsTest, ADirectoryRemovedAtRunTimeIsMadeAnew) {
  Open();
  PutConversation(DiskConversation(1), 3);
  const Digest128 secret = tier().secret();
  fs::remove_all(directory());
  EXPECT_FALSE(Put(Park(DiskConversation(1), 3)).ok());
  EXPECT_TRUE(ReadOnly("was removed")) << tier().usage().state;
  // Nothing of it is given as if it were there.
  EXPECT_FALSE(tier().ReadExtents({DiskConversation(1), 0}).ok());
  Ticks(6);
  EXPECT_EQ(tier().usage().state, "up");
  EXPECT_EQ(Held(), HeldParks{});
  EXPECT_EQ(tier().secret(), secret);
  PutConversation(DiskConversation(2), 2);
  EXPECT_EQ(Held(), (HeldParks{{2, {0, 1}}}));
  Open();
  EXPECT_EQ(Held(), (HeldParks{{2, {0, 1}}}));
  EXPECT_EQ(tier().secret(), secret);
}

TEST_F(DiskLimitsTest, ADirectoryThatSomethingElseReplacedIsWaitedFor) {
  Open();
  PutConversation(DiskConversation(1), 3);
  const std::string away = root_ + "/away";
  fs::rename(directory(), away);
  fs::create_directory(directory());
  std::ofstream(directory() + "/letter.txt") << "dear";
  Ticks(12);
  EXPECT_TRUE(ReadOnly("was replaced")) << tier().usage().state;
  EXPECT_FALSE(Put(Park(DiskConversation(1), 3)).ok());
  EXPECT_EQ(fs::file_size(directory() + "/letter.txt"), 4u);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory()), fs::directory_iterator()), 1);
  fs::remove_all(directory());
  fs::rename(away, directory());
  Ticks(6);
  EXPECT_EQ(tier().usage().state, "up");
  EXPECT_EQ(Put(Park(DiskConversation(1), 3)), absl::OkStatus());
  EXPECT_EQ(Held(), (HeldParks{{1, {0, 1, 2, 3}}}));
}

TEST_F(DiskLimitsTest, AnotherCacheInItsPlaceIsNotWrittenTo) {
  Open();
  PutConversation(DiskConversation(2), 2);
  tier_.reset();
  const std::string other = root_ + "/other";
  fs::rename(directory(), other);
  Open();
  PutConversation(DiskConversation(1), 1);
  fs::remove_all(directory());
  fs::rename(other, directory());
  Ticks(12);
  EXPECT_NE(tier().usage().state.find("holds another cache"), std::string::npos)
      << tier().usage().state;
  EXPECT_FALSE(Put(Park(DiskConversation(1), 1)).ok());
  tier_.reset();
  Open();
  EXPECT_EQ(Held(), (HeldParks{{2, {0, 1}}}));
}

}  // namespace
}  // namespace parkade::test
