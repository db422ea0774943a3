// Every token of every prompt is counted once, and for the right reason.

#include <gtest/gtest.h>

#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

std::vector<Token> Parked(Rig& rig, std::uint64_t seed, std::size_t count) {
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(seed, count));
  rig.Park(*engine);
  return engine->tokens();
}

TEST(ManagerAccounting, ColdWhenNothingMatches) {
  Rig rig;
  Parked(rig, 1, 300);
  const LookupRecord record = rig.Look(Tokens(2, 200));
  EXPECT_EQ(record.outcome, LookupOutcome::kMiss);
  EXPECT_EQ(Miss(record, MissReason::kCold), 199u);
  EXPECT_EQ(Miss(record, MissReason::kNew), 1u);
  EXPECT_EQ(record.matched_tokens, 0u);
  EXPECT_TRUE(record.conversation.IsZero());
  EXPECT_TRUE(record.stage_sources.empty());
  // Less than a page is not indexed.
  EXPECT_EQ(Miss(rig.Look(Tokens(1, 60)), MissReason::kCold), 59u);
}

TEST(ManagerAccounting, DivergedWhereAParkedOneGoesOnDifferently) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 1000);
  auto engine = rig.MakeEngine();
  const LookupRecord record = rig.Run(*engine, Fork(text, 600, 2, 400)).record;
  EXPECT_EQ(record.outcome, LookupOutcome::kPartial);
  EXPECT_EQ(record.first_difference, 600u);
  EXPECT_EQ(Hit(record, Source::kRam), 600u);
  EXPECT_EQ(Miss(record, MissReason::kDiverged), 399u);
  EXPECT_EQ(Miss(record, MissReason::kNew), 1u);
  EXPECT_EQ(record.conversation, rig.cache().List(1, ConversationId())[0].id);
}

TEST(ManagerAccounting, NewAfterTheEndOfWhatMatched) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 300);
  auto engine = rig.MakeEngine();
  const LookupRecord record = rig.Run(*engine, Fork(text, 300, 2, 400)).record;
  EXPECT_EQ(Miss(record, MissReason::kNew), 400u);
  EXPECT_EQ(record.outcome, LookupOutcome::kFull);
}

TEST(ManagerAccounting, EvictedWhenItWasHere) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 300);
  EXPECT_TRUE(rig.cache().SetBudget(TierKind::kRam, 0).ok());
  EXPECT_TRUE(rig.cache().List(10, ConversationId()).empty());
  const LookupRecord record = rig.Look(text);
  EXPECT_EQ(Miss(record, MissReason::kEvicted), 299u);
  EXPECT_EQ(Miss(record, MissReason::kNew), 1u);
}

TEST(ManagerAccounting, IdentityNamesTheFirstFieldThatDiffers) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 300);
  FakeEngineOptions other;
  other.salt = 2;
  other.planes = FullModel().layout().planes;
  FakeEngine engine(other);
  const auto digest = rig.cache().RegisterIdentity(engine.identity(), engine.layout());
  ASSERT_TRUE(digest.ok());
  LookupRequest request = rig.Request(text);
  request.identity = *digest;
  auto restore = rig.cache().Lookup(request);
  EXPECT_EQ(restore->state(), Restore::State::kMiss);
  rig.cache().FinishLookup(std::move(restore), 0);
  const LookupRecord record = rig.cache().Lookups(1).at(0);
  EXPECT_EQ(CheckSums(record), "");
  EXPECT_EQ(record.identity_field, "weights");
  EXPECT_EQ(Miss(record, MissReason::kIdentity), 299u);
  // Known but of another layout: refused, and what is known stays.
  EXPECT_FALSE(rig.cache().RegisterIdentity(engine.identity(), WindowModel().layout()).ok());
}

TEST(ManagerAccounting, DisabledCountsWholly) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 300);
  LookupRequest request = rig.Request(text);
  request.enabled = false;
  auto restore = rig.cache().Lookup(request);
  EXPECT_EQ(restore->state(), Restore::State::kMiss);
  EXPECT_TRUE(restore->Ready());
  rig.cache().FinishLookup(std::move(restore), 0);
  EXPECT_EQ(Miss(rig.cache().Lookups(1).at(0), MissReason::kDisabled), 300u);
}

TEST(ManagerAccounting, TooShortWhenTheGainIsSmall) {
  RigOptions options;
  options.cache.min_gain_tokens = 64;
  Rig rig(options);
  const std::vector<Token> text = Parked(rig, 1, 300);
  const std::vector<Token> prompt = Fork(text, 300, 2, 100);
  auto engine = rig.MakeEngine();
  engine->Append(absl::MakeConstSpan(text).subspan(0, 237));
  LookupRecord record = rig.Run(*engine, prompt, 237).record;
  EXPECT_EQ(Hit(record, Source::kSlot), 237u);
  EXPECT_EQ(Miss(record, MissReason::kTooShort), 63u);
  EXPECT_EQ(Miss(record, MissReason::kNew), 100u);
  // One token more is worth it.
  engine->Clear();
  engine->Append(absl::MakeConstSpan(text).subspan(0, 236));
  record = rig.Run(*engine, prompt, 236).record;
  EXPECT_EQ(Hit(record, Source::kRam), 300u);
  EXPECT_EQ(Hit(record, Source::kSlot), 0u);
}

