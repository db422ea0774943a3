// Index and catalogue stay within their bound: the oldest leaves are not found any more, and that
// is all that happens to them.

#include <gtest/gtest.h>

#include <algorithm>

#include "src/manager/catalogue.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

constexpr std::size_t kChats = 60;
constexpr std::size_t kTokens = 6400;  // 100 pages
// What an empty catalogue holds, 64 KiB of small tables, and room for some of the chats.
std::uint64_t SmallLimit() { return Catalogue().memory_bytes() + (160u << 10); }

RigOptions SmallRows(bool ram) {
  RigModel model;
  model.layers = 1;
  model.row_bytes = 8;
  RigOptions options(model);
  options.ram = ram;
  options.durable = true;
  if (!ram) options.cache.ram_budget_bytes = 0;
  return options;
}

std::vector<Token> Chat(std::size_t i) { return Tokens(1000 + i, kTokens); }

void ParkChat(Rig& rig, std::size_t i) {
  auto engine = rig.MakeEngine();
  engine->Append(Chat(i));
  EXPECT_EQ(rig.Park(*engine).captured_tokens, kTokens);
}

bool Found(Rig& rig, std::size_t i) {
  const LookupRecord record = rig.Look(Fork(Chat(i), kTokens, 7, 10));
  if (record.matched_tokens == kTokens) return true;
  EXPECT_EQ(record.matched_tokens, 0u);
  return false;
}

// Chats below `lost` whose miss is counted as evicted. The memory of evicted pages is a table in
// which a later page may take an earlier one's place, so a few are counted as new.
std::size_t CountedAsEvicted(Rig& rig, std::size_t lost) {
  std::size_t evicted = 0;
  for (std::size_t i = 0; i < lost; ++i) {
    const LookupRecord record = rig.Look(Fork(Chat(i), kTokens, 7, 10));
    evicted += Miss(record, MissReason::kEvicted) == kTokens + 9 ? 1 : 0;
  }
  return evicted;
}

// The first chat that is found; all after it must be.
std::size_t FirstFound(Rig& rig) {
  std::size_t first = 0;
  while (first < kChats && !Found(rig, first)) ++first;
  for (std::size_t i = first; i < kChats; ++i) EXPECT_TRUE(Found(rig, i)) << i;
  return first;
}

class ManagerIndexLimit : public ::testing::TestWithParam<bool> {};

TEST_P(ManagerIndexLimit, TheOldestAreNotFoundAnyMore) {
  RigOptions options = SmallRows(GetParam());
  options.cache.index_bytes = SmallLimit();
  Rig rig(options);
  bool trimmed = false;
  for (std::size_t i = 0; i < kChats; ++i) {
    const QueueInfo before = rig.cache().Queue();
    ParkChat(rig, i);
    const QueueInfo after = rig.cache().Queue();
    EXPECT_LE(after.index_bytes, SmallLimit());
    if (after.unindexed_conversations == before.unindexed_conversations) continue;
    trimmed = true;
    // Not further down than it has to go: a chat holds at most 8 KiB.
    EXPECT_LE(after.index_bytes, SmallLimit() - SmallLimit() / 16);
    EXPECT_GT(after.index_bytes + (8u << 10), SmallLimit() - SmallLimit() / 16);
  }
  EXPECT_TRUE(trimmed);
  const std::uint32_t lost = rig.cache().Queue().unindexed_conversations;
  EXPECT_GT(lost, 5u);
  EXPECT_LT(lost, 50u);
  EXPECT_EQ(FirstFound(rig), lost);
  EXPECT_GE(CountedAsEvicted(rig, lost) * 4, lost * 3);
  // Listed, stored and told of.
  const auto list = rig.cache().List(100, ConversationId());
  EXPECT_EQ(list.size(), kChats);
  for (const ConversationInfo& info : list) EXPECT_EQ(info.durable_tokens, kTokens);
  const auto log = rig.sink().events().log;
  const auto told = [](const RecordedEvents::Line& line) {
    return line.level == LogLevel::kWarning && line.text.find("the index is full") == 0;
  };
  EXPECT_EQ(std::count_if(log.begin(), log.end(), told), 1);
  // And evicted like all others.
  for (const TierInfo& tier : rig.cache().Tiers()) {
    EXPECT_TRUE(rig.cache().SetBudget(tier.kind, 1).ok());
  }
  EXPECT_TRUE(rig.cache().List(1, ConversationId()).empty());
  EXPECT_EQ(rig.cache().Queue().unindexed_conversations, 0u);
  EXPECT_EQ(rig.cache().Queue().index_bytes, Catalogue().memory_bytes());
}

