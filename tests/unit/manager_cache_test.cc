// The lookup path and the park path through the public interface: what is parked comes back, row by
// row, into another sequence, another split, another continuation.

#include <gtest/gtest.h>

#include <functional>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

using State = Restore::State;

RigOptions DurableOnly(RigModel model = FullModel()) {
  RigOptions options(model);
  options.ram = false;
  options.durable = true;
  options.cache.ram_budget_bytes = 0;
  return options;
}

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
  EXPECT_EQ(restored.record.restored_bytes, 1000u * 8 * 64);
  // The same prompt again: all but the last token.
  auto third = rig.MakeEngine();
  const Restored whole = rig.Run(*third, prompt);
  EXPECT_EQ(Hit(whole.record, Source::kRam), 999u);
  EXPECT_EQ(Miss(whole.record, MissReason::kNew), 1u);
  EXPECT_EQ(whole.record.outcome, LookupOutcome::kFull);
}

TEST(ManagerCache, ANextTurnIsAppendedAndOnlyNewRowsAreCopied) {
  Rig rig;
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 500));
  rig.Park(*engine);
  const std::uint64_t before = engine->copied_bytes();
  engine->Append(Tokens(2, 80));
  rig.Park(*engine);
  EXPECT_EQ(engine->copied_bytes() - before, 80u * 8 * 64);
  const auto list = rig.cache().List(10, ConversationId());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].tokens, 580u);
  EXPECT_EQ(list[0].bytes, 580u * 8 * 64);
  EXPECT_EQ(list[0].tiers, std::vector<TierKind>{TierKind::kRam});
  const auto detail = rig.cache().Get(list[0].id);
  ASSERT_TRUE(detail.has_value());
  ASSERT_EQ(detail->parks.size(), 2u);
  EXPECT_EQ(detail->parks[1].tokens, (TokenRange{500, 580}));
  // A park whose tokens are all there writes nothing.
  const std::uint64_t after = engine->copied_bytes();
  EXPECT_EQ(rig.Park(*engine).captured_tokens, 580u);
  EXPECT_EQ(engine->copied_bytes(), after);
  EXPECT_EQ(rig.sink().events().parks.size(), 2u);
}

// A fork in the middle of an extent, of a page, and at their ends.
TEST(ManagerCache, ForksShareThePrefixAndKeepTheirOwnRows) {
  for (const std::size_t at : {64u, 100u, 128u, 255u, 256u, 257u, 300u, 511u, 599u}) {
    SCOPED_TRACE(at);
    Rig rig;
    auto engine = rig.MakeEngine();
    const std::vector<Token> trunk = Tokens(1, 600);
    engine->Append(trunk);
    rig.Park(*engine);
    const std::vector<Token> branch = Fork(trunk, at, 2, 300);
    auto other = rig.MakeEngine();
    const Restored restored = rig.Run(*other, branch);
    EXPECT_EQ(Hit(restored.record, Source::kRam), at);
    EXPECT_EQ(Miss(restored.record, MissReason::kDiverged), 299u);
    rig.Park(*other);
    const auto list = rig.cache().List(10, ConversationId());
    ASSERT_EQ(list.size(), 2u);
    const ConversationInfo& fork = list[0].forked_from.has_value() ? list[0] : list[1];
    const ConversationInfo& root = list[0].forked_from.has_value() ? list[1] : list[0];
    EXPECT_EQ(fork.forked_from, root.id);
    EXPECT_EQ(fork.forked_at, at);
    EXPECT_EQ(fork.tokens, at + 300);
    EXPECT_EQ(fork.bytes, 300u * 8 * 64);
    for (const auto& text : {trunk, branch}) {
      auto again = rig.MakeEngine();
      EXPECT_EQ(rig.Run(*again, Fork(text, text.size(), 3, 10)).record.reused_tokens, text.size());
    }
  }
}

// Counts imports, to know when the engine has seen an extent.
class CountingSequence : public EngineSequence {
 public:
  explicit CountingSequence(FakeEngine* engine) : engine_(engine) {}
  const StateLayout& layout() const override { return engine_->layout(); }
  const StageMap& stages() const override { return engine_->stages(); }
  absl::Status BeginCapture(std::uint32_t tokens) override { return engine_->BeginCapture(tokens); }
  std::uint32_t WindowBegin() const override { return engine_->WindowBegin(); }
  absl::Status Export(const ExtentInfo& extent, char* to) override {
    return engine_->Export(extent, to);
  }
  void EndCapture() override { engine_->EndCapture(); }
  absl::Status BeginImport(std::uint32_t tokens, std::uint32_t window_begin) override {
    return engine_->BeginImport(tokens, window_begin);
  }
  absl::Status Import(const StageMap& stored, const ExtentInfo& extent,
                      absl::Span<const char> raw) override {
    ++imports;
    return engine_->Import(stored, extent, raw);
  }
  absl::Status FinishImport(std::uint32_t tokens) override { return engine_->FinishImport(tokens); }
  void Clear() override { engine_->Clear(); }