TEST(ManagerAccounting, AMatchNotLongerThanTheSlotsOwnIsNone) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 300);
  auto engine = rig.MakeEngine();
  engine->Append(text);
  const Restored run = rig.Run(*engine, Fork(text, 300, 2, 10), 300);
  EXPECT_EQ(run.state, Restore::State::kMiss);
  EXPECT_EQ(Hit(run.record, Source::kSlot), 300u);
  EXPECT_EQ(run.record.outcome, LookupOutcome::kFull);
}

TEST(ManagerAccounting, UnsupportedIsWhatFollowsTheCacheablePart) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 300);
  LookupRequest request = rig.Request(text);
  request.cacheable_tokens = 200;
  auto restore = rig.cache().Lookup(request);
  auto engine = rig.MakeEngine();
  EXPECT_EQ(rig.StepToEnd(*restore, *engine), Restore::State::kRestored);
  EXPECT_EQ(restore->restored_tokens(), 200u);
  rig.cache().FinishLookup(std::move(restore), 200);
  const LookupRecord record = rig.cache().Lookups(1).at(0);
  EXPECT_EQ(CheckSums(record), "");
  EXPECT_EQ(Miss(record, MissReason::kUnsupported), 99u);
  EXPECT_EQ(Miss(record, MissReason::kNew), 1u);
}

TEST(ManagerAccounting, TheEngineMayReuseLessThanWasRestored) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 300);
  auto restore = rig.cache().Lookup(rig.Request(Fork(text, 300, 2, 10)));
  auto engine = rig.MakeEngine();
  EXPECT_EQ(rig.StepToEnd(*restore, *engine), Restore::State::kRestored);
  rig.cache().FinishLookup(std::move(restore), 250);
  const LookupRecord record = rig.cache().Lookups(1).at(0);
  EXPECT_EQ(CheckSums(record), "");
  EXPECT_EQ(Hit(record, Source::kRam), 250u);
  EXPECT_EQ(record.reused_tokens, 250u);
}

TEST(ManagerAccounting, ReadyButNotTakenIsIncomplete) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 300);
  const LookupRecord record = rig.Look(Fork(text, 300, 2, 10));
  EXPECT_EQ(record.matched_tokens, 300u);
  EXPECT_EQ(record.usable_tokens, 300u);
  EXPECT_EQ(Miss(record, MissReason::kIncomplete), 300u);
}

TEST(ManagerAccounting, CountersMoveOnceAndTheNewestRecordIsFirst) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 100);
  for (std::size_t i = 0; i < 300; ++i) rig.Look(Tokens(5, 100 + i));
  EXPECT_EQ(rig.sink().events().lookups.size(), 300u);
  const auto records = rig.cache().Lookups(1000);
  ASSERT_EQ(records.size(), 256u);
  EXPECT_EQ(records[0].prompt_tokens, 399u);
  EXPECT_EQ(records[255].prompt_tokens, 144u);
  EXPECT_EQ(rig.cache().Lookups(2).size(), 2u);
  // A lookup that nobody finished counts nowhere.
  { auto abandoned = rig.cache().Lookup(rig.Request(text)); }
  EXPECT_EQ(rig.sink().events().lookups.size(), 300u);
}

TEST(ManagerAccounting, AHitRenewsTheUseOfWhatItStandsOn) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 300);
  auto engine = rig.MakeEngine();
  rig.Run(*engine, Fork(text, 200, 2, 100));
  rig.Park(*engine);
  rig.Run(*engine, Fork(engine->tokens(), 300, 3, 5));
  std::uint64_t hits = 0;
  for (const auto& info : rig.cache().List(10, ConversationId())) {
    hits += info.hits;
    EXPECT_GT(info.last_used_unix_ms, 0);
  }
  EXPECT_EQ(hits, 2u);
  const RecordedEvents events = rig.sink().events();
  ASSERT_EQ(events.restores.size(), 2u);
  EXPECT_EQ(events.restores[0].tier, TierKind::kRam);
  // The whole extent that holds token 199 is read.
  EXPECT_EQ(events.restores[0].bytes, 256u * 8 * 64);
  EXPECT_EQ(events.stage_restored_bytes.at(0), events.restores[0].bytes + events.restores[1].bytes);
}

TEST(ManagerAccounting, AnEmptyPromptIsCountedToo) {
  Rig rig;
  const LookupRecord record = rig.Look({});
  EXPECT_EQ(record.prompt_tokens, 0u);
  EXPECT_EQ(CheckSums(record), "");
}

}  // namespace
}  // namespace parkade::test
