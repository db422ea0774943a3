// Two tiers: spill, promotion, eviction, restarts, damage.

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

using State = Restore::State;

RigOptions Both(RigModel model = FullModel()) {
  RigOptions options(model);
  options.durable = true;
  return options;
}

RigOptions DurableOnly(RigModel model = FullModel()) {
  RigOptions options = Both(model);
  options.ram = false;
  options.cache.ram_budget_bytes = 0;
  return options;
}

// Three parks: [0, 300), [300, 600), [600, 900).
std::vector<Token> ParkThree(Rig& rig) {
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 900);
  for (int i = 0; i < 3; ++i) {
    engine->Append(absl::MakeConstSpan(text).subspan(i * 300, 300));
    rig.Park(*engine);
  }
  return text;
}

ParkKey KeyOf(Rig& rig, std::size_t park) { return rig.sink().events().parks.at(park).key; }

Fault Faulty(TierCall call, Fault::Kind kind, const ParkKey& key,
             absl::Status status = absl::DataLossError("scripted")) {
  Fault fault;
  fault.call = call;
  fault.kind = kind;
  fault.key = key;
  fault.status = std::move(status);
  return fault;
}

// RAM keeps nothing: its whole budget is what buffers and index take.
void EmptyRam(Rig& rig) {
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kRam, 0).ok());
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kRam, 256u << 20).ok());
}

TEST(ManagerTiers, AParkIsInRamAndThenDurable) {
  Rig rig(Both());
  absl::Notification storing;
  absl::Notification spill;
  rig.durable().SetObserver([&](const CallSubject& call) {
    if (call.call != TierCall::kStore) return;
    if (!storing.HasBeenNotified()) storing.Notify();
    spill.WaitForNotification();
  });
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 300));
  rig.ParkOnce(*engine);
  ASSERT_TRUE(rig.sink().WaitUntil([](const RecordedEvents& e) { return e.spills.size() == 1; }));
  // The park comes to the durable tier when the RAM tier has taken it over, not before.
  storing.WaitForNotification();
  auto info = rig.cache().List(1, ConversationId()).at(0);
  EXPECT_EQ(info.durable_tokens, 0u);
  EXPECT_EQ(info.tiers, std::vector<TierKind>{TierKind::kRam});
  EXPECT_EQ(rig.cache().Queue().spill_queue_bytes, 300u * 8 * 64);
  EXPECT_EQ(rig.cache().Queue().capture_bytes, 0u);  // the RAM tier accounts for them now
  spill.Notify();
  rig.Settle();
  info = rig.cache().List(1, ConversationId()).at(0);
  EXPECT_EQ(info.durable_tokens, 300u);
  EXPECT_EQ(info.tiers, (std::vector<TierKind>{TierKind::kRam, TierKind::kDisk}));
}

// DESIGN 2: restart and RAM share one path.
TEST(ManagerTiers, ARestartDecidesAsAWarmCacheDoes) {
  for (const RigModel& model : {FullModel(), WindowModel(), StateModel(), MixedModel()}) {
    Rig rig(Both(model));
    auto engine = rig.MakeEngine();
    const std::vector<Token> text = Tokens(1, 900);
    for (int i = 0; i < 3; ++i) {
      engine->Append(absl::MakeConstSpan(text).subspan(i * 300, 300));
      rig.Park(*engine);
    }
    auto other = rig.MakeEngine();
    const std::vector<Token> branch = Fork(text, 600, 2, 250);
    rig.Run(*other, branch);
    rig.Park(*other);
    std::vector<std::vector<Token>> prompts;
    for (const std::size_t at : {50u, 64u, 299u, 300u, 450u, 600u, 899u, 900u}) {
      prompts.push_back(Fork(text, at, 7, 30));
      prompts.push_back(Fork(branch, std::min<std::size_t>(at, 850), 8, 30));
    }
    const auto decide = [&] {
      std::vector<LookupRecord> records;
      for (const auto& prompt : prompts) {
        auto target = rig.MakeEngine();
        records.push_back(rig.Run(*target, prompt).record);
      }
      return records;
    };
    const std::vector<LookupRecord> warm = decide();
    rig.Settle();
    rig.Close();
    rig.Open();
    EXPECT_EQ(rig.durable().calls(TierCall::kReadExtent), 0u);
    EXPECT_EQ(rig.durable().payload_bytes_read(), 0u);
    EXPECT_EQ(rig.durable().calls(TierCall::kReadTokens), 0u);
    EXPECT_EQ(rig.durable().calls(TierCall::kReadExtents), 0u);
    const std::vector<LookupRecord> cold = decide();
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(cold[i].matched_tokens, warm[i].matched_tokens);
      EXPECT_EQ(cold[i].usable_tokens, warm[i].usable_tokens);
      EXPECT_EQ(cold[i].reused_tokens, warm[i].reused_tokens);
      EXPECT_EQ(cold[i].conversation, warm[i].conversation);
      EXPECT_EQ(cold[i].outcome, warm[i].outcome);
      EXPECT_EQ(cold[i].miss_tokens, warm[i].miss_tokens);
      EXPECT_EQ(cold[i].first_difference, warm[i].first_difference);
      EXPECT_EQ(cold[i].restored_bytes, warm[i].restored_bytes);
      EXPECT_EQ(Hit(warm[i], Source::kRam), warm[i].reused_tokens);
      EXPECT_EQ(Hit(cold[i], Source::kRam) + Hit(cold[i], Source::kDisk), cold[i].reused_tokens);
    }
    EXPECT_GT(rig.durable().payload_bytes_read(), 0u);
  }
}

