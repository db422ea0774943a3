// Management: forget, pin, budgets, slots, drain, and what the lists say.

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <utility>

#include "absl/synchronization/notification.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

using State = Restore::State;

RigOptions Both() {
  RigOptions options;
  options.durable = true;
  return options;
}

std::vector<ConversationInfo> All(Rig& rig) { return rig.cache().List(1000, ConversationId()); }

std::uint32_t ParksIn(Tier& tier) {
  std::uint32_t parks = 0;
  EXPECT_TRUE(tier.Enumerate([&](const ParkSummary&) { ++parks; }).ok());
  return parks;
}

// Trunk of 600 tokens in two parks, branch that leaves it at 400. Returns their ids.
struct Tree {
  std::vector<Token> trunk, branch;
  ConversationId root, fork;
};
Tree MakeTree(Rig& rig) {
  Tree tree;
  tree.trunk = Tokens(1, 600);
  tree.branch = Fork(tree.trunk, 400, 2, 200);
  auto engine = rig.MakeEngine();
  engine->Append(absl::MakeConstSpan(tree.trunk).subspan(0, 300));
  rig.Park(*engine);
  engine->Append(absl::MakeConstSpan(tree.trunk).subspan(300));
  rig.Park(*engine);
  auto other = rig.MakeEngine();
  rig.Run(*other, tree.branch);
  rig.Park(*other);
  for (const ConversationInfo& info : All(rig)) {
    (info.forked_from.has_value() ? tree.fork : tree.root) = info.id;
  }
  return tree;
}

TEST(ManagerListing, ForgetLeavesNothing) {
  Rig rig(Both());
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 300);
  engine->Append(text);
  rig.Park(*engine);
  const ConversationId id = All(rig).at(0).id;
  ASSERT_TRUE(rig.cache().Pin(id, true, "secret name").ok());
  const auto forgotten = rig.cache().Forget(id);
  ASSERT_TRUE(forgotten.ok());
  EXPECT_EQ(*forgotten, 0u);
  EXPECT_TRUE(All(rig).empty());
  EXPECT_FALSE(rig.cache().Get(id).has_value());
  EXPECT_TRUE(absl::IsNotFound(rig.cache().Forget(id).status()));
  EXPECT_TRUE(absl::IsNotFound(rig.cache().Pin(id, true, "")));
  EXPECT_EQ(Miss(rig.Look(text), MissReason::kCold), 299u);
  for (FaultyTier* tier : rig.tiers()) {
    EXPECT_EQ(ParksIn(*tier), 0u);
    EXPECT_TRUE(tier->EnumerateAttributes([](const ConversationAttributes& attributes) {
                      ADD_FAILURE() << attributes.name;
                    })
                    .ok());
  }
}

TEST(ManagerListing, ForgettingAParentKeepsWhatItsForkNeeds) {
  Rig rig(Both());
  const Tree tree = MakeTree(rig);
  const auto kept = rig.cache().Forget(tree.root);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(*kept, 400u);
  ASSERT_EQ(All(rig).size(), 1u);
  EXPECT_EQ(All(rig)[0].id, tree.fork);
  // The forgotten one's own tokens are not matched any more; what the fork shares is, as its.
  const LookupRecord record = rig.Look(Fork(tree.trunk, 600, 5, 5));
  EXPECT_EQ(record.matched_tokens, 400u);
  EXPECT_EQ(record.conversation, tree.fork);
  const LookupRecord early = rig.Look(Fork(tree.trunk, 200, 5, 5));
  EXPECT_EQ(early.matched_tokens, 200u);
  EXPECT_EQ(early.conversation, tree.fork);
  auto engine = rig.MakeEngine();
  EXPECT_EQ(rig.Run(*engine, Fork(tree.branch, 600, 6, 5)).record.reused_tokens, 600u);
  // A new continuation of the shared part is a conversation of its own.
  EXPECT_EQ(rig.Run(*engine, Fork(tree.trunk, 600, 7, 50)).record.reused_tokens, 400u);
  rig.Park(*engine);
  EXPECT_EQ(All(rig).size(), 2u);
  EXPECT_EQ(rig.Run(*engine, Fork(engine->tokens(), 650, 8, 5)).record.reused_tokens, 650u);
}

