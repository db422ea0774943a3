// The lookup path and the park path through the public interface.

#include <gtest/gtest.h>

#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

using State = Restore::State;

TEST(ManagerCache, WhatWasParkedIsRestoredIntoAnotherSequence) {
  Rig rig;
  const std::vector<Token> prompt = Tokens(1, 1000);
  auto first = rig.MakeEngine();
  first->Append(prompt);
  const ParkOutcome outcome = rig.Park(*first);
  EXPECT_EQ(outcome.captured_tokens, 1000u);
  EXPECT_TRUE(outcome.complete);
  auto second = rig.MakeEngine();
  const std::vector<Token> longer = Fork(prompt, 1000, 2, 100);
  const Restored restored = rig.Run(*second, longer);
  EXPECT_EQ(restored.state, State::kRestored);
  EXPECT_EQ(restored.record.matched_tokens, 1000u);
  EXPECT_EQ(restored.record.usable_tokens, 1000u);
  EXPECT_EQ(Hit(restored.record, Source::kRam), 1000u);
  EXPECT_EQ(Miss(restored.record, MissReason::kNew), 100u);
  EXPECT_EQ(restored.record.outcome, LookupOutcome::kFull);
  EXPECT_EQ(restored.record.stage_sources, std::vector<Source>{Source::kRam});
}

}  // namespace
}  // namespace parkade::test
