// Whether a match is restored or read: what was measured decides, and is measured again.
#include <gtest/gtest.h>

#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

RigOptions DurableOnly() {
  RigOptions options;
  options.ram = false;
  options.durable = true;
  options.cache.ram_budget_bytes = 0;
  return options;
}

// Parked and forgotten by everything but the durable tier.
std::vector<Token> Parked(Rig& rig) {
  const std::vector<Token> text = Tokens(1, 900);
  auto engine = rig.MakeEngine();
  engine->Append(text);
  rig.Park(*engine);
  rig.Close();
  rig.Open();
  return text;
}

LookupRecord Ask(Rig& rig, const std::vector<Token>& text) {
  auto engine = rig.MakeEngine();
  return rig.Run(*engine, Fork(text, 900, 2, 5)).record;
}

TEST(ManagerWorth, AModelThatReadsFasterThanATierLoads) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = Parked(rig);
  rig.cache().NotePromptRead(0, 1000, 1e-9);
  // Not measured yet: loaded, and measured by that.
  const LookupRecord first = Ask(rig, text);
  EXPECT_EQ(Hit(first, Source::kDisk), 900u);
  EXPECT_EQ(first.expected_read_seconds, 0);
  // Then read, until what was measured is too old to go by.
  const LookupRecord second = Ask(rig, text);
  EXPECT_EQ(second.reused_tokens, 0u);
  EXPECT_EQ(second.matched_tokens, 900u);
  EXPECT_EQ(Miss(second, MissReason::kTooShort), 900u);
  EXPECT_GT(second.expected_load_seconds, second.expected_read_seconds);
  EXPECT_GT(second.expected_read_seconds, 0);
  EXPECT_EQ(Hit(Ask(rig, text), Source::kDisk), 900u);
  EXPECT_EQ(rig.sink().events().lookups.size(), 3u);
}

TEST(ManagerWorth, AModelThatReadsSlowly) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = Parked(rig);
  rig.cache().NotePromptRead(0, 1000, 1000);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Hit(Ask(rig, text), Source::kDisk), 900u);
  const LookupRecord last = Ask(rig, text);
  EXPECT_LT(last.expected_load_seconds, last.expected_read_seconds);
  EXPECT_NEAR(last.expected_read_seconds, 900, 1);
}

TEST(ManagerWorth, WithoutAMeasurementEverythingIsRestored) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = Parked(rig);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Hit(Ask(rig, text), Source::kDisk), 900u);
  // Too few tokens say nothing.
  rig.cache().NotePromptRead(0, 10, 1e-9);
  EXPECT_EQ(Hit(Ask(rig, text), Source::kDisk), 900u);
}

}  // namespace
}  // namespace parkade::test