// What is found in a store that others fill comes and goes: here it takes no more than its bound,
// for however long, and is found there again.
TEST(ManagerIndexLimitShared, WhatOthersHoldIsLeftToThem) {
  // Without a RAM tier nothing that is only looked at comes nearer.
  RigOptions options = SmallRows(false);
  options.store = std::make_shared<MemoryStore>();
  Rig writer(options);
  for (std::size_t i = 0; i < kChats; ++i) ParkChat(writer, i);
  ASSERT_TRUE(writer.sink().WaitUntil(
      [&](const RecordedEvents&) { return writer.shared().bound() >= kChats; }));
  options.cache.index_bytes = SmallLimit();
  Rig reader(options);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < kChats; ++i) {
      const LookupRecord record = reader.Look(Fork(Chat(i), kTokens, 7, 10));
      EXPECT_EQ(record.matched_tokens, kTokens) << i;
      EXPECT_LE(reader.cache().Queue().index_bytes, SmallLimit());
    }
  }
  EXPECT_EQ(reader.cache().Queue().unindexed_conversations, 0u);
  const std::size_t listed = reader.cache().List(100, ConversationId()).size();
  EXPECT_GT(listed, 5u);
  EXPECT_LT(listed, kChats);
  EXPECT_EQ(reader.shared().bound(), listed);
  EXPECT_EQ(writer.cache().List(100, ConversationId()).size(), kChats);
}

TEST_P(ManagerIndexLimit, TheNewestWinWhenItIsOpened) {
  Rig rig(SmallRows(GetParam()));
  for (std::size_t i = 0; i < kChats; ++i) ParkChat(rig, i);
  EXPECT_EQ(rig.cache().Queue().unindexed_conversations, 0u);
  // The oldest is used again.
  EXPECT_TRUE(Found(rig, 0));
  rig.Settle();
  rig.Close();
  rig.options().cache.index_bytes = SmallLimit();
  rig.Open();
  const QueueInfo opened = rig.cache().Queue();
  EXPECT_LE(opened.index_bytes, SmallLimit());
  const std::uint32_t lost = opened.unindexed_conversations;
  EXPECT_GT(lost, 5u);
  EXPECT_LT(lost, 50u);
  EXPECT_TRUE(Found(rig, 0));
  for (std::size_t i = 1; i < kChats; ++i) EXPECT_EQ(Found(rig, i), i > lost) << i;
  EXPECT_EQ(rig.cache().List(100, ConversationId()).size(), kChats);
}

// What is not found is computed and parked again, and that copy is the one that stays found.
TEST_P(ManagerIndexLimit, WhatIsParkedAgainOwnsItsPages) {
  RigOptions options = SmallRows(GetParam());
  options.cache.index_bytes = SmallLimit();
  Rig rig(options);
  for (std::size_t i = 0; i < kChats; ++i) ParkChat(rig, i);
  ASSERT_FALSE(Found(rig, 0));
  ParkChat(rig, 0);
  EXPECT_TRUE(Found(rig, 0));
  EXPECT_EQ(rig.cache().List(100, ConversationId()).size(), kChats + 1);
  rig.Settle();
  rig.Close();
  rig.options().cache.index_bytes = 64u << 20;
  rig.Open();
  for (std::size_t i = 0; i < kChats; ++i) EXPECT_TRUE(Found(rig, i)) << i;
  // The first copy is the oldest now and goes first.
  EXPECT_EQ(rig.cache().Queue().unindexed_conversations, 0u);
  for (const ConversationInfo& info : rig.cache().List(100, ConversationId())) {
    if (info.evict_rank != 0) continue;
    EXPECT_EQ(info.tokens, kTokens);
    ASSERT_TRUE(rig.cache().Forget(info.id).ok());
  }
  EXPECT_TRUE(Found(rig, 0));
}

