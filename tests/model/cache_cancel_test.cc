// Ten thousand look-ups that are given up at random points, over a slow disk: before their plan is
// made, in the middle of a read, between two imports, after the last one, or told to the cache as
// finished while it still reads. Then everything is back at zero.
// PARKADE_SEED repeats a run as far as threads can, PARKADE_STEPS sets how many.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/model/live_operations.h"
#include "tests/support/environment.h"
#include "tests/support/faulty_files.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

constexpr int kThreads = 4;
constexpr int kChats = 6;
constexpr std::size_t kChatTokens = 1024;  // 4 extents
constexpr std::int64_t kPatienceMs = 120000;

// Where a look-up is given up.
enum Point {
  kAtOnce,
  kAfterAMoment,
  kPlanned,
  kFirstStep,
  kInTheMiddle,
  kAfterTheLast,
  kFinishedAtOnce,
  kFinishedWhileReading,
  kPoints
};

class CacheCancel : public ::testing::TestWithParam<bool> {
 protected:
  CacheCancel()
      : seed_(FromEnvironment("PARKADE_SEED", std::random_device()())),
        files_(false),
        rig_(Options(&files_)) {
    std::printf("PARKADE_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  }

  static RigOptions Options(disk::FileDoor* files) {
    RigOptions options;
    options.ram = GetParam();
    options.disk = true;
    options.disk_files = files;
    options.cache.ram_budget_bytes = GetParam() ? 256ull << 20 : 0;
    options.cache.read_buffer_bytes = 1u << 20;  // 8 extents of 128 KiB
    options.cache.reader_threads = 3;
    return options;
  }

  void ParkChats() {
    for (int i = 0; i < kChats; ++i) {
      const auto engine = rig_.MakeEngine();
      engine->Append(Tokens(seed_ + static_cast<std::uint64_t>(i), kChatTokens));
      rig_.Park(*engine);
      chats_.push_back(engine->tokens());
    }
    FileFault slow;
    slow.call = FileCall::kRead;
    slow.kind = FileFault::Kind::kDelay;
    slow.delay = absl::Microseconds(200);
    slow.path = "/segments/";
    files_.AddFault(slow);
  }

  void GiveUp(std::mt19937_64& random, FakeEngine& engine) {
    const auto point = static_cast<Point>(random() % kPoints);
    const std::vector<Token>& chat = chats_[random() % chats_.size()];
    const std::vector<Token> prompt = Fork(chat, chat.size() - random() % 300, random(), 5);
    LookupRequest request = rig_.Request(prompt);
    live_.Mark(&request);
    std::unique_ptr<Restore> restore = rig_.cache().Lookup(std::move(request));
    if (point == kAfterAMoment) restore->WaitReady(1);
    if (point >= kPlanned && point != kFinishedAtOnce) {
      EXPECT_TRUE(restore->WaitReady(kPatienceMs));
    }
    // Budget zero: one extent each.
    std::uint64_t steps = point == kFirstStep ? 1 : point == kInTheMiddle ? 1 + random() % 3 : 0;
    if (point == kAfterTheLast) steps = UINT64_MAX;
    Restore::State state = restore->state();
    for (; steps > 0 && state == Restore::State::kReading; --steps) {
      if (!restore->WaitReady(kPatienceMs)) ADD_FAILURE() << "no bytes come";
      state = restore->Step(engine, 0);
    }
    if (state == Restore::State::kRestored) {
      const auto end = prompt.begin() + restore->restored_tokens();
      engine.SetTokens({prompt.begin(), end});
      EXPECT_EQ(engine.Verify(), absl::OkStatus());
    }
    ++given_up_[point][static_cast<std::size_t>(state)];
    engine.Clear();
    if (point >= kFinishedAtOnce) rig_.cache().FinishLookup(std::move(restore), 0);
  }

  // All eight buffers are free: as many extents are read ahead of an import that does not begin.
  void ExpectAllBuffersAreFree() {
    const auto engine = rig_.MakeEngine();
    engine->Append(Tokens(seed_ + 1000, 4096));  // 16 extents
    rig_.Park(*engine);
    if (GetParam()) {
      EXPECT_EQ(rig_.cache().SetBudget(TierKind::kRam, 0), absl::OkStatus());
    }
    std::atomic<int> reads{0};
    absl::Notification ninth;
    rig_.durable().SetObserver([&](const CallSubject& call) {
      if (call.call == TierCall::kReadExtent && ++reads == 9) ninth.Notify();
    });
    LookupRequest request = rig_.Request(Fork(engine->tokens(), 4096, 1, 5));
    live_.Mark(&request);
    std::unique_ptr<Restore> restore = rig_.cache().Lookup(std::move(request));
    // Eight have a buffer, and a reader is on its way to a ninth one.
    EXPECT_TRUE(ninth.WaitForNotificationWithTimeout(absl::Seconds(60))) << reads << " reads";
    EXPECT_EQ(rig_.StepToEnd(*restore, *engine), Restore::State::kRestored);
    EXPECT_EQ(reads, 16);
    rig_.durable().SetObserver(nullptr);
  }

  const std::uint64_t seed_;
  LiveOperations live_;
  FaultyFiles files_;
  Rig rig_;
  std::vector<std::vector<Token>> chats_;
  std::array<std::array<std::atomic<int>, 5>, kPoints> given_up_ = {};  // by point and state
};

TEST_P(CacheCancel, TenThousandLookupsThatAreGivenUpLeaveNothing) {
  ParkChats();
  const std::uint64_t each = FromEnvironment("PARKADE_STEPS", 10000) / kThreads;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, i, each] {
      std::mt19937_64 random(seed_ + static_cast<std::uint64_t>(i));
      const auto engine = rig_.MakeEngine();
      for (std::uint64_t n = 0; n < each && !HasFailure(); ++n) {
        // Nothing of it stays in RAM, so that reading never ends.
        if (GetParam() && i == 0 && n % 20 == 0) {
          (void)rig_.cache().SetBudget(TierKind::kRam, 0);
          (void)rig_.cache().SetBudget(TierKind::kRam, 256u << 20);
        }
        GiveUp(random, *engine);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_FALSE(HasFailure());
  // Every point was met, and those in the middle in the middle.
  const auto count = [this](Point point, Restore::State state) {
    return given_up_[point][static_cast<std::size_t>(state)].load();
  };
  EXPECT_GT(count(kAtOnce, Restore::State::kPlanning), 0);
  EXPECT_GT(count(kFinishedAtOnce, Restore::State::kPlanning), 0);
  EXPECT_GT(count(kAfterTheLast, Restore::State::kRestored), 0);
  for (const Point point : {kPlanned, kFirstStep, kInTheMiddle, kFinishedWhileReading}) {
    EXPECT_GT(count(point, Restore::State::kReading), 0) << point;
  }

  EXPECT_TRUE(live_.WaitForNone(absl::Seconds(60))) << live_.live() << " look-ups live on";
  ExpectAllBuffersAreFree();
  EXPECT_TRUE(live_.WaitForNone(absl::Seconds(60)));
  rig_.Settle();
  EXPECT_EQ(rig_.cache().Queue().capture_bytes, 0u);
  // What no restore holds goes at once; and in no tier anything is left to hold it.
  for (const TierInfo& tier : rig_.cache().Tiers()) {
    EXPECT_EQ(rig_.cache().SetBudget(tier.kind, 0), absl::OkStatus());
  }
  EXPECT_TRUE(rig_.cache().List(1000, ConversationId()).empty()) << "a pin was kept";
  for (FaultyTier* tier : rig_.tiers()) {
    EXPECT_EQ(tier->Enumerate([](const ParkSummary&) { ADD_FAILURE() << "a park stays"; }),
              absl::OkStatus());
  }
  EXPECT_TRUE(rig_.sink().events().corrupt.empty());
  EXPECT_TRUE(rig_.sink().events().errors.empty());
}

INSTANTIATE_TEST_SUITE_P(Tiers, CacheCancel, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return std::string(info.param ? "RamDisk" : "Disk");
                         });

}  // namespace
}  // namespace parkade::test