TEST(ManagerListing, TheLastForkTakesAForgottenParentAlong) {
  Rig rig(Both());
  const Tree tree = MakeTree(rig);
  ASSERT_TRUE(rig.cache().Forget(tree.root).ok());
  EXPECT_EQ(ParksIn(rig.ram()), 3u);
  const auto kept = rig.cache().Forget(tree.fork);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(*kept, 0u);
  EXPECT_EQ(ParksIn(rig.ram()), 0u);
  EXPECT_EQ(ParksIn(rig.durable()), 0u);
  EXPECT_EQ(rig.Look(tree.trunk).matched_tokens, 0u);
}

TEST(ManagerListing, ForgottenIsForgottenAfterARestartToo) {
  for (const bool disk : {false, true}) {
    RigOptions options;
    options.durable = !disk;
    options.disk = disk;
    Rig rig(options);
    const Tree tree = MakeTree(rig);
    ASSERT_TRUE(rig.cache().Pin(tree.root, true, "private").ok());
    ASSERT_TRUE(rig.cache().Forget(tree.root).ok());
    for (int restart = 0; restart < 2; ++restart) {
      rig.Settle();
      rig.Close();
      rig.Open();
      ASSERT_EQ(All(rig).size(), 1u);
      EXPECT_EQ(All(rig)[0].id, tree.fork);
      EXPECT_EQ(rig.Look(Fork(tree.trunk, 600, 5, 5)).matched_tokens, 400u);
      auto engine = rig.MakeEngine();
      EXPECT_EQ(rig.Run(*engine, Fork(tree.branch, 600, 6, 5)).record.reused_tokens, 600u);
    }
    ASSERT_TRUE(rig.cache().Forget(tree.fork).ok());
    EXPECT_EQ(ParksIn(rig.durable()), 0u);
    EXPECT_TRUE(rig.durable()
                    .EnumerateAttributes([](const ConversationAttributes& attributes) {
                      ADD_FAILURE() << attributes.name << attributes.name_tokens;
                    })
                    .ok());
  }
}

TEST(ManagerListing, ForgettingWhileItIsQueuedWritesNothing) {
  Rig rig(Both());
  absl::Notification go_on;
  absl::Notification arrived;
  rig.ram().SetObserver([&](const CallSubject& call) {
    if (call.call != TierCall::kStore || call.keys[0].park != 0) return;
    arrived.Notify();
    go_on.WaitForNotification();
  });
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 300));
  rig.ParkOnce(*engine);
  engine->Append(Tokens(2, 300));
  rig.ParkOnce(*engine);
  arrived.WaitForNotification();
  const ConversationId id = All(rig).at(0).id;
  EXPECT_EQ(All(rig)[0].tiers, std::vector<TierKind>{TierKind::kRam});
  ASSERT_TRUE(rig.cache().Forget(id).ok());
  EXPECT_TRUE(All(rig).empty());
  go_on.Notify();
  rig.Settle();
  EXPECT_EQ(ParksIn(rig.ram()), 0u);
  EXPECT_EQ(ParksIn(rig.durable()), 0u);
  EXPECT_EQ(rig.cache().Queue().capture_bytes, 0u);
  EXPECT_EQ(rig.durable().calls(TierCall::kStore), 0u);
}

