// Physical bytes, budget and floor: the arithmetic, and the tier against a real folder.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/disk_fixture.h"
#include "tiers/disk/space.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;
using disk::EstimatedBytes;
using disk::kHeadroomBytes;
using disk::SpaceLedger;

constexpr std::uint64_t kNever = UINT64_MAX;
constexpr std::uint64_t kPlenty = 1ull << 40;

TEST(DiskSpace, BudgetIsTheSmallerOfWhatWasSetAndWhatTheFloorLeaves) {
  SpaceLedger ledger(1000);
  ledger.SetBudget(5000);
  ledger.AddSegment(2000);
  ledger.SetDatabase(500);
  EXPECT_EQ(ledger.Look(kPlenty).physical_bytes, 2500u);
  EXPECT_EQ(ledger.Look(kPlenty).effective_budget_bytes, 5000u);
  EXPECT_FALSE(ledger.Look(kPlenty).floor_limits_budget);
  EXPECT_EQ(ledger.Look(3000).effective_budget_bytes, 4500u);
  EXPECT_TRUE(ledger.Look(3000).floor_limits_budget);
  EXPECT_FALSE(ledger.Look(1000).below_floor);
  EXPECT_EQ(ledger.Look(1000).effective_budget_bytes, 2500u);
  EXPECT_TRUE(ledger.Look(999).below_floor);
  EXPECT_EQ(SpaceLedger(1000).Look(400).effective_budget_bytes, 0u);
  ledger.SetBudget(0);
  EXPECT_EQ(ledger.Look(kPlenty).effective_budget_bytes, 0u);
}

TEST(DiskSpace, AutoBudgetIsAFifthOfFreePlusWhatIsHeldAndAtMost64GiB) {
  SpaceLedger ledger(0);
  ledger.AddSegment(7 * kDiskMiB);
  ledger.SetAutoBudget(100 * kDiskMiB);
  EXPECT_EQ(ledger.Look(kPlenty).effective_budget_bytes, 27 * kDiskMiB);
  ledger.SetAutoBudget(kPlenty);
  EXPECT_EQ(ledger.Look(kPlenty).effective_budget_bytes, 64ull << 30);
}

TEST(DiskSpace, ShortfallIsExactAndReserveAgrees) {
  SpaceLedger ledger(0);
  const std::uint64_t payload = 10 * kDiskMiB;
  const std::uint64_t needed = EstimatedBytes(payload) + kHeadroomBytes;
  ledger.AddSegment(100 * kDiskMiB);
  ledger.SetBudget(100 * kDiskMiB + needed);
  EXPECT_EQ(ledger.Shortfall(payload, kPlenty), 0u);
  ledger.SetBudget(100 * kDiskMiB + needed - 1);
  EXPECT_EQ(ledger.Shortfall(payload, kPlenty), 1u);
  EXPECT_EQ(ledger.Reserve(payload, kPlenty).code(), absl::StatusCode::kResourceExhausted);
  ledger.DropSegment(1);
  EXPECT_EQ(ledger.Reserve(payload, kPlenty), absl::OkStatus());
  // What is set aside counts until it is settled.
  EXPECT_EQ(ledger.Shortfall(0, kPlenty), EstimatedBytes(0));
  ledger.Settle(payload, 0);
  EXPECT_EQ(ledger.Shortfall(payload, kPlenty), 0u);
}

TEST(DiskSpace, FreeSpaceCountsLikeTheBudget) {
  SpaceLedger ledger(50 * kDiskMiB);
  const std::uint64_t needed = EstimatedBytes(kDiskMiB) + kHeadroomBytes;
  ledger.AddSegment(100 * kDiskMiB);
  ledger.SetBudget(kPlenty);
  EXPECT_EQ(ledger.Shortfall(kDiskMiB, 50 * kDiskMiB + needed), 0u);
  EXPECT_EQ(ledger.Shortfall(kDiskMiB, 50 * kDiskMiB + needed - 7), 7u);
  // Evicting everything would not bring it above the floor.
  EXPECT_EQ(ledger.Shortfall(60 * kDiskMiB, 0), kNever);
}

