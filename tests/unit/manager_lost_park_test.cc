// Parks that only a shared tier held, and that it has lost.

#include <gtest/gtest.h>

#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

// Without a RAM tier nothing that is read comes nearer.
RigOptions DurableAndShared(const std::shared_ptr<MemoryStore>& store) {
  RigOptions options;
  options.ram = false;
  options.durable = true;
  options.cache.ram_budget_bytes = 0;
  options.store = store;
  return options;
}

// A chat that goes on in a slot looks nothing up: only the way to the shared tier shows that what
// it stands on is gone. The slot has all of it: nothing of that may be lost for good.
TEST(ManagerLostPark, AChatThatGoesOnIsCapturedAnewFromBeforeIt) {
  const auto store = std::make_shared<MemoryStore>();
  Rig writer(DurableAndShared(store));
  auto first = writer.MakeEngine();
  first->Append(Tokens(1, 300));
  writer.Park(*first);
  ASSERT_TRUE(
      writer.sink().WaitUntil([&](const RecordedEvents&) { return writer.shared().bound() == 1; }));

  Rig rig(DurableAndShared(store));
  auto slot = rig.MakeEngine();
  const Restored restored = rig.Run(*slot, Fork(first->tokens(), 300, 2, 1));
  ASSERT_EQ(Hit(restored.record, Source::kRemote), 300u);
  store->LoseAll();
  slot->Append(Tokens(3, 100));
  rig.Park(*slot);
  ASSERT_TRUE(rig.sink().WaitUntil([&](const RecordedEvents&) {
    return rig.cache().List(10, ConversationId()).empty();
  })) << "what stands on the lost park is of no use to anybody";

  slot->Append(Tokens(4, 100));
  rig.Park(*slot);
  const auto list = rig.cache().List(10, ConversationId());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].durable_tokens, slot->tokens().size());
  ASSERT_TRUE(rig.sink().WaitUntil([&](const RecordedEvents&) { return store->ways() == 1; }));

  Rig third(DurableAndShared(store));
  auto other = third.MakeEngine();
  const Restored again = third.Run(*other, Fork(slot->tokens(), slot->tokens().size(), 5, 1));
  EXPECT_EQ(Hit(again.record, Source::kRemote), slot->tokens().size());
}

// What a local tier also holds is not lost: it is stored there again.
TEST(ManagerLostPark, WhatIsHereTooIsStoredAgain) {
  const auto store = std::make_shared<MemoryStore>();
  Rig rig(DurableAndShared(store));
  auto slot = rig.MakeEngine();
  slot->Append(Tokens(1, 300));
  rig.Park(*slot);
  ASSERT_TRUE(rig.sink().WaitUntil([&](const RecordedEvents&) { return store->ways() == 1; }));
  store->LoseAll();
  slot->Append(Tokens(2, 100));
  rig.Park(*slot);
  ASSERT_TRUE(rig.sink().WaitUntil([&](const RecordedEvents&) { return store->ways() == 1; }));
  ASSERT_EQ(rig.cache().List(10, ConversationId()).size(), 1u);
  Rig other(DurableAndShared(store));
  auto engine = other.MakeEngine();
  EXPECT_EQ(Hit(other.Run(*engine, Fork(slot->tokens(), 400, 3, 1)).record, Source::kRemote), 400u);
}

}  // namespace
}  // namespace parkade::test
