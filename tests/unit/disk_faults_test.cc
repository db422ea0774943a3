// Files that fail: which call, which error, which file. The tier says why it writes no more, gives
// what it holds, and goes on by itself.
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/faulty_files.h"
#include "tests/unit/disk_fixture.h"

namespace parkade::test {
namespace {

using HeldParks = std::map<std::uint64_t, std::vector<std::uint32_t>>;

// Plain and encrypted directories.
class DiskFaultsTest : public DiskTierTest, public ::testing::WithParamInterface<bool> {
 protected:
  DiskFaultsTest() {
    if (GetParam()) options_.key = *SealKey::Parse(std::string(32, 'k'));
    options_.files = &files_;
  }
  ~DiskFaultsTest() override { tier_.reset(); }

  FileFault Failing(FileCall call, int error, const std::string& path) {
    FileFault fault;
    fault.call = call;
    fault.error = error;
    fault.path = path;
    return fault;
  }
  bool ReadOnly() { return tier().usage().state.rfind("read_only: ", 0) == 0; }
  // How many parks of number below `end` are there and whole. A row whose sync failed may show
  // while the catalogue can only be read.
  int WholeBefore(std::uint32_t end) {
    std::vector<ParkSummary> summaries;
    EXPECT_EQ(tier().Enumerate([&](const ParkSummary& one) { summaries.push_back(one); }),
              absl::OkStatus());
    int whole = 0;
    for (const ParkSummary& summary : summaries) {
      if (summary.key.park < end && CheckWhole(summary).ok()) ++whole;
    }
    return whole;
  }
  // A second is a tick; a failure is looked at again within five.
  void TickUntilUp() {
    for (int i = 0; i < 6 && tier().usage().state != "up"; ++i) tier().Tick();
    EXPECT_EQ(tier().usage().state, "up");
  }