TEST(DiskSpace, AWalkCountsOnlyIfNothingChangedMeanwhile) {
  SpaceLedger ledger(0);
  ledger.AddSegment(10);
  ledger.SetBudget(kPlenty);
  const std::uint64_t epoch = ledger.epoch();
  ledger.AddSegment(5);
  EXPECT_FALSE(ledger.SetSegments(10, epoch));
  EXPECT_EQ(ledger.Look(kPlenty).physical_bytes, 15u);
  EXPECT_TRUE(ledger.SetSegments(12, ledger.epoch()));
  EXPECT_EQ(ledger.Look(kPlenty).physical_bytes, 12u);
  ASSERT_EQ(ledger.Reserve(1, kPlenty), absl::OkStatus());
  EXPECT_FALSE(ledger.SetSegments(3, ledger.epoch()));
}

class DiskSpaceTest : public DiskTierTest {
 protected:
  std::uint64_t BlocksOf(const std::string& below) {
    std::uint64_t bytes = 0;
    for (const fs::path& file : Files(below)) {
      struct stat info;
      if (::stat(file.c_str(), &info) == 0)
        bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
    return bytes;
  }
  std::uint64_t Measured() { return BlocksOf("segments") + BlocksOf("catalogue"); }
  absl::Status PutPlain(std::uint32_t park, std::uint64_t bytes) {
    const SamplePark plain = MakePlainPark({DiskConversation(1), park}, bytes);
    const StateLayout layout = PlainLayout(bytes);
    const absl::Status status =
        tier().PutIdentity(SampleIdentityDigest(layout), SampleIdentity(layout));
    return status.ok() ? tier().Store(plain.record, plain.payload) : status;
  }
};

TEST_F(DiskSpaceTest, PhysicalIsWhatTheFolderTakes) {
  Open();
  EXPECT_EQ(tier().usage().physical_bytes, Measured());
  for (std::uint32_t i = 0; i < 6; ++i) ASSERT_EQ(PutPlain(i, 3 * kDiskMiB), absl::OkStatus());
  EXPECT_EQ(tier().usage().physical_bytes, Measured());
  EXPECT_GT(BlocksOf("segments"), 18 * kDiskMiB);
  EXPECT_LT(BlocksOf("segments"), 19 * kDiskMiB);
  ASSERT_EQ(tier().Remove({{DiskConversation(1), 5}, {DiskConversation(1), 4}}), absl::OkStatus());
  tier().Tick();
  EXPECT_EQ(tier().usage().physical_bytes, Measured());
  EXPECT_LT(BlocksOf("segments"), 13 * kDiskMiB);
  Open();
  EXPECT_EQ(tier().usage().physical_bytes, Measured());
}

TEST_F(DiskSpaceTest, ARecountFindsWhatWasTakenBehindItsBack) {
  Open();
  ASSERT_EQ(PutPlain(0, 3 * kDiskMiB), absl::OkStatus());
  const std::uint64_t before = tier().usage().physical_bytes;
  ASSERT_TRUE(fs::remove(Segments().back()));
  for (int i = 0; i < 59; ++i) tier().Tick();
  EXPECT_EQ(tier().usage().physical_bytes, before);
  tier().Tick();
  EXPECT_EQ(tier().usage().physical_bytes, Measured());
}

TEST_F(DiskSpaceTest, WritesLittleMoreThanWhatIsParked) {
  Open();
  std::uint64_t payload = 0;
  for (std::uint32_t i = 0; i < 40; ++i) {
    ASSERT_EQ(PutPlain(i, 2304 * 1024), absl::OkStatus());
    payload += 2304 * 1024;
  }
  const double ratio = static_cast<double>(tier().usage().written_bytes) / payload;
  EXPECT_GT(ratio, 1.0);
  EXPECT_LT(ratio, 1.02);
}

TEST_F(DiskSpaceTest, StaysWithinItsBudgetWhenTheShortfallIsEvicted) {
  options_.budget_bytes = 80 * kDiskMiB;
  Open();
  std::uint32_t first = 0;
  for (std::uint32_t i = 0; i < 60; ++i) {
    while (tier().Shortfall(3 * kDiskMiB) > 0) {
      ASSERT_NE(tier().Shortfall(3 * kDiskMiB), kNever);
      ASSERT_LT(first, i);
      ASSERT_EQ(tier().Remove({{DiskConversation(1), first++}}), absl::OkStatus());
    }
    ASSERT_EQ(PutPlain(i, 3 * kDiskMiB), absl::OkStatus());
    ASSERT_LE(Measured(), options_.budget_bytes);
  }
  EXPECT_GT(60 - first, 8u) << "parks held";
  EXPECT_EQ(tier().Shortfall(kParkBytes), kNever);
  EXPECT_EQ(tier().Shortfall(kParkBytes + 1), kNever);
}

TEST_F(DiskSpaceTest, BelowTheFloorNothingIsWritten) {
  options_.min_free_bytes = 1ull << 50;
  Open();
  EXPECT_EQ(tier().Shortfall(1), kNever);
  EXPECT_EQ(PutPlain(0, kDiskMiB).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(tier().usage().state.rfind("read_only: ", 0), 0u) << tier().usage().state;
  EXPECT_EQ(tier().usage().budget_bytes, 0u);
}

// A file system of its own that really fills up.
class DiskFullTest : public DiskSpaceTest {
 protected:
  void SetUp() override {
    mount_ = root_ + "/mount";
    fs::create_directory(mount_);
    if (::mount("tmpfs", mount_.c_str(), "tmpfs", 0, "size=160m") != 0) {
      GTEST_SKIP() << "this user may not mount a small file system";
    }
    mounted_ = true;
    options_.directory = mount_ + "/tier";
    options_.min_free_bytes = 8 * kDiskMiB;
  }
  ~DiskFullTest() override {
    tier_.reset();
    if (mounted_) ::umount2(mount_.c_str(), MNT_DETACH);
  }
  // Leaves less than `left` bytes.
  void FillUp(std::uint64_t left) {
    std::ofstream file(mount_ + "/other", std::ios::binary | std::ios::app);
    const std::string piece(64 * 1024, 'x');
    while (tier().usage().free_bytes > left && file.write(piece.data(), piece.size()).flush()) {
    }
  }
  std::string mount_;
  bool mounted_ = false;
};

TEST_F(DiskFullTest, WritesStopReadsGoOnAndItComesBackByItself) {
  Open();
  PutConversation(DiskConversation(1), 4);
  FillUp(0);
  EXPECT_EQ(tier().Shortfall(1000), kNever);
  EXPECT_FALSE(Put(Park(DiskConversation(1), 4)).ok());
  EXPECT_EQ(tier().usage().state.rfind("read_only: ", 0), 0u) << tier().usage().state;
  for (int i = 0; i < 20; ++i) tier().Tick();
  EXPECT_EQ(Held(), (std::map<std::uint64_t, std::vector<std::uint32_t>>{{1, {0, 1, 2, 3}}}));
  fs::remove(mount_ + "/other");
  for (int i = 0; i < 10; ++i) tier().Tick();
  EXPECT_EQ(tier().usage().state, "up");
  EXPECT_EQ(Put(Park(DiskConversation(1), 4)), absl::OkStatus());
}

TEST_F(DiskFullTest, AWriteThatFailsMakesItReadOnlyUntilThereIsSpace) {
  // The floor lets the park in; another process takes the space at the last moment.
  options_.min_free_bytes = 0;
  bool fill = false;
  options_.failpoint = [&](std::string_view point) {
    if (fill && point == "store.begin") return;
    if (fill && point == "segment.created") FillUp(0);
  };
  Open();
  PutConversation(DiskConversation(1), 3);
  fill = true;
  EXPECT_EQ(Put(Park(DiskConversation(1), 3)).code(), absl::StatusCode::kResourceExhausted);
  fill = false;
  EXPECT_EQ(tier().usage().state.rfind("read_only: ", 0), 0u) << tier().usage().state;
  EXPECT_EQ(Put(Park(DiskConversation(1), 3)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(tier().Shortfall(1), kNever);
  EXPECT_EQ(Held(), (std::map<std::uint64_t, std::vector<std::uint32_t>>{{1, {0, 1, 2}}}));
  // Eviction works on a full disk.
  EXPECT_EQ(tier().Remove({{DiskConversation(1), 2}}), absl::OkStatus());
  fs::remove(mount_ + "/other");
  for (int i = 0; i < 10; ++i) tier().Tick();
  EXPECT_EQ(tier().usage().state, "up");
  EXPECT_EQ(Put(Park(DiskConversation(1), 2)), absl::OkStatus());
  Open();
  EXPECT_EQ(Held(), (std::map<std::uint64_t, std::vector<std::uint32_t>>{{1, {0, 1, 2}}}));
}

TEST_F(DiskFullTest, ACatalogueThatCanNotGrowIsClosedAndOpenedAgain) {
  options_.min_free_bytes = 0;
  Open();
  PutConversation(DiskConversation(1), 3);
  FillUp(0);
  // Small rows until the log and the write buffers have no room left.
  absl::Status status;
  for (std::uint64_t round = 0; round < 2000 && status.ok(); ++round) {
    std::vector<ConversationAttributes> many(1000);
    for (std::size_t i = 0; i < many.size(); ++i) {
      many[i].conversation = DiskConversation(round * 1000 + i + 10);
    }
    status = tier().WriteAttributes(many, round % 2 == 0);
  }
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(tier().usage().state.rfind("read_only: ", 0), 0u) << tier().usage().state;
  tier().Tick();
  const std::map<std::uint64_t, std::vector<std::uint32_t>> all = {{1, {0, 1, 2}}};
  EXPECT_EQ(Held(), all);
  fs::remove(mount_ + "/other");
  for (int i = 0; i < 10; ++i) tier().Tick();
  EXPECT_EQ(tier().usage().state, "up");
  EXPECT_EQ(Held(), all);
  EXPECT_EQ(Put(Park(DiskConversation(1), 3)), absl::OkStatus());
  Open();
  EXPECT_EQ(Held(), (std::map<std::uint64_t, std::vector<std::uint32_t>>{{1, {0, 1, 2, 3}}}));
}

TEST_F(DiskFullTest, OpensOnAFullDiskForReading) {
  Open();
  PutConversation(DiskConversation(1), 4);
  FillUp(0);
  Open();
  EXPECT_EQ(tier().usage().state.rfind("read_only: ", 0), 0u) << tier().usage().state;
  EXPECT_EQ(Held(), (std::map<std::uint64_t, std::vector<std::uint32_t>>{{1, {0, 1, 2, 3}}}));
  fs::remove(mount_ + "/other");
  for (int i = 0; i < 10; ++i) tier().Tick();
  EXPECT_EQ(tier().usage().state, "up");
  EXPECT_EQ(Put(Park(DiskConversation(1), 4)), absl::OkStatus());
  Open();
  EXPECT_EQ(Held(), (std::map<std::uint64_t, std::vector<std::uint32_t>>{{1, {0, 1, 2, 3, 4}}}));
}

TEST_F(DiskFullTest, ANewDirectoryOnAFullDiskIsRefused) {
  Open();
  FillUp(0);
  tier_.reset();
  options_.directory = mount_ + "/another";
  const absl::Status refused = OpenDiskTier(options_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
}

}  // namespace
}  // namespace parkade::test
