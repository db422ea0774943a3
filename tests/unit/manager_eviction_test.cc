// What goes is planned ahead; whatever happens to a conversation before its turn is respected.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

constexpr std::size_t kChats = 8;
constexpr std::uint64_t kChatBytes = 300 * 8 * 64;

std::vector<Token> Chat(std::size_t i) { return Tokens(100 + i, 300); }

class ManagerEviction : public ::testing::Test {
 protected:
  ManagerEviction() {
    for (std::size_t i = 0; i < kChats; ++i) {
      auto engine = rig_.MakeEngine();
      engine->Append(Chat(i));
      rig_.Park(*engine);
      // The newest of the list is the one just parked.
      const auto list = rig_.cache().List(100, ConversationId());
      ids_.push_back(std::max_element(list.begin(), list.end(), [](const auto& a, const auto& b) {
                       return a.last_used_unix_ms < b.last_used_unix_ms;
                     })->id);
    }
  }

  // Lowers the budget so that one chat has to go.
  void EvictOne() {
    const TierUsage usage = rig_.ram().usage();
    const std::uint64_t around = (256ull << 20) - first_budget_;
    ASSERT_TRUE(
        rig_.cache().SetBudget(TierKind::kRam, around + usage.used_bytes - kChatBytes / 2).ok());
  }
  std::vector<std::size_t> Left() {
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < kChats; ++i) {
      if (rig_.cache().Get(ids_[i]).has_value()) left.push_back(i);
    }
    return left;
  }

  Rig rig_;
  const std::uint64_t first_budget_ = rig_.ram().usage().budget_bytes;
  std::vector<ConversationId> ids_;
};

TEST_F(ManagerEviction, WhatIsUsedBeforeItsTurnStays) {
  EvictOne();
  EXPECT_EQ(Left(), (std::vector<std::size_t>{1, 2, 3, 4, 5, 6, 7}));
  auto engine = rig_.MakeEngine();
  EXPECT_EQ(rig_.Run(*engine, Fork(Chat(1), 300, 1, 5)).record.reused_tokens, 300u);
  EvictOne();
  EXPECT_EQ(Left(), (std::vector<std::size_t>{1, 3, 4, 5, 6, 7}));
}

TEST_F(ManagerEviction, WhatAForkStandsOnStays) {
  EvictOne();
  auto engine = rig_.MakeEngine();
  engine->Append(Fork(Chat(1), 200, 1, 10));
  rig_.Park(*engine);
  EvictOne();
  EXPECT_EQ(Left(), (std::vector<std::size_t>{1, 3, 4, 5, 6, 7}));
}

TEST_F(ManagerEviction, WhatIsPinnedStaysAndWhatIsUnpinnedHasItsTurn) {
  ASSERT_TRUE(rig_.cache().Pin(ids_[0], true, "").ok());
  EvictOne();
  EXPECT_EQ(Left(), (std::vector<std::size_t>{0, 2, 3, 4, 5, 6, 7}));
  ASSERT_TRUE(rig_.cache().Pin(ids_[2], true, "").ok());
  EvictOne();
  EXPECT_EQ(Left(), (std::vector<std::size_t>{0, 2, 4, 5, 6, 7}));
  ASSERT_TRUE(rig_.cache().Pin(ids_[0], false, "").ok());
  EvictOne();
  EXPECT_EQ(Left(), (std::vector<std::size_t>{2, 4, 5, 6, 7}));
}

TEST_F(ManagerEviction, WhatARestoreReadsStays) {
  EvictOne();
  auto restore = rig_.cache().Lookup(rig_.Request(Fork(Chat(1), 300, 1, 5)));
  ASSERT_TRUE(restore->WaitReady(30000));
  EvictOne();
  EXPECT_EQ(Left(), (std::vector<std::size_t>{1, 3, 4, 5, 6, 7}));
}