  int imports = 0;

 private:
  FakeEngine* engine_;
};

// The parent's extent that reaches past the fork is read last of all: it must not overwrite.
TEST(ManagerCache, TheOrderOfReadingDoesNotMatterToAFork) {
  Rig rig(DurableOnly());
  auto engine = rig.MakeEngine();
  const std::vector<Token> trunk = Tokens(1, 300);
  engine->Append(trunk);
  rig.Park(*engine);
  const ParkKey parent = rig.sink().events().parks[0].key;
  const std::vector<Token> branch = Fork(trunk, 280, 2, 100);
  auto other = rig.MakeEngine();
  rig.Run(*other, branch);
  rig.Park(*other);

  absl::Notification go_on;
  rig.durable().SetObserver([&](const CallSubject& call) {
    if (call.call == TierCall::kReadExtent && call.keys[0] == parent && call.extent == 1u) {
      go_on.WaitForNotification();
    }
  });
  const std::vector<Token> prompt = Fork(branch, 380, 3, 5);
  auto restore = rig.cache().Lookup(rig.Request(prompt));
  auto target = rig.MakeEngine();
  CountingSequence counted(target.get());
  // The parent's first extent and the fork's own.
  while (counted.imports < 2) {
    ASSERT_TRUE(restore->WaitReady(30000));
    ASSERT_EQ(restore->Step(counted, 0), State::kReading);
  }
  go_on.Notify();
  EXPECT_EQ(rig.StepToEnd(*restore, *target), State::kRestored);
  target->SetTokens({prompt.begin(), prompt.begin() + 380});
  EXPECT_EQ(target->Verify(), absl::OkStatus());
  rig.cache().FinishLookup(std::move(restore), 380);
}

TEST(ManagerCache, LayersMayBeSplitDifferentlyAtEveryStep) {
  for (const RigModel& model : {FullModel(), WindowModel(), StateModel(), MixedModel()}) {
    Rig rig(RigOptions{model});
    auto engine = rig.MakeEngine({1, 1});
    const std::vector<Token> text = Tokens(1, 400);
    engine->Append(text);
    rig.Park(*engine);
    auto three = rig.MakeEngine({1, 1, 2});
    const std::vector<Token> longer = Fork(text, 400, 2, 200);
    const Restored restored = rig.Run(*three, longer);
    EXPECT_EQ(Hit(restored.record, Source::kRam), 400u);
    EXPECT_EQ(restored.record.stage_sources, (std::vector<Source>{Source::kRam, Source::kRam}));
    rig.Park(*three);
    auto one = rig.MakeEngine({1});
    const Restored joined = rig.Run(*one, Fork(longer, 600, 3, 10));
    EXPECT_EQ(Hit(joined.record, Source::kRam), 600u);
    EXPECT_EQ(joined.record.stage_sources.size(), 3u);
    EXPECT_EQ(rig.cache().List(1, ConversationId())[0].stages, three->stages());
  }
}

TEST(ManagerCache, WindowRowsDecideWhereARestoreMayEnd) {
  Rig rig(RigOptions{WindowModel()});  // 100 tokens: 101 rows before the boundary
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 1000);
  engine->Append(absl::MakeConstSpan(text).subspan(0, 400));
  rig.Park(*engine);
  engine->Append(absl::MakeConstSpan(text).subspan(400));
  rig.Park(*engine);
  const auto info = rig.cache().Get(rig.cache().List(1, ConversationId())[0].id);
  ASSERT_EQ(info->parks.size(), 2u);
  EXPECT_EQ(info->parks[0].window_rows, (std::vector<TokenRange>{{198, 400}}));
  EXPECT_EQ(info->parks[1].window_rows, (std::vector<TokenRange>{{798, 1000}}));
  const auto usable = [&](std::size_t match) {
    auto other = rig.MakeEngine();
    const Restored restored = rig.Run(*other, Fork(text, match, 7, 20));
    EXPECT_EQ(restored.record.matched_tokens, match);
    EXPECT_EQ(Miss(restored.record, MissReason::kCheckpoint),
              match - restored.record.reused_tokens);
    return restored.record.reused_tokens;
  };
  EXPECT_EQ(usable(1000), 1000u);
  EXPECT_EQ(usable(899), 899u);
  EXPECT_EQ(usable(898), 400u);  // row 797 is missing
  EXPECT_EQ(usable(299), 299u);
  EXPECT_EQ(usable(298), 0u);
}

