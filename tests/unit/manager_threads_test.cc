// One serving thread, and others that list, look, forget, pin and change budgets meanwhile. Meant
// for ThreadSanitizer; every restored row is checked, so lost races show without it, too.

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <functional>
#include <random>
#include <thread>
#include <utility>

#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

// Goes round with the serving thread: one pass of a helper for every turn, without sleeping.
class Turns {
 public:
  void Next() {
    absl::MutexLock lock(&mu_);
    ++turn_;
  }
  void End() {
    absl::MutexLock lock(&mu_);
    ended_ = true;
  }
  // Waits for a turn later than *seen; false at the end.
  bool Wait(std::uint64_t* seen) {
    absl::MutexLock lock(&mu_);
    auto later = [this, seen]()
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ended_ || turn_ > *seen; };
    mu_.Await(absl::Condition(&later));
    *seen = turn_;
    return !ended_;
  }

 private:
  absl::Mutex mu_;
  std::uint64_t turn_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

void Look(ConversationCache& cache) {
  ConversationId after;
  while (true) {
    const auto list = cache.List(3, after);
    if (list.empty()) break;
    for (const ConversationInfo& info : list) cache.Get(info.id);
    after = list.back().id;
  }
  for (const LookupRecord& record : cache.Lookups(20)) EXPECT_EQ(CheckSums(record), "");
  for (const TierInfo& tier : cache.Tiers()) EXPECT_GE(tier.usage.budget_bytes, 0u);
  cache.Queue();
}

void Change(ConversationCache& cache, std::mt19937_64& random) {
  const auto list = cache.List(1000, ConversationId());
  const std::uint64_t what = random() % 10;
  if (!list.empty()) {
    const ConversationInfo& some = list[random() % list.size()];
    if (what < 2) (void)cache.Forget(some.id);
    if (what < 5) (void)cache.Pin(some.id, what == 4 || !some.pinned, "x");
  }
  if (what == 5) (void)cache.SetBudget(TierKind::kRam, 1u << 20);
  if (what == 6) (void)cache.SetBudget(TierKind::kDisk, 1u << 20);
  if (what > 7) {
    (void)cache.SetBudget(TierKind::kRam, 256u << 20);
    (void)cache.SetBudget(TierKind::kDisk, 1u << 30);
  }
}

class ManagerThreads : public ::testing::TestWithParam<RigModel (*)()> {};

TEST_P(ManagerThreads, ServingGoesOnWhileOthersManage) {
  RigOptions options(GetParam()());
  options.durable = true;
  options.cache.reader_threads = 3;
  options.cache.capture_buffer_bytes = 1u << 20;
  options.cache.read_buffer_bytes = 1u << 20;
  Rig rig(options);
  const std::vector<Token> shared = Tokens(1, 200);
  Turns turns;
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&] {
      std::uint64_t seen = 0;
      while (turns.Wait(&seen)) Look(rig.cache());
    });
  }
  for (std::uint64_t i = 0; i < 2; ++i) {
    others.emplace_back([&, i] {
      std::mt19937_64 random(i);
      std::uint64_t seen = 0;
      while (turns.Wait(&seen)) Change(rig.cache(), random);
    });
  }
  others.emplace_back([&] {
    std::uint64_t seen = 0;
    while (turns.Wait(&seen)) rig.cache().Prefetch(rig.identity(), shared);
  });

  std::mt19937_64 random(7);
  std::vector<std::unique_ptr<FakeEngine>> engines;
  engines.push_back(rig.MakeEngine({1}));
  engines.push_back(rig.MakeEngine({1, 1}));
  std::vector<std::vector<Token>> texts = {shared};
  for (int turn = 0; turn < 150; ++turn) {
    turns.Next();
    FakeEngine& engine = *engines[random() % engines.size()];
    const std::vector<Token>& text = texts[random() % texts.size()];
    const std::size_t keep = random() % 3 == 0 ? random() % text.size() : text.size();
    const std::vector<Token> prompt = Fork(text, keep, random(), 1 + random() % 200);
    if (random() % 5 == 0) {
      auto abandoned = rig.cache().Lookup(rig.Request(prompt));
      if (random() % 2 == 0) abandoned->WaitReady(1);
    }
    rig.Run(engine, prompt);
    rig.ParkOnce(engine, random() % 4 != 0);
    if (prompt.size() < 2000) texts.push_back(prompt);
    if (texts.size() > 20) texts.erase(texts.begin() + 1);
  }
  turns.End();
  for (std::thread& thread : others) thread.join();
  rig.ExpectNothingLeaks();
}