TEST(ManagerTiers, WhatWasReadFromDiskIsPromoted) {
  Rig rig(Both());
  const std::vector<Token> text = ParkThree(rig);
  rig.Settle();
  rig.Close();
  rig.Open();
  rig.sink().Reset();
  auto engine = rig.MakeEngine();
  const Restored cold = rig.Run(*engine, Fork(text, 900, 2, 5));
  EXPECT_EQ(Hit(cold.record, Source::kDisk), 900u);
  ASSERT_TRUE(rig.sink().WaitUntil([](const RecordedEvents& e) { return e.spills.size() == 3; }));
  const std::uint64_t read = rig.durable().payload_bytes_read();
  const Restored warm = rig.Run(*engine, Fork(text, 900, 3, 5));
  EXPECT_EQ(Hit(warm.record, Source::kRam), 900u);
  EXPECT_EQ(warm.record.stage_sources, std::vector<Source>{Source::kRam});
  EXPECT_EQ(rig.durable().payload_bytes_read(), read);
  // And disk again, once RAM has let it go.
  EmptyRam(rig);
  EXPECT_EQ(Hit(rig.Run(*engine, Fork(text, 900, 4, 5)).record, Source::kDisk), 900u);
}

TEST(ManagerTiers, AParkThatIsReadInPartIsNotPromoted) {
  Rig rig(Both());
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 900);
  engine->Append(text);
  rig.Park(*engine);
  EmptyRam(rig);
  const Restored cold = rig.Run(*engine, Fork(text, 300, 2, 5));
  EXPECT_EQ(Hit(cold.record, Source::kDisk), 300u);
  EXPECT_EQ(rig.cache().List(1, ConversationId()).at(0).tiers,
            std::vector<TierKind>{TierKind::kDisk});
}

TEST(ManagerTiers, TiersMixWithinOneRestore) {
  Rig rig(Both());
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 600);
  engine->Append(absl::MakeConstSpan(text).subspan(0, 300));
  rig.Park(*engine);
  EmptyRam(rig);
  engine->Append(absl::MakeConstSpan(text).subspan(300));
  rig.Park(*engine);
  auto other = rig.MakeEngine();
  const Restored mixed = rig.Run(*other, Fork(text, 600, 2, 5));
  EXPECT_EQ(Hit(mixed.record, Source::kDisk), 300u);
  EXPECT_EQ(Hit(mixed.record, Source::kRam), 300u);
  EXPECT_EQ(mixed.record.stage_sources, std::vector<Source>{Source::kDisk});
}