TEST(ManagerListing, AForkSurvivesItsParentBeingForgottenInTheQueue) {
  Rig rig(Both());
  absl::Notification go_on;
  rig.ram().SetObserver([&](const CallSubject& call) {
    if (call.call == TierCall::kStore) go_on.WaitForNotification();
  });
  auto engine = rig.MakeEngine();
  const std::vector<Token> trunk = Tokens(1, 300);
  engine->Append(trunk);
  rig.ParkOnce(*engine);
  const ConversationId root = All(rig).at(0).id;
  auto other = rig.MakeEngine();
  const std::vector<Token> branch = Fork(trunk, 200, 2, 100);
  rig.Run(*other, branch);
  rig.ParkOnce(*other);
  const auto kept = rig.cache().Forget(root);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(*kept, 200u);
  go_on.Notify();
  rig.Settle();
  ASSERT_EQ(All(rig).size(), 1u);
  EXPECT_EQ(All(rig)[0].durable_tokens, 300u);
  EXPECT_EQ(rig.Run(*engine, Fork(branch, 300, 3, 5)).record.reused_tokens, 300u);
}

// A capture is under way when another thread forgets what it continues.
TEST(ManagerListing, ForgettingDuringACaptureIsSafe) {
  class Interrupted : public FakeEngine {
   public:
    using FakeEngine::FakeEngine;
    absl::Status Export(const ExtentInfo& extent, char* destination) override {
      if (before_export) std::exchange(before_export, nullptr)();
      return FakeEngine::Export(extent, destination);
    }
    std::function<void()> before_export;
  };
  Rig rig;
  FakeEngineOptions options;
  options.planes = FullModel().layout().planes;
  options.max_tokens = 4096;
  Interrupted engine(options);
  engine.Append(Tokens(1, 300));
  rig.Park(engine);
  const ConversationId id = All(rig).at(0).id;
  engine.Append(Tokens(2, 300));
  engine.before_export = [&] { EXPECT_TRUE(rig.cache().Forget(id).ok()); };
  const ParkOutcome outcome = rig.ParkOnce(engine);
  EXPECT_FALSE(outcome.complete);
  rig.Settle();
  EXPECT_TRUE(All(rig).empty());
  // The next call starts again, as a conversation of its own.
  EXPECT_EQ(rig.Park(engine).captured_tokens, 600u);
  ASSERT_EQ(All(rig).size(), 1u);
  EXPECT_FALSE(All(rig)[0].forked_from.has_value());
  EXPECT_EQ(rig.cache().Queue().capture_bytes, 0u);
}

// A slot still has the rows, and the task that made them has not ended.
TEST(ManagerListing, WhatATaskHasAfterItWasForgottenIsNotKept) {
  Rig rig;
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 200));
  ParkRequest request{rig.identity(), engine->tokens()};
  request.conversation = rig.cache().Park(*engine, request).conversation;
  ASSERT_FALSE(request.conversation.IsZero());
  ASSERT_TRUE(rig.cache().Forget(request.conversation).ok());
  engine->Append(Tokens(2, 100));
  request.tokens = engine->tokens();
  const ParkOutcome none = rig.cache().Park(*engine, request);
  EXPECT_TRUE(none.complete);
  EXPECT_EQ(none.captured_tokens, 0u);
  EXPECT_TRUE(rig.cache().List(10, ConversationId()).empty());
  // A name for it, or the next task.
  ParkRequest named = request;
  named.always = true;
  const ParkOutcome kept = rig.cache().Park(*engine, named);
  EXPECT_EQ(kept.captured_tokens, 300u);
  ASSERT_TRUE(rig.cache().Forget(kept.conversation).ok());
  request.conversation = ConversationId();
  EXPECT_EQ(rig.cache().Park(*engine, request).captured_tokens, 300u);
}

