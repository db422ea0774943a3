// A cache whose buffers are in memory that devices copy from fast: what is in it, how much of it,
// when it goes.

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/reserved_memory.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

constexpr std::uint64_t kMib = 1ull << 20;
constexpr std::uint64_t kSlabBytes = 16 * kMib;  // of a cache below 1 GiB

// 4 MiB are 1,024 tokens.
RigOptions Large(bool durable = false) {
  RigModel model = FullModel();
  model.row_bytes = 512;
  RigOptions options(model);
  options.durable = durable;
  options.cache.ram_budget_bytes = 256 * kMib;
  return options;
}

std::shared_ptr<ReservedMemory> Use(Rig& rig) {
  auto memory = std::make_shared<ReservedMemory>(ReservedMemory::Access::kWritable);
  rig.cache().UseHostMemory(memory);
  // Two slabs come ahead.
  EXPECT_TRUE(
      memory->WaitUntil([](const auto& counts) { return counts.held_bytes >= 2 * kSlabBytes; }));
  return memory;
}

TEST(ManagerHostMemory, WhatIsParkedIsInItAndComesBackFromIt) {
  Rig rig(Large());
  EXPECT_EQ(rig.cache().Queue().host_memory_bytes, 0u);
  auto memory = Use(rig);
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 12000);  // 47 MiB: more than was ahead
  engine->Append(text);
  rig.Park(*engine);
  EXPECT_GE(memory->held_bytes(), 3 * kSlabBytes);
  EXPECT_GE(rig.cache().Queue().host_memory_bytes, 3 * kSlabBytes);
  auto other = rig.MakeEngine();
  const Restored restored = rig.Run(*other, text);
  EXPECT_EQ(restored.state, Restore::State::kRestored);
  EXPECT_EQ(Hit(restored.record, Source::kRam), 11999u);
  rig.Close();
  EXPECT_EQ(memory->held_bytes(), 0u);
  EXPECT_EQ(memory->counts().asked, memory->counts().given);
}

TEST(ManagerHostMemory, OneOfTheDurableTierIsReadIntoIt) {
  Rig rig(Large(true));
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(2, 5000);
  engine->Append(text);
  rig.Park(*engine);
  rig.Close();
  rig.Open();
  auto memory = Use(rig);
  auto other = rig.MakeEngine();
  EXPECT_EQ(Hit(rig.Run(*other, text).record, Source::kDisk), 4999u);
  rig.Settle();
  // It was promoted on the way.
  auto third = rig.MakeEngine();
  EXPECT_EQ(Hit(rig.Run(*third, text).record, Source::kRam), 4999u);
  EXPECT_GE(memory->held_bytes(), 2 * kSlabBytes);
}

TEST(ManagerHostMemory, TheBudgetBoundsItAndFreeSlabsGo) {
  Rig rig(Large());
  auto memory = Use(rig);
  for (int chat = 0; chat < 12; ++chat) {
    auto engine = rig.MakeEngine();
    engine->Append(Tokens(10 + chat, 8000));  // 31 MiB
    rig.Park(*engine);
    EXPECT_LE(memory->held_bytes(), 256 * kMib);
  }
  EXPECT_GE(memory->held_bytes(), 6 * kSlabBytes);
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kRam, 0).ok());
  // Those of the buffers stay.
  EXPECT_TRUE(
      memory->WaitUntil([](const auto& counts) { return counts.held_bytes <= 4 * kSlabBytes; }));
}

// What is evicted for the new budget takes its memory with it: nothing else has to go.
TEST(ManagerHostMemory, ALowerBudgetKeepsWhatFitsIntoIt) {
  RigOptions options = Large();
  options.cache.ram_budget_bytes = 400 * kMib;
  Rig rig(options);
  auto memory = Use(rig);
  for (int chat = 0; chat < 12; ++chat) {
    auto engine = rig.MakeEngine();
    engine->Append(Tokens(10 + chat, 8000));  // 31 MiB
    rig.Park(*engine);
  }
  const std::uint64_t before = rig.ram().usage().used_bytes;
  ASSERT_GT(before, 280 * kMib);
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kRam, 250 * kMib).ok());
  EXPECT_GT(rig.ram().usage().used_bytes, before - 210 * kMib);
  EXPECT_LT(rig.ram().usage().used_bytes, 250 * kMib);
}

TEST(ManagerHostMemory, WithoutAnyEverythingGoesOn) {
  Rig rig(Large());
  auto memory = std::make_shared<ReservedMemory>();
  memory->SetMost(0);
  rig.cache().UseHostMemory(memory);
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 3000);
  engine->Append(text);
  rig.Park(*engine);
  auto other = rig.MakeEngine();
  EXPECT_EQ(Hit(rig.Run(*other, text).record, Source::kRam), 2999u);
  EXPECT_EQ(memory->held_bytes(), 0u);
  EXPECT_EQ(rig.cache().Queue().host_memory_bytes, 0u);
}

}  // namespace
}  // namespace parkade::test