TEST(ManagerTiers, ADamagedExtentGivesAShorterHitAndIsNeverAskedForAgain) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = ParkThree(rig);
  const ParkKey bad = KeyOf(rig, 1);
  rig.durable().AddFault(Faulty(TierCall::kReadExtent, Fault::Kind::kFlip, bad));
  const std::vector<Token> prompt = Fork(text, 900, 2, 100);
  auto engine = rig.MakeEngine();
  const Restored restored = rig.Run(*engine, prompt);
  EXPECT_EQ(restored.state, State::kRestored);
  EXPECT_EQ(Hit(restored.record, Source::kDisk), 300u);
  EXPECT_EQ(restored.record.matched_tokens, 900u);
  EXPECT_EQ(Miss(restored.record, MissReason::kCorrupt), 600u);
  EXPECT_EQ(Miss(restored.record, MissReason::kNew), 100u);
  EXPECT_EQ(rig.sink().events().corrupt, std::vector<TierKind>{TierKind::kDisk});
  // The park and what stands on it are gone, from the medium too.
  EXPECT_EQ(rig.cache().List(1, ConversationId()).at(0).tokens, 300u);
  std::uint32_t parks = 0;
  EXPECT_TRUE(rig.durable().Enumerate([&](const ParkSummary&) { ++parks; }).ok());
  EXPECT_EQ(parks, 1u);
  const std::uint64_t hits = rig.durable().faults_hit();
  const Restored again = rig.Run(*engine, prompt);
  EXPECT_EQ(again.record.reused_tokens, 300u);
  EXPECT_EQ(Miss(again.record, MissReason::kEvicted), 699u);
  EXPECT_EQ(rig.durable().faults_hit(), hits);
  // What is computed again is parked again.
  rig.Park(*engine);
  rig.durable().ClearFaults();
  EXPECT_EQ(rig.Run(*engine, Fork(prompt, 1000, 3, 5)).record.reused_tokens, 1000u);
}

TEST(ManagerTiers, ADamagedExtentOfAWindowModelIsAMiss) {
  Rig rig(DurableOnly(WindowModel()));
  const std::vector<Token> text = ParkThree(rig);
  rig.durable().AddFault(Faulty(TierCall::kReadExtent, Fault::Kind::kFlip, KeyOf(rig, 2)));
  auto engine = rig.MakeEngine();
  const Restored restored = rig.Run(*engine, Fork(text, 900, 2, 100));
  EXPECT_EQ(restored.state, State::kFailed);
  EXPECT_EQ(restored.record.reused_tokens, 0u);
  EXPECT_EQ(Miss(restored.record, MissReason::kCorrupt), 900u);
  // The boundary before it is still good.
  EXPECT_EQ(rig.Run(*engine, Fork(text, 900, 2, 100)).record.reused_tokens, 600u);
}

TEST(ManagerTiers, ADamagedCopyInRamLeavesTheDiskToAsk) {
  Rig rig(Both());
  const std::vector<Token> text = ParkThree(rig);
  rig.ram().AddFault(Faulty(TierCall::kReadExtent, Fault::Kind::kFlip, KeyOf(rig, 0)));
  auto engine = rig.MakeEngine();
  EXPECT_EQ(rig.Run(*engine, Fork(text, 900, 2, 5)).state, State::kFailed);
  const Restored again = rig.Run(*engine, Fork(text, 900, 2, 5));
  EXPECT_EQ(again.record.reused_tokens, 900u);
  EXPECT_EQ(Hit(again.record, Source::kDisk), 300u);
  EXPECT_EQ(rig.cache().List(1, ConversationId()).at(0).durable_tokens, 900u);
}

TEST(ManagerTiers, AMissingExtentIsSeenBeforeAnythingIsOverwritten) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = ParkThree(rig);
  Fault fault = Faulty(TierCall::kReadExtents, Fault::Kind::kOmit, KeyOf(rig, 1));
  fault.extent = 0;
  rig.durable().AddFault(fault);
  auto engine = rig.MakeEngine();
  const Restored restored = rig.Run(*engine, Fork(text, 900, 2, 100));
  EXPECT_EQ(restored.state, State::kRestored);
  EXPECT_EQ(Hit(restored.record, Source::kDisk), 300u);
  EXPECT_EQ(restored.record.matched_tokens, 900u);
  EXPECT_EQ(restored.record.usable_tokens, 300u);
  EXPECT_EQ(Miss(restored.record, MissReason::kCorrupt), 600u);
  EXPECT_EQ(rig.sink().events().corrupt.size(), 1u);
}

