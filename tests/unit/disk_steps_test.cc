// What a kill at each step leaves behind: the folder is copied there, and the copy opened.
#include <atomic>
#include <set>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/unit/disk_fixture.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;
using Parks = std::map<std::uint64_t, std::vector<std::uint32_t>>;

class DiskStepsTest : public DiskTierTest {
 protected:
  DiskStepsTest() {
    options_.failpoint = [this](std::string_view point) {
      points_.insert(std::string(point));
      if (armed_ != point) return;
      armed_.clear();
      fs::copy(directory(), copy_, fs::copy_options::recursive);
    };
    copy_ = root_ + "/copy";
  }
  // Runs `act` and opens what a kill at `point` would have left; in place of the tier.
  void KillAt(const std::string& point, const std::function<void()>& act) {
    armed_ = point;
    act();
    ASSERT_TRUE(armed_.empty()) << point << " was not reached";
    tier_.reset();
    fs::remove_all(directory());
    fs::rename(copy_, directory());
    Open();
    EXPECT_TRUE(fs::is_empty(directory() + "/temporary"));
    auto report = OwnersOnly();
    EXPECT_EQ(report.orphan_files, 0u);
  }
  VerifyReport OwnersOnly() {
    tier_.reset();
    auto report = VerifyDiskTier(directory(), false, nullptr);
    EXPECT_TRUE(report.ok()) << report.status();
    Open();
    if (!report.ok()) return {};
    EXPECT_EQ(report->findings, std::vector<std::string>{});
    return *report;
  }
  std::string armed_, copy_;
  std::set<std::string> points_;
};

TEST_F(DiskStepsTest, AStoredParkIsWholeOrAbsent) {
  for (const std::string point :
       {"store.begin", "segment.created", "segment.written", "segment.synced", "folder.made",
        "segment.renamed", "folder.synced", "store.batch"}) {
    SCOPED_TRACE(point);
    Open();
    PutConversation(DiskConversation(1), 2);
    KillAt(point, [&] { ASSERT_EQ(Put(Park(DiskConversation(1), 2)), absl::OkStatus()); });
    const Parks held = Held();
    const bool renamed = point == "segment.renamed" || point == "folder.synced";
    // A file under its own name is complete, so it may be taken back though no row named it yet.
    const bool there = renamed || point == "store.batch";
    EXPECT_EQ(held, there ? (Parks{{1, {0, 1, 2}}}) : (Parks{{1, {0, 1}}}));
    EXPECT_EQ(Put(Park(DiskConversation(1), 2)).code(),
              there ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kOk);
    EXPECT_EQ(Held(), (Parks{{1, {0, 1, 2}}}));
    tier_.reset();
    fs::remove_all(directory());
  }
}

// RocksDB may end the process while its tables are read; the next start must not read them again.
TEST_F(DiskStepsTest, AStartThatEndsWhileItReadsTheRowsIsFollowedByARebuild) {
  Open();
  PutConversation(DiskConversation(1), 3);
  const auto database = [this] { return ReadFile(directory() + "/catalogue/IDENTITY"); };
  const std::string before = database();
  KillAt("recovery.scanned", [&] {
    Open();
    EXPECT_TRUE(fs::exists(copy_ + "/catalogue.opening"));
    EXPECT_FALSE(fs::exists(directory() + "/catalogue.opening"));
    EXPECT_EQ(database(), before);
  });
  EXPECT_NE(database(), before);
  EXPECT_EQ(Held(), (Parks{{1, {0, 1, 2}}}));
  EXPECT_FALSE(fs::exists(directory() + "/catalogue.opening"));
}

TEST_F(DiskStepsTest, ARemovalIsDoneOrNotBegun) {
  for (const std::string point : {"remove.begin", "remove.rows", "remove.unlinked"}) {
    SCOPED_TRACE(point);
    Open();
    PutConversation(DiskConversation(1), 3);
    KillAt(point, [&] {
      ASSERT_EQ(tier().Remove({{DiskConversation(1), 2}, {DiskConversation(1), 1}}),
                absl::OkStatus());
    });
    // With its files still there a park that was evicted is taken back: no harm, no text.
    EXPECT_EQ(Held(), point == "remove.unlinked" ? (Parks{{1, {0}}}) : (Parks{{1, {0, 1, 2}}}));
    tier_.reset();
    fs::remove_all(directory());
  }
}

TEST_F(DiskStepsTest, WhatWasForgottenStaysForgottenOnceItsRowsAreGone) {
  for (const std::string point :
       {"forget.tombstone", "forget.rows", "forget.unlinked", "forget.purged"}) {
    SCOPED_TRACE(point);
    Open();
    PutConversation(DiskConversation(1), 2);
    PutConversation(DiskConversation(2), 2);
    KillAt(point, [&] {
      const std::vector<ParkKey> keys = {{DiskConversation(1), 0}, {DiskConversation(1), 1}};
      ASSERT_EQ(tier().Forget(DiskConversation(1), keys), absl::OkStatus());
    });
    EXPECT_EQ(Held(), (Parks{{2, {0, 1}}}));
    tier_.reset();
    fs::remove_all(directory());
  }
}