TEST_F(ManagerEviction, RanksAreTheOrderInWhichTheyGo) {
  ASSERT_TRUE(rig_.cache().Pin(ids_[3], true, "").ok());
  std::vector<std::uint32_t> ranks;
  for (const ConversationId& id : ids_) ranks.push_back(rig_.cache().Get(id)->evict_rank);
  EXPECT_EQ(ranks, (std::vector<std::uint32_t>{0, 1, 2, 7, 3, 4, 5, 6}));
  for (const std::uint32_t limit : {1u, 3u, 100u}) {
    ConversationId after;
    for (auto page = rig_.cache().List(limit, after); !page.empty();
         page = rig_.cache().List(limit, after)) {
      for (const ConversationInfo& info : page) {
        const auto place = std::find(ids_.begin(), ids_.end(), info.id) - ids_.begin();
        EXPECT_EQ(info.evict_rank, ranks[static_cast<std::size_t>(place)]);
      }
      after = page.back().id;
    }
  }
  // One by one, as ranked.
  std::vector<std::size_t> gone;
  for (int i = 0; i < 7; ++i) {
    const std::vector<std::size_t> before = Left();
    EvictOne();
    const std::vector<std::size_t> left = Left();
    for (const std::size_t chat : before) {
      if (std::find(left.begin(), left.end(), chat) == left.end()) gone.push_back(chat);
    }
  }
  EXPECT_EQ(gone, (std::vector<std::size_t>{0, 1, 2, 4, 5, 6, 7}));
}

// Chats of one and of several parks, forks of them, some asked for more often, one pinned.
std::vector<ConversationInfo> ParkAVariety(Rig& rig) {
  std::vector<std::vector<Token>> texts;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const bool fork = i % 3 == 2;
    texts.push_back(fork ? Fork(texts[i - 2], 200, 900 + i, 150) : Tokens(800 + i, 300));
    auto engine = rig.MakeEngine();
    if (fork) {
      rig.Run(*engine, texts[i]);
    } else {
      engine->Append(texts[i]);
    }
    rig.Park(*engine);
    if (i % 4 == 1) {
      engine->Append(Tokens(700 + i, 200));
      rig.Park(*engine);
    }
  }
  // More hits, so that the oldest is not the first to go.
  for (int hit = 0; hit < 3; ++hit) {
    auto engine = rig.MakeEngine();
    rig.Run(*engine, Fork(texts[0], 300, 600 + hit, 5));
  }
  const std::vector<ConversationInfo> listed = rig.cache().List(100, ConversationId());
  EXPECT_TRUE(rig.cache().Pin(listed[listed.size() / 2].id, true, "kept").ok());
  return rig.cache().List(100, ConversationId());
}

// The rank that is announced is the order in which conversations go.
void ExpectRanksAreTheOrder(Rig& rig, TierKind kind, FaultyTier& tier, std::uint64_t beside) {
  const std::vector<ConversationInfo> announced = ParkAVariety(rig);
  ASSERT_EQ(announced.size(), 12u);
  std::vector<ConversationId> wanted(announced.size());
  std::size_t stay = 0;
  for (const ConversationInfo& info : announced) {
    ASSERT_LT(info.evict_rank, wanted.size());
    wanted[info.evict_rank] = info.id;
    stay += info.pinned ? 1 : 0;
  }
  std::vector<ConversationId> gone;
  std::vector<ConversationInfo> left = announced;
  for (int step = 0; step < 200 && left.size() > stay; ++step) {
    const std::uint64_t used = tier.usage().used_bytes;
    ASSERT_TRUE(rig.cache().SetBudget(kind, beside + used - 1).ok());
    const std::vector<ConversationInfo> now = rig.cache().List(100, ConversationId());
    for (const ConversationInfo& before : left) {
      const bool here =
          std::any_of(now.begin(), now.end(),
                      [&before](const ConversationInfo& info) { return info.id == before.id; });
      if (!here) gone.push_back(before.id);
    }
    left = now;
    if (tier.usage().used_bytes == used) break;  // nothing else may go
  }
  // What the pinned one stands on stays as well.
  EXPECT_GE(gone.size(), announced.size() - 2);
  wanted.resize(gone.size());
  EXPECT_EQ(gone, wanted);
}

TEST(ManagerRanks, AreTheOrderInWhichConversationsLeaveRam) {
  Rig rig;
  const std::uint64_t beside = (256ull << 20) - rig.ram().usage().budget_bytes;
  ExpectRanksAreTheOrder(rig, TierKind::kRam, rig.ram(), beside);
}

TEST(ManagerRanks, AreTheOrderInWhichConversationsLeaveTheDisk) {
  RigOptions options;
  options.ram = false;
  options.durable = true;
  Rig rig(options);
  ExpectRanksAreTheOrder(rig, TierKind::kDisk, rig.durable(), 0);
}