TEST(ManagerTiers, AParkThatIsGoneIsIncomplete) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = ParkThree(rig);
  rig.durable().AddFault(Faulty(TierCall::kReadExtents, Fault::Kind::kFail, KeyOf(rig, 0),
                                absl::NotFoundError("gone")));
  auto engine = rig.MakeEngine();
  const Restored restored = rig.Run(*engine, Fork(text, 900, 2, 100));
  EXPECT_EQ(restored.state, State::kMiss);
  EXPECT_EQ(Miss(restored.record, MissReason::kIncomplete), 900u);
  EXPECT_TRUE(rig.cache().List(1, ConversationId()).empty());
}

TEST(ManagerTiers, ATierThatIsDownLosesNothing) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = ParkThree(rig);
  for (const TierCall call : {TierCall::kReadExtents, TierCall::kReadExtent}) {
    rig.durable().AddFault(
        Faulty(call, Fault::Kind::kFail, KeyOf(rig, 0), absl::UnavailableError("down")));
    auto engine = rig.MakeEngine();
    const Restored restored = rig.Run(*engine, Fork(text, 900, 2, 100));
    EXPECT_EQ(restored.record.reused_tokens, 0u);
    EXPECT_EQ(Miss(restored.record, MissReason::kIncomplete), 900u);
    rig.durable().ClearFaults();
    EXPECT_EQ(rig.Run(*engine, Fork(text, 900, 2, 100)).record.reused_tokens, 900u);
  }
  EXPECT_TRUE(rig.sink().events().corrupt.empty());
}

TEST(ManagerTiers, DamagedTokensEndTheMatch) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = ParkThree(rig);
  const ParkKey bad = KeyOf(rig, 1);
  rig.Settle();
  rig.Close();
  rig.Open();
  rig.durable().AddFault(Faulty(TierCall::kReadTokens, Fault::Kind::kFail, bad));
  auto engine = rig.MakeEngine();
  const Restored restored = rig.Run(*engine, Fork(text, 900, 2, 100));
  EXPECT_EQ(restored.record.reused_tokens, 300u);
  EXPECT_EQ(Miss(restored.record, MissReason::kCorrupt), 896u - 300);
  EXPECT_EQ(rig.sink().events().corrupt.size(), 1u);
  const std::uint64_t hits = rig.durable().faults_hit();
  EXPECT_EQ(rig.Run(*engine, Fork(text, 900, 2, 100)).record.reused_tokens, 300u);
  EXPECT_EQ(rig.durable().faults_hit(), hits);
}

TEST(ManagerTiers, EvictionTakesTailsOfTheOldestFirst) {
  Rig rig;
  std::vector<std::vector<Token>> texts;
  for (std::uint64_t i = 0; i < 3; ++i) {
    auto engine = rig.MakeEngine();
    engine->Append(Tokens(10 + i, 300));
    rig.Park(*engine);
    engine->Append(Tokens(20 + i, 300));
    rig.Park(*engine);
    texts.push_back(engine->tokens());
  }
  const std::uint64_t used = rig.ram().usage().used_bytes;
  const std::uint64_t budget = rig.ram().usage().budget_bytes;
  // Room for all but one park.
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kRam, (256u << 20) - budget + used - 1000).ok());
  std::uint32_t tokens = 0;
  for (const auto& info : rig.cache().List(10, ConversationId())) tokens += info.tokens;
  EXPECT_EQ(tokens, 1500u);
  const RecordedEvents events = rig.sink().events();
  ASSERT_EQ(events.evictions.size(), 1u);
  EXPECT_EQ(events.evictions[0].reason, EvictReason::kBudget);
  EXPECT_EQ(events.evictions[0].bytes, 300u * 8 * 64);
}