TEST(ManagerListing, PinnedConversationsStay) {
  Rig rig(Both());
  const Tree tree = MakeTree(rig);
  ASSERT_TRUE(rig.cache().Pin(tree.fork, true, "kept").ok());
  for (const TierKind kind : {TierKind::kRam, TierKind::kDisk}) {
    ASSERT_TRUE(rig.cache().SetBudget(kind, 0).ok());
  }
  // The pinned fork, and of its parent what it stands on.
  std::set<ConversationId> left;
  for (const ConversationInfo& info : All(rig)) left.insert(info.id);
  EXPECT_EQ(left, (std::set<ConversationId>{tree.root, tree.fork}));
  const auto info = rig.cache().Get(tree.fork);
  ASSERT_TRUE(info.has_value());
  EXPECT_TRUE(info->pinned);
  EXPECT_EQ(info->name, "kept");
  EXPECT_EQ(info->evict_rank, 1u);
  auto engine = rig.MakeEngine();
  EXPECT_EQ(rig.Run(*engine, Fork(tree.branch, 600, 3, 5)).record.reused_tokens, 600u);
  ASSERT_TRUE(rig.cache().Pin(tree.fork, false, "").ok());
  for (const TierKind kind : {TierKind::kRam, TierKind::kDisk}) {
    ASSERT_TRUE(rig.cache().SetBudget(kind, 0).ok());
  }
  EXPECT_TRUE(All(rig).empty());
}

TEST(ManagerListing, PinsAndNamesSurviveARestart) {
  Rig rig(Both());
  const Tree tree = MakeTree(rig);
  ASSERT_TRUE(rig.cache().Pin(tree.root, true, "first").ok());
  ASSERT_TRUE(rig.cache().Pin(tree.root, true, "second").ok());
  rig.Settle();
  rig.Close();
  rig.Open();
  const auto info = rig.cache().Get(tree.root);
  ASSERT_TRUE(info.has_value());
  EXPECT_TRUE(info->pinned);
  EXPECT_EQ(info->name, "second");
  EXPECT_EQ(info->hits, 1u);
  EXPECT_EQ(info->tokens, 600u);
  EXPECT_EQ(info->durable_tokens, 600u);
  EXPECT_EQ(rig.cache().Get(tree.fork)->forked_from, tree.root);
}

TEST(ManagerListing, PinsHoldAtMostFourFifthsOfATier) {
  Rig rig(Both());
  const Tree tree = MakeTree(rig);
  const std::uint64_t used = rig.durable().usage().used_bytes;
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kDisk, used + 8192).ok());
  ASSERT_TRUE(rig.cache().Pin(tree.root, true, "").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(rig.cache().Pin(tree.fork, true, "")));
  EXPECT_FALSE(rig.cache().Get(tree.fork)->pinned);
  // Pinned already: naming it takes nothing more.
  EXPECT_TRUE(rig.cache().Pin(tree.root, true, "name").ok());
  for (const TierInfo& tier : rig.cache().Tiers()) {
    EXPECT_EQ(tier.pinned_bytes, 600u * 8 * 64);
    EXPECT_EQ(tier.conversations, 2u);
  }
}

TEST(ManagerListing, DrainDropsAndCountsWhatIsLeft) {
  Rig rig(Both());
  absl::Notification go_on;
  absl::Notification arrived;
  rig.durable().SetObserver([&](const CallSubject& call) {
    if (call.call != TierCall::kStore || go_on.HasBeenNotified()) return;
    arrived.Notify();
    go_on.WaitForNotification();
  });
  auto engine = rig.MakeEngine();
  for (std::size_t i = 0; i < 3; ++i) {
    engine->Append(Tokens(10 + i, 100));
    rig.ParkOnce(*engine);
    // Each one is in RAM before the next comes, so they stay three.
    const auto in_ram = [i](const RecordedEvents& e) { return e.spills.size() == i + 1; };
    ASSERT_TRUE(rig.sink().WaitUntil(in_ram));
  }
  arrived.WaitForNotification();
  rig.cache().Drain(0);
  const RecordedEvents events = rig.sink().events();
  ASSERT_EQ(events.skips.size(), 1u);
  EXPECT_EQ(events.skips[0].reason, SkipReason::kQueueFull);
  EXPECT_EQ(events.skips[0].tokens, 200u);
  go_on.Notify();
  rig.Settle();
  // RAM has all of it, the disk what was being written.
  EXPECT_EQ(All(rig).at(0).tokens, 300u);
  EXPECT_EQ(All(rig).at(0).durable_tokens, 100u);
  EXPECT_EQ(rig.durable().calls(TierCall::kStore), 1u);
}