// The keys of every removal from the tier, in the order of the calls.
std::vector<std::vector<ParkKey>> RemovalsFrom(FaultyTier& tier, const std::function<void()>& act) {
  std::vector<std::vector<ParkKey>> calls;
  tier.SetObserver([&calls](const CallSubject& call) {
    if (call.call != TierCall::kRemove && call.call != TierCall::kForget) return;
    if (!call.keys.empty()) calls.emplace_back(call.keys.begin(), call.keys.end());
  });
  act();
  tier.SetObserver(nullptr);
  return calls;
}

// A process that ends between two calls must not leave a fork without what it stands on. Ids are
// random, so their order must not matter: several times.
TEST(ManagerRemoval, AForkGoesBeforeTheForgottenOneThatItStandsOn) {
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    RigOptions options;
    options.ram = false;
    options.cache.ram_budget_bytes = 0;
    options.durable = true;
    Rig rig(options);
    auto engine = rig.MakeEngine();
    engine->Append(Tokens(1, 300));
    const ConversationId parent = rig.Park(*engine).conversation;
    rig.Run(*engine, Fork(engine->tokens(), 200, 2, 100));
    const ConversationId fork = rig.Park(*engine).conversation;
    EXPECT_EQ(*rig.cache().Forget(parent), 200u);
    const auto calls = RemovalsFrom(rig.durable(), [&] {
      if (round % 2 == 0) {
        EXPECT_TRUE(rig.cache().SetBudget(TierKind::kDisk, 0).ok());
      } else {
        EXPECT_TRUE(rig.cache().Forget(fork).ok());
      }
    });
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(calls[0].front().conversation, fork);
    EXPECT_EQ(calls[1].front().conversation, parent);
  }
}

// Of a forgotten chat a fork keeps less now. The process is killed: nothing is written at its end.
TEST(ManagerRemoval, AForgottenOneStaysForgottenWhenItsForksGo) {
  RigOptions options;
  options.ram = false;
  options.cache.ram_budget_bytes = 0;
  options.disk = true;
  Rig rig(options);
  auto engine = rig.MakeEngine();
  std::vector<ConversationId> forks;
  std::optional<ConversationId> parent;
  for (const std::uint32_t tokens : {150u, 300u}) {
    engine->Append(Tokens(tokens, 150));
    parent = rig.Park(*engine).conversation;
  }
  const std::vector<Token> text = engine->tokens();
  for (const std::uint32_t at : {100u, 200u}) {
    rig.Run(*engine, Fork(text, at, at, 100));
    forks.push_back(rig.Park(*engine).conversation);
  }
  EXPECT_EQ(*rig.cache().Forget(*parent), 200u);
  EXPECT_TRUE(rig.cache().Forget(forks[1]).ok());
  Fault dead;
  for (const TierCall call : {TierCall::kWriteAttributes, TierCall::kStore, TierCall::kRemove}) {
    dead.call = call;
    rig.durable().AddFault(dead);
  }
  rig.Close();
  rig.Open();
  const auto list = rig.cache().List(10, ConversationId());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].id, forks[0]);
}

// Nothing would ask for it again: it would take room until the next start, and be back then.
TEST(ManagerRemoval, WhatATierRefusedToRemoveGoesLater) {
  RigOptions options;
  options.ram = false;
  options.cache.ram_budget_bytes = 0;
  options.durable = true;
  Rig rig(options);
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 300));
  const ConversationId forgotten = rig.Park(*engine).conversation;
  rig.Run(*engine, Tokens(2, 300));
  const ConversationId evicted = rig.Park(*engine).conversation;
  Fault refusal;
  for (const TierCall call : {TierCall::kRemove, TierCall::kForget}) {
    refusal.call = call;
    rig.durable().AddFault(refusal);
  }
  EXPECT_FALSE(rig.cache().Forget(forgotten).ok());
  EXPECT_TRUE(rig.cache().SetBudget(TierKind::kDisk, 0).ok());
  EXPECT_TRUE(rig.cache().List(10, ConversationId()).empty());
  EXPECT_EQ(rig.sink().events().errors.size(), 1u);
  EXPECT_TRUE(rig.cache().SetBudget(TierKind::kDisk, 1ull << 30).ok());
  rig.durable().ClearFaults();
  rig.Run(*engine, Tokens(3, 300));
  const ConversationId stored = rig.Park(*engine).conversation;
  std::vector<ConversationId> held;
  EXPECT_TRUE(
      rig.durable()
          .Enumerate([&](const ParkSummary& park) { held.push_back(park.key.conversation); })
          .ok());
  EXPECT_EQ(held, std::vector<ConversationId>{stored});
  EXPECT_FALSE(stored == evicted);
}

}  // namespace
}  // namespace parkade::test