TEST_P(ManagerIndexLimit, AForkIsNotLeftWithoutItsParent) {
  RigOptions options = SmallRows(GetParam());
  Rig rig(options);
  // Every other chat is a fork of the one before, at 3,000 tokens.
  for (std::size_t i = 0; i < kChats; i += 2) {
    ParkChat(rig, i);
    auto engine = rig.MakeEngine();
    engine->Append(Fork(Chat(i), 3000, i, 2000));
    rig.Park(*engine);
  }
  rig.Settle();
  rig.Close();
  rig.options().cache.index_bytes = SmallLimit() - (24u << 10);
  rig.Open();
  const std::uint32_t lost = rig.cache().Queue().unindexed_conversations;
  EXPECT_GT(lost, 5u);
  EXPECT_LT(lost, 55u);
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < kChats; i += 2) {
    const std::uint32_t fork =
        rig.Look(Fork(Fork(Chat(i), 3000, i, 2000), 5000, 3, 5)).matched_tokens;
    const std::uint32_t trunk = rig.Look(Fork(Chat(i), kTokens, 3, 5)).matched_tokens;
    if (fork == 5000) {
      EXPECT_EQ(trunk, kTokens);
    } else if (trunk == kTokens) {
      // What they share, and the fork's tokens to the end of that page.
      EXPECT_EQ(fork, 3008u);
    } else {
      EXPECT_EQ(fork, 0u);
    }
    found += (fork == 5000 ? 1 : 0) + (trunk == kTokens ? 1 : 0);
  }
  EXPECT_EQ(found, kChats - lost);
}

INSTANTIATE_TEST_SUITE_P(Tiers, ManagerIndexLimit, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return std::string(info.param ? "RamAndDurable" : "DurableAlone");
                         });

// The list alone is more than the limit: the newest are found all the same.
TEST(ManagerFixedMemory, TheNewestKeepAShareHoweverLongTheListIs) {
  RigOptions options = SmallRows(false);
  options.cache.min_tokens = 64;
  options.cache.index_bytes = SmallLimit() + (128u << 10);  // a tenth: 80 KiB and 8 KiB tables
  Rig rig(options);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    auto engine = rig.MakeEngine();
    engine->Append(Tokens(i, 64));
    rig.ParkOnce(*engine);
    if (i % 100 == 0) rig.Settle();
  }
  rig.Settle();
  const QueueInfo queue = rig.cache().Queue();
  EXPECT_GT(queue.index_bytes, options.cache.index_bytes);
  EXPECT_GT(queue.unindexed_conversations, 1000u);
  EXPECT_LT(queue.unindexed_conversations, 3000u);
  for (std::uint64_t i = 2950; i < 3000; ++i) {
    EXPECT_EQ(rig.Look(Fork(Tokens(i, 64), 64, 1, 9)).matched_tokens, 64u);
  }
}

TEST(ManagerFixedMemory, BuffersTokensAndIndexAddUp) {
  RigOptions options;
  options.cache = CacheOptions();
  options.cache.ram_budget_bytes = 0;
  options.ram = false;
  options.disk = true;
  Rig rig(options);
  const std::uint64_t capture = 96u << 20;
  const std::uint64_t read = 24u << 20;
  const std::uint64_t tokens = 12u << 20;
  const std::uint64_t tier = rig.durable().usage().buffer_bytes;
  EXPECT_GT(tier, 24u << 20);
  EXPECT_LE(capture + read + tokens + tier + kLeastIndexBytes, kFixedBytes);
  EXPECT_LT(rig.cache().Queue().index_bytes, 1u << 20);
}

}  // namespace
}  // namespace parkade::test