TEST(ManagerCache, WithoutABoundaryNoWindowRowsAreKept) {
  Rig rig(RigOptions{WindowModel()});
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 300);
  engine->Append(text);
  rig.Park(*engine, false);
  auto other = rig.MakeEngine();
  EXPECT_EQ(rig.Run(*other, Fork(text, 300, 2, 5)).record.reused_tokens, 0u);
  // They are added later, without the tokens' rows.
  const std::uint64_t before = engine->copied_bytes();
  rig.Park(*engine, true);
  EXPECT_EQ(engine->copied_bytes() - before, 202u * 4 * 64);
  EXPECT_EQ(rig.Run(*other, Fork(text, 300, 2, 5)).record.reused_tokens, 300u);
}

TEST(ManagerCache, RecurrentStateIsRestoredAtItsCheckpoint) {
  Rig rig(RigOptions{StateModel()});
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 500);
  engine->Append(absl::MakeConstSpan(text).subspan(0, 300));
  rig.Park(*engine);
  engine->Append(absl::MakeConstSpan(text).subspan(300));
  rig.Park(*engine);
  auto other = rig.MakeEngine();
  EXPECT_EQ(rig.Run(*other, Fork(text, 500, 2, 5)).record.reused_tokens, 500u);
  const Restored edited = rig.Run(*other, Fork(text, 450, 2, 5));
  EXPECT_EQ(edited.record.matched_tokens, 450u);
  EXPECT_EQ(edited.record.usable_tokens, 300u);
  EXPECT_EQ(edited.record.reused_tokens, 300u);
  EXPECT_EQ(Miss(edited.record, MissReason::kCheckpoint), 150u);
  EXPECT_EQ(rig.Run(*other, Fork(text, 299, 2, 5)).record.reused_tokens, 0u);
  // At least one token is computed, so the checkpoint at the very end is of no use.
  EXPECT_EQ(rig.Run(*other, text).record.reused_tokens, 300u);
}

// Parent and fork both have a checkpoint, and window rows, at the same position.
TEST(ManagerCache, AForkNeverGetsItsParentsStateOrWindow) {
  for (const RigModel& model : {WindowModel(), StateModel(), MixedModel()}) {
    Rig rig(RigOptions{model});
    const std::vector<Token> trunk = Tokens(1, 500);
    const std::vector<Token> branch = Fork(trunk, 300, 2, 200);
    auto engine = rig.MakeEngine();
    engine->Append(absl::MakeConstSpan(trunk).subspan(0, 300));
    rig.Park(*engine);
    engine->Append(absl::MakeConstSpan(trunk).subspan(300));
    rig.Park(*engine);
    auto other = rig.MakeEngine();
    EXPECT_EQ(rig.Run(*other, branch).record.reused_tokens, 300u);
    rig.Park(*other);
    for (const auto& text : {trunk, branch, Fork(branch, 500, 3, 40), Fork(trunk, 500, 4, 40)}) {
      auto again = rig.MakeEngine();
      rig.Run(*again, Fork(text, text.size(), 5, 7));
      rig.Park(*again);
      auto last = rig.MakeEngine();
      const Restored restored = rig.Run(*last, Fork(text, text.size(), 6, 7));
      EXPECT_GE(restored.record.reused_tokens, 500u);
    }
  }
}

TEST(ManagerCache, StateAndWindowLargerThanAParkAreSpread) {
  RigModel model = MixedModel();
  model.state_bytes = 5u << 20;  // two layers: 10 MiB; a piece is at most 4 MiB here
  model.row_bytes = 16384;       // a window row: 64 KiB, two windows: 13 MiB
  RigOptions options(model);
  options.cache.capture_buffer_bytes = 8u << 20;
  Rig rig(options);
  auto engine = rig.MakeEngine({2, 1});
  const std::vector<Token> text = Tokens(1, 220);
  engine->Append(text);
  rig.Park(*engine);
  for (const ParkEvent& park : rig.sink().events().parks) {
    EXPECT_LE(park.payload_bytes, 4u << 20);
  }
  auto other = rig.MakeEngine();
  EXPECT_EQ(rig.Run(*other, Fork(text, 220, 2, 3)).record.reused_tokens, 220u);
}