TEST_F(DiskStepsTest, ANewerParkOfTheSameKeyWins) {
  Open();
  PutConversation(DiskConversation(1), 2);
  const fs::path old = Segments().back();
  const std::string kept = root_ + "/kept";
  fs::copy_file(old, kept);
  ASSERT_EQ(tier().Remove({{DiskConversation(1), 1}}), absl::OkStatus());
  SampleParkSpec spec;
  spec.key = {DiskConversation(1), 1};
  spec.layout = Layout();
  spec.stages = MakeFakeStages(spec.layout, {1});
  spec.first_token = 100;
  spec.token_count = 7;
  const SamplePark newer = MakeSamplePark(spec);
  ASSERT_EQ(Put(newer), absl::OkStatus());
  tier_.reset();
  for (const bool catalogue_lost : {false, true}) {
    fs::copy_file(kept, old);
    if (catalogue_lost) fs::remove_all(directory() + "/catalogue");
    Open();
    EXPECT_EQ(Held(), (Parks{{1, {0, 1}}}));
    auto tokens = tier().ReadTokens(newer.key());
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(*tokens, newer.record.tokens);
    EXPECT_FALSE(fs::exists(old));
    tier_.reset();
  }
}

TEST_F(DiskStepsTest, AnInterruptedRebuildGoesOn) {
  for (const std::string point :
       {"recovery.flagged", "recovery.deleted", "recovery.adopted", "recovery.ended"}) {
    SCOPED_TRACE(point);
    Open();
    PutConversation(DiskConversation(1), 4);
    PutConversation(DiskConversation(2), 1, DiskConversation(1), 350);
    tier_.reset();
    fs::remove_all(directory() + "/catalogue");
    ASSERT_TRUE(fs::remove(Segments()[3]));  // park 2
    KillAt(point, [&] { Open(); });
    EXPECT_EQ(Held(), (Parks{{1, {0, 1}}}));
    tier_.reset();
    fs::remove_all(directory());
  }
}

TEST_F(DiskStepsTest, ForgettingLeavesNoTokensBehind) {
  Open();
  PutConversation(DiskConversation(1), 2);
  PutConversation(DiskConversation(2), 2);
  const SamplePark park = Park(DiskConversation(1), 1);
  const std::string tokens(reinterpret_cast<const char*>(park.record.tokens.data()),
                           16 * sizeof(Token));
  const auto count = [&] {
    int found = 0;
    for (const fs::path& file : Files("")) {
      if (ReadFile(file).find(tokens) != std::string::npos) ++found;
    }
    return found;
  };
  // LZ4 leaves incompressible ids as they are, so they can be searched for.
  EXPECT_EQ(count(), 3) << "log, and segments: both parks have the same tokens";
  const std::vector<ParkKey> keys = {{DiskConversation(1), 0}, {DiskConversation(1), 1}};
  ASSERT_EQ(tier().Forget(DiskConversation(1), keys), absl::OkStatus());
  EXPECT_EQ(count(), 0);
  EXPECT_EQ(Held(), (Parks{{2, {0, 1}}}));
}

// If both look at what is left before either has removed its park, each sees the other's, and the
// attributes stay.
TEST_F(DiskTierTest, TwoThatRemoveTheLastTwoParksTakeTheAttributesAlong) {
  std::atomic<int> looked{0};
  absl::Notification both;
  options_.failpoint = [&](std::string_view point) {
    if (point != "remove.begin") return;
    if (++looked == 2) return both.Notify();
    both.WaitForNotificationWithTimeout(absl::Milliseconds(300));
  };
  Open();
  const ConversationId id = DiskConversation(1);
  PutConversation(id, 2);
  ConversationAttributes row;
  row.conversation = id;
  row.name = "a name";
  ASSERT_EQ(tier().WriteAttributes({row}, true), absl::OkStatus());
  std::vector<std::thread> threads;
  for (std::uint32_t park = 0; park < 2; ++park) {
    threads.emplace_back([&, park] { EXPECT_EQ(tier().Remove({{id, park}}), absl::OkStatus()); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(looked, 2);
  const auto stays = [](const ConversationAttributes&) { ADD_FAILURE() << "attributes stay"; };
  ASSERT_EQ(tier().EnumerateAttributes(stays), absl::OkStatus());
  tier_.reset();
  const auto report = VerifyDiskTier(directory(), false, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->orphan_files, 0u);
  EXPECT_EQ(report->findings, std::vector<std::string>{});
}

TEST_F(DiskStepsTest, AForkKeepsWhatItNeedsOfAForgottenConversation) {
  Open();
  PutConversation(DiskConversation(1), 3);
  PutConversation(DiskConversation(2), 1, DiskConversation(1), 150);
  ASSERT_EQ(tier().Forget(DiskConversation(1), {{DiskConversation(1), 2}}), absl::OkStatus());
  const Parks left = {{1, {0, 1}}, {2, {0}}};
  EXPECT_EQ(Held(), left);
  tier_.reset();
  fs::remove_all(directory() + "/catalogue");
  Open();
  EXPECT_EQ(Held(), left);
}

}  // namespace
}  // namespace parkade::test