  FaultyFiles files_{true};
};

struct WriteFailure {
  FileCall call;
  const char* path;
  int error;
};

std::vector<WriteFailure> WriteFailures() {
  std::vector<WriteFailure> failures;
  for (const int error : {EIO, ENOSPC, EROFS}) {
    failures.push_back({FileCall::kOpenToWrite, "/temporary/", error});
    failures.push_back({FileCall::kWrite, "/temporary/", error});
    failures.push_back({FileCall::kSyncData, "/temporary/", error});
    failures.push_back({FileCall::kRename, "/segments/", error});
    failures.push_back({FileCall::kSyncFolder, "/segments", error});
    failures.push_back({FileCall::kWrite, "/catalogue/", error});
    failures.push_back({FileCall::kSyncData, "/catalogue/", error});
  }
  failures.push_back({FileCall::kAllocate, "/temporary/", ENOSPC});
  failures.push_back({FileCall::kAllocate, "/temporary/", EDQUOT});
  failures.push_back({FileCall::kOpenToWrite, "/temporary/", EMFILE});
  return failures;
}

TEST_P(DiskFaultsTest, AWriteThatFailsMakesItReadOnlyUntilWritingWorks) {
  int number = 0;
  for (const WriteFailure& failure : WriteFailures()) {
    SCOPED_TRACE(absl::StrCat("call ", static_cast<int>(failure.call), " ", failure.path, ": ",
                              strerror(failure.error)));
    tier_.reset();
    options_.directory = root_ + "/tier" + std::to_string(number++);
    ASSERT_NO_FATAL_FAILURE(Open());
    PutConversation(DiskConversation(1), 2);
    const std::uint64_t before = files_.faults_hit();
    files_.AddFault(Failing(failure.call, failure.error, failure.path));
    EXPECT_FALSE(Put(Park(DiskConversation(1), 2)).ok());
    EXPECT_GT(files_.faults_hit(), before);
    EXPECT_TRUE(ReadOnly()) << tier().usage().state;
    EXPECT_NE(tier().usage().state.find(strerror(failure.error)), std::string::npos)
        << tier().usage().state;
    EXPECT_EQ(tier().Shortfall(1), UINT64_MAX);
    EXPECT_EQ(WholeBefore(2), 2);
    for (int i = 0; i < 7; ++i) tier().Tick();
    EXPECT_EQ(WholeBefore(2), 2) << "while it still fails";
    files_.ClearFaults();
    TickUntilUp();
    EXPECT_EQ(Put(Park(DiskConversation(1), 2)), absl::OkStatus());
    ASSERT_NO_FATAL_FAILURE(Open());
    EXPECT_EQ(Held(), (HeldParks{{1, {0, 1, 2}}}));
    if (HasFailure()) break;
  }
}

TEST_P(DiskFaultsTest, PartsOfReadsAndWritesAreGoneOnWith) {
  for (const FileCall call : {FileCall::kRead, FileCall::kWrite}) {
    FileFault part;
    part.call = call;
    part.kind = FileFault::Kind::kShort;
    files_.AddFault(part);
  }
  Open();
  PutConversation(DiskConversation(1), 3);
  EXPECT_EQ(Held(), (HeldParks{{1, {0, 1, 2}}}));
  Open();
  EXPECT_EQ(Held(), (HeldParks{{1, {0, 1, 2}}}));
  EXPECT_GT(files_.faults_hit(), 50u);
}

TEST_P(DiskFaultsTest, AReadThatFailsCostsThatParkOnly) {
  Open();
  PutConversation(DiskConversation(1), 2);
  Open();
  const std::string second = Segments().back().filename();
  files_.AddFault(Failing(FileCall::kRead, EIO, second));
  EXPECT_EQ(tier().ReadExtent({DiskConversation(1), 1}, 0, MakeHeapBuffer).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(tier().ReadExtent({DiskConversation(1), 0}, 0, MakeHeapBuffer).ok());
  EXPECT_EQ(tier().usage().state, "up");
  files_.ClearFaults();
  EXPECT_EQ(Held(), (HeldParks{{1, {0, 1}}}));
}

TEST_P(DiskFaultsTest, NoDescriptorIsNoDamage) {
  Open();
  PutConversation(DiskConversation(1), 1);
  Open();
  files_.AddFault(Failing(FileCall::kOpenToRead, EMFILE, "/segments/"));
  EXPECT_EQ(tier().ReadExtent({DiskConversation(1), 0}, 0, MakeHeapBuffer).status().code(),
            absl::StatusCode::kUnavailable);
  files_.ClearFaults();
  EXPECT_EQ(Held(), (HeldParks{{1, {0}}}));
}

// Whoever rebuilds may not take what can't be opened for damaged: it would be dropped.
TEST_P(DiskFaultsTest, NoDescriptorLosesNothingWhileTheCatalogueIsRebuilt) {
  Open();
  PutConversation(DiskConversation(1), 3);
  for (std::uint64_t skip = 0; skip < 8; ++skip) {
    SCOPED_TRACE(skip);
    tier_.reset();
    std::filesystem::remove_all(directory() + "/catalogue");
    FileFault none_left = Failing(FileCall::kOpenToRead, EMFILE, ".segment");
    none_left.skip = skip;
    none_left.times = 1;
    files_.AddFault(none_left);
    EXPECT_EQ(OpenDiskTier(options_).status().code(), absl::StatusCode::kUnavailable);
    files_.ClearFaults();
    Open();
    EXPECT_EQ(Held(), (HeldParks{{1, {0, 1, 2}}}));
  }
}

// The same for a folder: the segments in it would be missing, and their parks taken for lost.
TEST_P(DiskFaultsTest, AFolderThatCantBeOpenedLosesNothing) {
  Open();
  PutConversation(DiskConversation(1), 3);
  for (const int error : {EMFILE, EIO}) {
    for (const bool again : {false, true}) {
      SCOPED_TRACE(absl::StrCat(strerror(error), again ? ", opened again" : ", opened"));
      Open();
      files_.AddFault(Failing(FileCall::kOpenToRead, error, "/segments/"));
      if (again) {
        // A write that fails closes the catalogue, and the tier opens it again when it can.
        FileFault refused = Failing(FileCall::kWrite, EIO, "/temporary/");
        refused.times = 1;
        files_.AddFault(refused);
        EXPECT_FALSE(Put(Park(DiskConversation(1), 3)).ok());
        const std::uint64_t before = files_.faults_hit();
        for (int i = 0; i < 7; ++i) tier().Tick();
        EXPECT_GT(files_.faults_hit(), before);
        EXPECT_TRUE(ReadOnly()) << tier().usage().state;
        files_.ClearFaults();
        TickUntilUp();
      } else {
        tier_.reset();
        EXPECT_EQ(OpenDiskTier(options_).status().code(), absl::StatusCode::kUnavailable);
        files_.ClearFaults();
        Open();
      }
      EXPECT_EQ(Held(), (HeldParks{{1, {0, 1, 2}}}));
      EXPECT_EQ(tier().usage().lost_parks, 0u);
    }
  }
}

TEST_P(DiskFaultsTest, ABitThatFlipsIsSeen) {
  Open();
  PutConversation(DiskConversation(1), 1);
  Open();
  const ParkKey key = {DiskConversation(1), 0};
  const auto extents = tier().ReadExtents(key);
  ASSERT_TRUE(extents.ok()) << extents.status();
  ASSERT_TRUE(tier().ReadExtent(key, 0, MakeHeapBuffer).ok());  // what it keeps open is open
  for (std::uint64_t at = 0; at < 64; ++at) {
    FileFault flip;
    flip.kind = FileFault::Kind::kFlip;
    flip.path = "/segments/";
    flip.at = at * 97;
    flip.times = 1;
    files_.AddFault(flip);
    const auto read = tier().ReadExtent(key, 0, MakeHeapBuffer);
    files_.ClearFaults();
    if (!read.ok()) {
      EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << read.status();
      continue;
    }
    EXPECT_NE(Checksum(ViewOf(*read)), (*extents)[0].checksum) << at;
  }
}

TEST_P(DiskFaultsTest, ReadsDoNotWaitForASlowWrite) {
  Open();
  PutConversation(DiskConversation(1), 1);
  FileFault slow;
  slow.call = FileCall::kSyncData;
  slow.kind = FileFault::Kind::kDelay;
  slow.path = "/temporary/";
  slow.delay = absl::Seconds(2);
  files_.AddFault(slow);
  std::atomic<bool> stored{false};
  std::thread writer([&] {
    EXPECT_EQ(Put(Park(DiskConversation(2), 0)), absl::OkStatus());
    stored = true;
  });
  while (files_.faults_hit() == 0) std::this_thread::yield();
  EXPECT_EQ(Held(), (HeldParks{{1, {0}}}));
  EXPECT_FALSE(stored);
  writer.join();
}

INSTANTIATE_TEST_SUITE_P(Directories, DiskFaultsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Encrypted" : "Plain"; });

}  // namespace
}  // namespace parkade::test