TEST(ManagerCache, APromptLargerThanTheBuffersIsParkedBitByBit) {
  RigModel model;
  model.row_bytes = 1024;  // 8 KiB a token
  RigOptions options(model);
  options.cache.capture_buffer_bytes = 1u << 20;
  Rig rig(options);
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 1000);
  engine->Append(text);
  absl::Notification stored;
  rig.ram().SetObserver([&](const CallSubject& call) {
    if (call.call == TierCall::kStore) stored.WaitForNotification();
  });
  const ParkOutcome outcome = rig.ParkOnce(*engine);
  EXPECT_FALSE(outcome.complete);
  EXPECT_EQ(outcome.captured_tokens, 128u);  // two pieces of half a MiB
  EXPECT_EQ(rig.ParkOnce(*engine).captured_tokens, 128u);
  // What is captured can be used already.
  auto other = rig.MakeEngine();
  EXPECT_EQ(rig.Run(*other, text).record.reused_tokens, 128u);
  stored.Notify();
  rig.Settle();
  EXPECT_EQ(rig.Park(*engine).captured_tokens, 1000u);
  EXPECT_EQ(rig.cache().Queue().capture_bytes, 0u);
  EXPECT_EQ(rig.Run(*other, text).record.reused_tokens, 999u);
  EXPECT_EQ(rig.cache().List(10, ConversationId()).size(), 1u);
}

TEST(ManagerCache, ALookupFindsWhatIsStillQueued) {
  Rig rig;
  absl::Notification stored;
  rig.ram().SetObserver([&](const CallSubject& call) {
    if (call.call == TierCall::kStore) stored.WaitForNotification();
  });
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 300);
  engine->Append(text);
  rig.ParkOnce(*engine);
  engine->Append(Tokens(2, 50));
  rig.ParkOnce(*engine);
  EXPECT_GT(rig.cache().Queue().spill_queue_bytes, 0u);
  auto other = rig.MakeEngine();
  const Restored restored = rig.Run(*other, Fork(engine->tokens(), 350, 3, 9));
  EXPECT_EQ(Hit(restored.record, Source::kRam), 350u);
  stored.Notify();
  rig.Settle();
  EXPECT_EQ(rig.cache().Queue().capture_bytes, 0u);
}

TEST(ManagerCache, ShortAndForeignSequencesAreNotParked) {
  RigOptions options;
  options.cache.min_tokens = 64;
  Rig rig(options);
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 63));
  EXPECT_EQ(rig.Park(*engine).captured_tokens, 0u);
  const RecordedEvents events = rig.sink().events();
  ASSERT_EQ(events.skips.size(), 1u);
  EXPECT_EQ(events.skips[0].reason, SkipReason::kTooShort);
  EXPECT_EQ(events.skips[0].tokens, 63u);
  engine->Append(Tokens(2, 100));
  const std::vector<Token> tokens = engine->tokens();
  EXPECT_EQ(rig.cache().Park(*engine, ParkRequest{Digest128{1, 2}, tokens, true}).captured_tokens,
            0u);
  EXPECT_TRUE(rig.cache().List(10, ConversationId()).empty());
}

TEST(ManagerCache, MemoryThatDoesNotHoldTheTokensIsNotParked) {
  Rig rig;
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 100));
  std::vector<Token> more = engine->tokens();
  more.push_back(7);
  const ParkOutcome outcome = rig.cache().Park(*engine, ParkRequest{rig.identity(), more, true});
  EXPECT_TRUE(outcome.complete);
  const RecordedEvents events = rig.sink().events();
  ASSERT_EQ(events.skips.size(), 1u);
  EXPECT_EQ(events.skips[0].reason, SkipReason::kUnsupported);
  EXPECT_TRUE(events.parks.empty());
}