TEST(ManagerListing, SlotsLimitTheRootsInRam) {
  RigOptions options = Both();
  options.cache.ram_slots = 2;
  Rig rig(options);
  const Tree tree = MakeTree(rig);
  std::vector<std::unique_ptr<FakeEngine>> engines;
  for (std::uint64_t i = 0; i < 2; ++i) {
    engines.push_back(rig.MakeEngine());
    engines.back()->Append(Tokens(30 + i, 200));
    rig.Park(*engines.back());
  }
  // The oldest family, trunk and branch, went to the disk alone.
  for (const ConversationInfo& info : All(rig)) {
    const bool old = info.id == tree.root || info.id == tree.fork;
    EXPECT_EQ(info.tiers.size(), old ? 1u : 2u);
    EXPECT_EQ(info.durable_tokens, info.tokens);
  }
  const RecordedEvents events = rig.sink().events();
  ASSERT_EQ(events.evictions.size(), 1u);
  EXPECT_EQ(events.evictions[0].reason, EvictReason::kSlots);
  EXPECT_EQ(events.evictions[0].bytes, 800u * 8 * 64);
}

TEST(ManagerListing, ListGoesThroughPages) {
  Rig rig;
  std::set<ConversationId> ids;
  for (std::uint64_t i = 0; i < 5; ++i) {
    auto engine = rig.MakeEngine();
    engine->Append(Tokens(40 + i, 100));
    rig.Park(*engine);
  }
  ConversationId after;
  std::set<std::uint32_t> ranks;
  for (int page = 0; page < 3; ++page) {
    const auto list = rig.cache().List(2, after);
    EXPECT_EQ(list.size(), page < 2 ? 2u : 1u);
    for (const ConversationInfo& info : list) {
      EXPECT_TRUE(after < info.id);
      after = info.id;
      ids.insert(info.id);
      ranks.insert(info.evict_rank);
      const auto one = rig.cache().Get(info.id);
      ASSERT_TRUE(one.has_value());
      EXPECT_EQ(one->evict_rank, info.evict_rank);
      EXPECT_EQ(one->parks.size(), 1u);
    }
  }
  EXPECT_TRUE(rig.cache().List(2, after).empty());
  EXPECT_EQ(ids.size(), 5u);
  EXPECT_EQ(ranks, (std::set<std::uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(rig.cache().Get(ConversationId()).has_value());
  EXPECT_FALSE(rig.cache().Get(ConversationId{1, 2}).has_value());
}

TEST(ManagerListing, AnUnknownTierHasNoBudget) {
  Rig rig;
  EXPECT_TRUE(absl::IsNotFound(rig.cache().SetBudget(TierKind::kDisk, 1)));
}

TEST(ManagerListing, WithoutTiersNothingIsParkedAndNothingFails) {
  RecordingSink sink;
  CacheOptions options;
  options.ram_budget_bytes = 0;
  auto cache = ConversationCache::Open(options, {}, &sink);
  ASSERT_TRUE(cache.ok());
  FakeEngineOptions model;
  model.planes = FullModel().layout().planes;
  FakeEngine engine(model);
  const auto digest = (*cache)->RegisterIdentity(engine.identity(), engine.layout());
  ASSERT_TRUE(digest.ok());
  const std::vector<Token> text = Tokens(1, 100);
  engine.Append(text);
  EXPECT_EQ((*cache)->Park(engine, ParkRequest{*digest, text, true}).captured_tokens, 0u);
  (*cache)->FinishLookup((*cache)->Lookup(LookupRequest{*digest, text, 100, 0, true}), 0);
  (*cache)->Drain(0);
  EXPECT_EQ((*cache)->Queue().capture_bytes, 0u);
}

}  // namespace
}  // namespace parkade::test