TEST(ManagerTiers, ANewParkNeverEvictsWhatItStandsOn) {
  RigOptions options;
  RigModel model;
  model.row_bytes = 1024;  // 8 KiB a token
  options.model = model;
  options.cache.ram_budget_bytes = 32u << 20;
  options.cache.capture_buffer_bytes = 4u << 20;
  Rig rig(options);
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 8000);  // 62 MiB
  for (int i = 0; i < 8; ++i) {
    engine->Append(absl::MakeConstSpan(text).subspan(i * 1000, 1000));
    for (int call = 0; call < 20 && !rig.ParkOnce(*engine).complete; ++call) rig.Settle();
    rig.Settle();
  }
  const auto list = rig.cache().List(10, ConversationId());
  ASSERT_EQ(list.size(), 1u);
  // The beginning stays; what does not fit is counted.
  EXPECT_GT(list[0].tokens, 500u);
  EXPECT_LT(list[0].tokens, 4000u);
  EXPECT_LE(rig.ram().usage().used_bytes, rig.ram().usage().budget_bytes);
  ASSERT_FALSE(rig.sink().events().skips.empty());
  EXPECT_EQ(rig.sink().events().skips[0].reason, SkipReason::kNoSpace);
  auto other = rig.MakeEngine();
  EXPECT_EQ(rig.Run(*other, text).record.reused_tokens, list[0].tokens);
}

TEST(ManagerTiers, RamThatIsTooSmallDoesNotKeepADiskFromFilling) {
  RigOptions options = Both();
  options.model.row_bytes = 1024;
  options.cache.ram_budget_bytes = 16u << 20;  // nothing left for images
  options.cache.capture_buffer_bytes = 4u << 20;
  Rig rig(options);
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 3000);
  engine->Append(text);
  EXPECT_EQ(rig.Park(*engine).captured_tokens, 3000u);
  EXPECT_EQ(rig.cache().List(1, ConversationId()).at(0).durable_tokens, 3000u);
  auto other = rig.MakeEngine();
  const Restored restored = rig.Run(*other, Fork(text, 3000, 2, 5));
  EXPECT_EQ(Hit(restored.record, Source::kDisk), 3000u);
  rig.Settle();
  rig.Close();
  rig.Open();
  EXPECT_EQ(Hit(rig.Run(*other, Fork(text, 3000, 2, 5)).record, Source::kDisk), 3000u);
}

TEST(ManagerTiers, AForkIsNotDurableBeforeItsParent) {
  Rig rig(Both());
  const std::vector<Token> text = ParkThree(rig);
  // The disk lets the parent go; RAM still has it.
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kDisk, 0).ok());
  EXPECT_EQ(rig.cache().List(1, ConversationId()).at(0).durable_tokens, 0u);
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kDisk, 1ull << 30).ok());
  auto engine = rig.MakeEngine();
  const std::vector<Token> branch = Fork(text, 700, 2, 100);
  rig.Run(*engine, branch);
  rig.Park(*engine);
  for (const auto& info : rig.cache().List(10, ConversationId())) {
    EXPECT_EQ(info.durable_tokens, info.tokens);
  }
  rig.Settle();
  rig.Close();
  rig.Open();
  EXPECT_EQ(rig.Run(*engine, Fork(branch, 800, 3, 5)).record.reused_tokens, 800u);
}

TEST(ManagerTiers, AGapInTheCatalogueEndsTheConversation) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = ParkThree(rig);
  auto engine = rig.MakeEngine();
  rig.Run(*engine, Fork(text, 800, 2, 50));
  rig.Park(*engine);
  rig.Settle();
  rig.Close();
  const ParkKey lost = KeyOf(rig, 1);
  ASSERT_TRUE(rig.durable_medium().Remove(absl::MakeConstSpan(&lost, 1)).ok());
  rig.Open();
  const auto list = rig.cache().List(10, ConversationId());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].tokens, 300u);
  std::uint32_t parks = 0;
  EXPECT_TRUE(rig.durable().Enumerate([&](const ParkSummary&) { ++parks; }).ok());
  EXPECT_EQ(parks, 1u);
  EXPECT_EQ(rig.Run(*engine, Fork(text, 900, 3, 5)).record.reused_tokens, 300u);
}

TEST(ManagerTiers, AStoreThatFailsIsCountedAndTheRestGoesOn) {
  Rig rig(Both());
  Fault fault;
  fault.call = TierCall::kStore;
  fault.status = absl::ResourceExhaustedError("full");
  fault.times = 1;
  rig.durable().AddFault(fault);
  const std::vector<Token> text = ParkThree(rig);
  const auto info = rig.cache().List(1, ConversationId()).at(0);
  EXPECT_EQ(info.tokens, 900u);
  // What failed is written again with the next park, which would stand on nothing otherwise.
  EXPECT_EQ(info.durable_tokens, 900u);
  const auto errors = rig.sink().events().errors;
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors.front().second, "write: full");
}