TEST(ManagerCache, ARestoreMayBeAbandonedAtEveryState) {
  Rig rig(DurableOnly());
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 2000);
  engine->Append(text);
  rig.Park(*engine);
  const std::vector<Token> prompt = Fork(text, 2000, 2, 5);
  auto target = rig.MakeEngine();
  { auto planning = rig.cache().Lookup(rig.Request(prompt)); }
  {
    auto reading = rig.cache().Lookup(rig.Request(prompt));
    ASSERT_TRUE(reading->WaitReady(30000));
    EXPECT_EQ(reading->state(), State::kReading);
    EXPECT_EQ(reading->restored_tokens(), 2000u);
  }
  {
    auto placed = rig.cache().Lookup(rig.Request(prompt));
    ASSERT_TRUE(placed->WaitReady(30000));
    placed->Step(*target, 0);
    target->Clear();
  }
  {
    auto done = rig.cache().Lookup(rig.Request(prompt));
    EXPECT_EQ(rig.StepToEnd(*done, *target), State::kRestored);
  }
  EXPECT_TRUE(rig.sink().events().lookups.empty());
  // Nothing is pinned or held any more.
  EXPECT_EQ(rig.Run(*target, prompt).record.reused_tokens, 2000u);
  EXPECT_TRUE(rig.cache().SetBudget(TierKind::kDisk, 0).ok());
  EXPECT_TRUE(rig.cache().List(10, ConversationId()).empty());
}

// The engine goes on without waiting: what was found so far is another thread's, and is not read.
TEST(ManagerCache, FinishingBeforeThePlanIsReadyIsCounted) {
  Rig rig(DurableOnly());
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 300);
  engine->Append(text);
  rig.Park(*engine);
  absl::Notification go_on;
  rig.durable().SetObserver([&](const CallSubject& call) {
    if (call.call == TierCall::kReadExtents) go_on.WaitForNotification();
  });
  auto restore = rig.cache().Lookup(rig.Request(Fork(text, 300, 2, 5)));
  EXPECT_FALSE(restore->WaitReady(1));
  EXPECT_FALSE(restore->WillRestore());
  EXPECT_EQ(restore->Step(*engine, 1000), State::kPlanning);
  rig.cache().FinishLookup(std::move(restore), 0);
  go_on.Notify();
  const LookupRecord record = rig.cache().Lookups(1).at(0);
  EXPECT_EQ(CheckSums(record), "");
  EXPECT_EQ(Miss(record, MissReason::kIncomplete), 304u);
  EXPECT_EQ(Miss(record, MissReason::kNew), 1u);
}

TEST(ManagerCache, AnEngineWithoutRoomIsAMiss) {
  Rig rig;
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 300);
  engine->Append(text);
  rig.Park(*engine);
  FakeEngineOptions small;
  const StateLayout layout = FullModel().layout();
  small.planes = layout.planes;
  small.max_tokens = 200;
  FakeEngine target(small);
  auto restore = rig.cache().Lookup(rig.Request(Fork(text, 300, 2, 5)));
  EXPECT_EQ(rig.StepToEnd(*restore, target), State::kFailed);
  EXPECT_EQ(restore->restored_tokens(), 0u);
  rig.cache().FinishLookup(std::move(restore), 0);
  const LookupRecord record = rig.cache().Lookups(1).at(0);
  EXPECT_EQ(CheckSums(record), "");
  EXPECT_EQ(Miss(record, MissReason::kIncomplete), 300u);
  EXPECT_NE(record.detail, "");
}

TEST(ManagerCache, APromptThatDoesNotComeInTimeKeepsWhatCame) {
  RigOptions options = DurableOnly();
  options.cache.restore_deadline_ms = 20;
  options.cache.reader_threads = 1;
  Rig rig(options);
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 600);
  engine->Append(text);
  rig.Park(*engine);
  absl::Notification go_on;
  rig.durable().SetObserver([&](const CallSubject& call) {
    if (call.call == TierCall::kReadExtent && call.extent == 1u) go_on.WaitForNotification();
  });
  auto restore = rig.cache().Lookup(rig.Request(Fork(text, 600, 2, 5)));
  auto target = rig.MakeEngine();
  State state = State::kReading;
  while (state == State::kReading || state == State::kPlanning) {
    restore->WaitReady(5);
    state = restore->Step(*target, 1000);
  }
  EXPECT_EQ(state, State::kRestored);
  EXPECT_EQ(restore->restored_tokens(), 256u);
  target->SetTokens({text.begin(), text.begin() + 256});
  EXPECT_EQ(target->Verify(), absl::OkStatus());
  rig.cache().FinishLookup(std::move(restore), 256);
  go_on.Notify();
  const LookupRecord record = rig.cache().Lookups(1).at(0);
  EXPECT_EQ(CheckSums(record), "");
  EXPECT_EQ(Hit(record, Source::kDisk), 256u);
  EXPECT_EQ(Miss(record, MissReason::kIncomplete), 344u);
  EXPECT_EQ(record.restored_bytes, 256u * 8 * 64);
  EXPECT_EQ(rig.sink().events().stages_limited, std::vector<std::uint16_t>{0});
}

}  // namespace
}  // namespace parkade::test