INSTANTIATE_TEST_SUITE_P(Models, ManagerThreads,
                         ::testing::Values(FullModel, WindowModel, MixedModel));

// One restore holds all read buffers and is not stepped; another one, and every reader, waits for
// them without going round.
TEST(ManagerWaiting, WhoWaitsForBuffersTakesNoTime) {
  RigOptions options;
  options.ram = false;
  options.durable = true;
  options.cache.ram_budget_bytes = 0;
  options.cache.read_buffer_bytes = 1u << 20;  // 8 extents of 128 KiB
  options.cache.reader_threads = 2;
  Rig rig(options);
  std::vector<std::vector<Token>> texts;
  for (std::uint64_t i = 0; i < 2; ++i) {
    auto engine = rig.MakeEngine();
    engine->Append(Tokens(10 + i, 4096));  // 16 extents
    rig.Park(*engine);
    texts.push_back(engine->tokens());
  }
  std::atomic<int> reads{0};
  absl::Notification stuck;
  absl::Notification both_stuck;
  rig.durable().SetObserver([&](const CallSubject& call) {
    // Eight are read, and a reader is on its way to a ninth buffer: one, as the import has enough.
    if (call.call != TierCall::kReadExtent) return;
    const int count = ++reads;
    if (count == 9) stuck.Notify();
    if (count == 10) both_stuck.Notify();
  });
  auto first = rig.cache().Lookup(rig.Request(Fork(texts[0], 4096, 1, 5)));
  stuck.WaitForNotification();
  auto second = rig.cache().Lookup(rig.Request(Fork(texts[1], 4096, 1, 5)));
  auto other = rig.MakeEngine();
  ASSERT_TRUE(second->WaitReady(30000));  // to be placed
  EXPECT_EQ(second->Step(*other, 1000), Restore::State::kReading);
  both_stuck.WaitForNotification();
  const std::clock_t before = std::clock();  // of all threads of this process
  EXPECT_FALSE(second->WaitReady(400));
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 0.1);
  EXPECT_EQ(reads, 10);
  auto one = rig.MakeEngine();
  // By turns: what one has read but not imported is what the other waits for.
  const auto going = [](const Restore& restore) {
    return restore.state() == Restore::State::kReading ||
           restore.state() == Restore::State::kPlanning;
  };
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while ((going(*first) || going(*second)) && absl::Now() < deadline) {
    if (going(*first) && first->WaitReady(1)) first->Step(*one, 1000);
    if (going(*second) && second->WaitReady(1)) second->Step(*other, 1000);
  }
  EXPECT_EQ(first->state(), Restore::State::kRestored);
  EXPECT_EQ(second->state(), Restore::State::kRestored);
  EXPECT_EQ(reads, 32);
}

TEST(ManagerReaders, AllReadWhileTheImportHasNothing) {
  RigOptions options;
  options.durable = true;
  options.cache.ram_budget_bytes = 0;
  options.cache.reader_threads = 3;
  Rig rig(options);
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 4096));  // 16 extents
  rig.Park(*engine);
  std::atomic<int> reads{0};
  absl::Notification all;
  rig.durable().SetObserver([&](const CallSubject& call) {
    if (call.call != TierCall::kReadExtent) return;
    if (++reads == 3) all.Notify();
    // None comes back before all three are here.
    all.WaitForNotificationWithTimeout(absl::Seconds(30));
  });
  auto restore = rig.cache().Lookup(rig.Request(Fork(engine->tokens(), 4096, 1, 5)));
  EXPECT_TRUE(all.WaitForNotificationWithTimeout(absl::Seconds(30)));
  auto fresh = rig.MakeEngine();
  EXPECT_EQ(rig.StepToEnd(*restore, *fresh), Restore::State::kRestored);
  EXPECT_EQ(reads, 16);
}