TEST(ManagerTiers, DamagedBytesAreNotCopiedToALowerTier) {
  Rig rig(Both());
  Fault full;
  full.call = TierCall::kStore;
  full.status = absl::ResourceExhaustedError("full");
  full.times = 1;
  rig.durable().AddFault(full);
  // The copy of the first park, which is made for the second.
  Fault flip;
  flip.kind = Fault::Kind::kFlip;
  flip.times = 1;
  rig.ram().AddFault(flip);
  const std::vector<Token> text = ParkThree(rig);
  EXPECT_EQ(rig.ram().faults_hit(), 1u);
  EXPECT_EQ(rig.sink().events().corrupt, std::vector<TierKind>{TierKind::kRam});
  rig.Close();
  rig.sink().Reset();
  rig.Open();
  const auto list = rig.cache().List(10, ConversationId());
  const std::uint32_t durable = list.empty() ? 0 : list[0].durable_tokens;
  auto engine = rig.MakeEngine();
  EXPECT_EQ(rig.Run(*engine, Fork(text, 900, 3, 5)).record.reused_tokens, durable);
  EXPECT_EQ(rig.sink().events().corrupt.size(), 0u);
}

TEST(ManagerTiers, AnIdentityThatATierRefusedIsPutLater) {
  Rig rig(Both());
  Fault fault;
  fault.call = TierCall::kPutIdentity;
  fault.times = 1;
  rig.durable().AddFault(fault);
  FakeEngineOptions other;
  other.salt = 2;
  other.planes = FullModel().layout().planes;
  FakeEngine engine(other);
  const auto digest = rig.cache().RegisterIdentity(engine.identity(), engine.layout());
  ASSERT_TRUE(digest.ok());
  const std::vector<Token> text = Tokens(1, 200);
  for (const std::uint32_t end : {100u, 200u}) {
    engine.Append(absl::MakeConstSpan(text).subspan(end - 100, 100));
    const ParkRequest request{*digest, engine.tokens(), true};
    EXPECT_EQ(rig.cache().Park(engine, request).captured_tokens, end);
    rig.Settle();
    EXPECT_EQ(rig.durable().faults_hit(), 1u);
    // With the next park, which would stand on nothing otherwise.
    EXPECT_EQ(rig.cache().List(1, ConversationId()).at(0).durable_tokens, end == 100 ? 0u : 200u);
  }
}

// What left the RAM tier alone is still known to its last token: no branch from its last full page.
TEST(ManagerTiers, AChatThatLeftRamGoesOnAsOne) {
  RigOptions options = Both();
  options.cache.ram_slots = 1;
  Rig rig(options);
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 150));
  rig.Park(*engine);
  auto other = rig.MakeEngine();
  other->Append(Tokens(3, 300));
  rig.Park(*other);
  EXPECT_EQ(rig.cache().Tiers().at(0).conversations, 1u);
  engine->Append(Tokens(2, 50));
  rig.Park(*engine);
  const auto list = rig.cache().List(10, ConversationId());
  ASSERT_EQ(list.size(), 2u);
  for (const ConversationInfo& info : list) {
    EXPECT_EQ(info.forked_from, std::nullopt);
    if (info.tokens != 300) {
      EXPECT_EQ(info.tokens, 200u);
    }
  }
}

TEST(ManagerTiers, PrefetchWarmsWhatIsNotInRam) {
  Rig rig(Both());
  const std::vector<Token> text = ParkThree(rig);
  rig.cache().Prefetch(rig.identity(), text);
  EmptyRam(rig);
  absl::Notification warmed;
  rig.durable().SetObserver([&](const CallSubject& call) {
    if (call.call == TierCall::kWillRead && call.keys[0].park == 2) warmed.Notify();
  });
  rig.cache().Prefetch(rig.identity(), text);
  warmed.WaitForNotification();
  EXPECT_EQ(rig.durable().calls(TierCall::kWillRead), 3u);
  rig.cache().Prefetch(Digest128{5, 5}, text);
}

}  // namespace
}  // namespace parkade::test