// Does something between the moment when its place is found and the capture of its rows.
class InterruptedEngine : public FakeEngine {
 public:
  InterruptedEngine(FakeEngineOptions options, std::function<void()> interrupt)
      : FakeEngine(std::move(options)), interrupt_(std::move(interrupt)) {}
  absl::Status BeginCapture(std::uint32_t tokens) override {
    if (interrupt_) std::exchange(interrupt_, nullptr)();
    return FakeEngine::BeginCapture(tokens);
  }

 private:
  std::function<void()> interrupt_;
};

// A park goes on where a conversation ends; before it is queued the conversation loses its end and
// grows again, with other tokens, beyond that place.
TEST(ManagerParking, NothingIsAddedToAConversationThatHasGrownAnewMeanwhile) {
  Rig rig;
  const std::vector<Token> text = Tokens(1, 350);
  const auto first = rig.MakeEngine();
  for (std::size_t at = 0; at < 300; at += 100) {
    first->Append(absl::MakeConstSpan(text).subspan(at, 100));
    rig.Park(*first);
  }
  const ConversationId id = rig.cache().List(1, ConversationId()).at(0).id;
  const auto other = rig.MakeEngine();
  other->Append(Fork(text, 100, 2, 300));
  FakeEngineOptions options;
  options.planes = RigModel().layout().planes;
  options.stages = first->stages();
  InterruptedEngine engine(options, [&] {
    Fault gone;
    gone.call = TierCall::kReadExtents;
    gone.status = absl::NotFoundError("gone");
    gone.key = ParkKey{id, 1};
    rig.ram().AddFault(gone);
    rig.Look(text);
    EXPECT_EQ(rig.cache().Get(id)->tokens, 100u);
    EXPECT_EQ(rig.Park(*other).conversation, id);
    EXPECT_EQ(rig.cache().Get(id)->tokens, 400u);
  });
  engine.Append(text);
  const ParkOutcome outcome = rig.ParkOnce(engine);
  EXPECT_FALSE(outcome.complete);
  // Asked again, it parks all of it, beside the other one.
  EXPECT_EQ(rig.Park(engine).captured_tokens, 350u);
  for (const std::vector<Token>& parked : {text, other->tokens()}) {
    const auto fresh = rig.MakeEngine();
    const Restored restored = rig.Run(*fresh, Fork(parked, parked.size(), 3, 5));
    EXPECT_EQ(restored.record.matched_tokens, parked.size());
    EXPECT_EQ(restored.state, Restore::State::kRestored);
  }
}

// The cache goes while queues and readers are busy.
TEST(ManagerClosing, ClosingInTheMiddleIsSafe) {
  for (int round = 0; round < 20; ++round) {
    RigOptions options;
    options.durable = true;
    Rig rig(options);
    auto engine = rig.MakeEngine();
    engine->Append(Tokens(1, 500));
    rig.ParkOnce(*engine);
    rig.Settle();
    (void)rig.cache().SetBudget(TierKind::kRam, 0);
    engine->Append(Tokens(2, 500));
    rig.ParkOnce(*engine);
    const std::vector<Token> prompt = Fork(engine->tokens(), 1000, 3, 5);
    {
      auto one = rig.cache().Lookup(rig.Request(prompt));
      auto two = rig.cache().Lookup(rig.Request(prompt));
      if (round % 2 == 0) two->WaitReady(30000);
    }
    rig.Close();
    // What was queued is written before the cache has gone.
    rig.Open();
    EXPECT_EQ(rig.cache().List(1, ConversationId()).at(0).tokens, 1000u);
  }
}

}  // namespace
}  // namespace parkade::test
