// Parks of one conversation that no writer has begun become one.

#include <gtest/gtest.h>

#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

using State = Restore::State;

constexpr std::uint64_t kTokenBytes = 8 * 64;  // of FullModel

RigOptions DurableOnly(RigModel model = FullModel()) {
  RigOptions options(model);
  options.ram = false;
  options.durable = true;
  options.cache.ram_budget_bytes = 0;
  return options;
}

ConversationInfo Only(Rig& rig) {
  const auto list = rig.cache().List(10, ConversationId());
  EXPECT_EQ(list.size(), 1u);
  return list.empty() ? ConversationInfo() : *rig.cache().Get(list[0].id);
}

std::vector<TokenRange> ParkRanges(const ConversationInfo& info) {
  std::vector<TokenRange> ranges;
  for (const auto& park : info.parks) ranges.push_back(park.tokens);
  return ranges;
}

// Parks the next `count` tokens of `text`, without waiting.
void ParkNext(Rig& rig, FakeEngine& engine, const std::vector<Token>& text, std::size_t count,
              bool boundary = true) {
  const std::size_t from = engine.tokens().size();
  engine.Append(absl::MakeConstSpan(text).subspan(from, count));
  EXPECT_TRUE(rig.ParkOnce(engine, boundary).complete);
}

TEST(ManagerCollapse, ParksThatWaitBecomeOne) {
  for (const bool disk : {false, true}) {
    RigOptions options = DurableOnly();
    options.durable = !disk;
    options.disk = disk;
    Rig rig(options);
    const std::vector<Token> text = Tokens(1, 400);
    auto engine = rig.MakeEngine();
    {
      StoreGate gate(&rig.durable());
      ParkNext(rig, *engine, text, 100);
      gate.WaitForWriter();
      // The first one is begun: it stays as it is.
      for (const std::size_t count : {100u, 80u, 119u, 1u}) ParkNext(rig, *engine, text, count);
      const ConversationInfo queued = Only(rig);
      EXPECT_EQ(ParkRanges(queued), (std::vector<TokenRange>{{0, 100}, {100, 400}}));
      EXPECT_EQ(queued.bytes, 400 * kTokenBytes);
      EXPECT_EQ(rig.cache().Queue().spill_queue_bytes, 400 * kTokenBytes);
      // Every token is found, on both sides of the seams and in the page that lies across one.
      for (const std::size_t at : {100u, 199u, 200u, 255u, 256u, 280u, 281u, 399u, 400u}) {
        auto other = rig.MakeEngine();
        EXPECT_EQ(rig.Run(*other, Fork(text, at, 2, 5)).record.reused_tokens, at);
      }
    }
    rig.Settle();
    EXPECT_EQ(rig.cache().Queue().capture_bytes, 0u);
    EXPECT_EQ(rig.durable().calls(TierCall::kStore), 2u);
    const auto events = rig.sink().events();
    ASSERT_EQ(events.parks.size(), 5u);
    for (std::size_t i = 1; i < 5; ++i) EXPECT_EQ(events.parks[i].key.park, 1u);
    EXPECT_EQ(events.parks[3].tokens, 119u);
    EXPECT_EQ(events.parks[3].payload_bytes, 119 * kTokenBytes);
    const auto extents = rig.durable().ReadExtents(events.parks[1].key);
    ASSERT_TRUE(extents.ok());
    ASSERT_EQ(extents->size(), 4u);
    EXPECT_EQ((*extents)[2].first, 280u);
    EXPECT_EQ((*extents)[2].rows, 119u);
    rig.Close();
    rig.Open();
    EXPECT_EQ(ParkRanges(Only(rig)), (std::vector<TokenRange>{{0, 100}, {100, 400}}));
    for (const std::size_t at : {199u, 256u, 300u, 400u}) {
      auto other = rig.MakeEngine();
      const Restored restored = rig.Run(*other, Fork(text, at, 3, 5));
      EXPECT_EQ(Hit(restored.record, Source::kDisk), at);
    }
  }
}

TEST(ManagerCollapse, WindowRowsAndStatesOfEveryStepAreKept) {
  for (const RigModel& model : {WindowModel(), StateModel(), MixedModel()}) {
    RigOptions options(model);
    options.durable = true;
    Rig rig(options);
    const std::vector<Token> text = Tokens(1, 700);
    auto engine = rig.MakeEngine({1, 2});
    {
      StoreGate gate(&rig.ram());
      ParkNext(rig, *engine, text, 100);
      gate.WaitForWriter();
      ParkNext(rig, *engine, text, 200);
      ParkNext(rig, *engine, text, 30, false);
      ParkNext(rig, *engine, text, 70);
      ParkNext(rig, *engine, text, 300);
    }
    rig.Settle();
    // A checkpoint stands alone.
    const bool state = model.state_layers > 0;
    EXPECT_EQ(ParkRanges(Only(rig)),
              state ? (std::vector<TokenRange>{
                          {0, 100}, {100, 100}, {100, 700}, {300, 300}, {400, 400}, {700, 700}})
                    : (std::vector<TokenRange>{{0, 100}, {100, 700}}));
    EXPECT_EQ(rig.durable().calls(TierCall::kStore), state ? 6u : 2u);
    const auto expect_restores = [&] {
      for (const std::size_t at : {300u, 400u, 700u}) {
        auto other = rig.MakeEngine({1});
        EXPECT_EQ(rig.Run(*other, Fork(text, at, 2, 5)).record.reused_tokens, at);
      }
    };
    expect_restores();
    if (state) {
      EXPECT_EQ(Only(rig).parks[3].checkpoints, (std::vector<std::uint32_t>{300}));
      EXPECT_EQ(Only(rig).parks[5].checkpoints, (std::vector<std::uint32_t>{700}));
    }
    rig.Settle();
    rig.Close();
    rig.Open();
    expect_restores();
  }
}

// State and window rows that come later, at the end of what waits.
TEST(ManagerCollapse, ABoundaryWithoutNewTokensJoinsWhatItStandsOn) {
  Rig rig(DurableOnly(MixedModel()));
  const std::vector<Token> text = Tokens(1, 500);
  auto engine = rig.MakeEngine();
  {
    StoreGate gate(&rig.durable());
    ParkNext(rig, *engine, text, 100);
    gate.WaitForWriter();
    ParkNext(rig, *engine, text, 300, false);
    ParkNext(rig, *engine, text, 0, true);
    ParkNext(rig, *engine, text, 100, true);
  }
  rig.Settle();
  EXPECT_EQ(ParkRanges(Only(rig)),
            (std::vector<TokenRange>{{0, 100}, {100, 100}, {100, 500}, {400, 400}, {500, 500}}));
  EXPECT_FALSE(Only(rig).parks[2].window_rows.empty());
  for (const std::size_t at : {400u, 500u}) {
    auto other = rig.MakeEngine();
    EXPECT_EQ(rig.Run(*other, Fork(text, at, 2, 5)).record.reused_tokens, at);
  }
}

// A park without tokens stays without: parts of a large state are looked for in such ones.
TEST(ManagerCollapse, AParkWithoutTokensTakesNoTokens) {
  RigModel model = StateModel();
  model.state_bytes = 3u << 20;  // two layers: 6 MiB; a piece is at most 4 MiB
  Rig rig(DurableOnly(model));
  const std::vector<Token> text = Tokens(1, 300);
  auto engine = rig.MakeEngine();
  ParkNext(rig, *engine, text, 200, false);
  rig.Settle();
  {
    StoreGate gate(&rig.durable());
    auto blocker = rig.MakeEngine();
    blocker->Append(Tokens(9, 100));
    rig.ParkOnce(*blocker, false);
    gate.WaitForWriter();
    ParkNext(rig, *engine, text, 0, true);
    ParkNext(rig, *engine, text, 100, false);
  }
  rig.Settle();
  auto other = rig.MakeEngine();
  EXPECT_EQ(rig.Run(*other, Fork(text, 200, 2, 5)).record.reused_tokens, 200u);
  for (const auto& info : rig.cache().List(10, ConversationId())) {
    if (info.tokens != 300) continue;
    const auto detail = rig.cache().Get(info.id);
    EXPECT_EQ(ParkRanges(*detail),
              (std::vector<TokenRange>{{0, 200}, {200, 200}, {200, 200}, {200, 300}}));
  }
}

TEST(ManagerCollapse, APlanMadeBeforeStaysRight) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = Tokens(1, 900);
  auto engine = rig.MakeEngine();
  std::unique_ptr<Restore> before;
  {
    StoreGate gate(&rig.durable());
    ParkNext(rig, *engine, text, 100);
    gate.WaitForWriter();
    ParkNext(rig, *engine, text, 300);
    before = rig.cache().Lookup(rig.Request(Fork(text, 390, 2, 50)));
    ASSERT_TRUE(before->WaitReady(30000));
    EXPECT_EQ(before->restored_tokens(), 390u);
    ParkNext(rig, *engine, text, 500);
    EXPECT_EQ(ParkRanges(Only(rig)), (std::vector<TokenRange>{{0, 100}, {100, 900}}));
  }
  rig.Settle();
  auto target = rig.MakeEngine();
  EXPECT_EQ(rig.StepToEnd(*before, *target), State::kRestored);
  target->SetTokens({text.begin(), text.begin() + 390});
  EXPECT_EQ(target->Verify(), absl::OkStatus());
  rig.cache().FinishLookup(std::move(before), 390);
  // Nothing of it is pinned any more.
  EXPECT_TRUE(rig.cache().SetBudget(TierKind::kDisk, 0).ok());
  EXPECT_TRUE(rig.cache().List(10, ConversationId()).empty());
}

TEST(ManagerCollapse, AnotherSplitOfTheLayersIsAnotherPark) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = Tokens(1, 400);
  auto one = rig.MakeEngine({1});
  auto two = rig.MakeEngine({1, 1});
  {
    StoreGate gate(&rig.durable());
    ParkNext(rig, *one, text, 100);
    gate.WaitForWriter();
    ParkNext(rig, *one, text, 100);
    two->Append(absl::MakeConstSpan(text).subspan(0, 300));
    EXPECT_TRUE(rig.ParkOnce(*two).complete);
    two->Append(absl::MakeConstSpan(text).subspan(300, 100));
    EXPECT_TRUE(rig.ParkOnce(*two).complete);
  }
  rig.Settle();
  EXPECT_EQ(ParkRanges(Only(rig)), (std::vector<TokenRange>{{0, 100}, {100, 200}, {200, 400}}));
  auto other = rig.MakeEngine({1, 2});
  EXPECT_EQ(rig.Run(*other, Fork(text, 400, 2, 5)).record.reused_tokens, 400u);
}

TEST(ManagerCollapse, AParkNeverPassesItsLimits) {
  {
    RigModel model;
    model.row_bytes = 16384;  // 128 KiB a token: 480 tokens are 60 MiB
    RigOptions options = DurableOnly(model);
    options.cache.capture_buffer_bytes = 96u << 20;
    Rig rig(options);
    const std::vector<Token> text = Tokens(1, 600);
    auto engine = rig.MakeEngine();
    StoreGate gate(&rig.durable());
    ParkNext(rig, *engine, text, 64);
    gate.WaitForWriter();
    for (const std::size_t count : {256u, 192u, 32u, 33u}) ParkNext(rig, *engine, text, count);
    EXPECT_EQ(ParkRanges(Only(rig)), (std::vector<TokenRange>{{0, 64}, {64, 544}, {544, 577}}));
    EXPECT_EQ(Only(rig).parks[1].bytes, kParkBytes);
  }
  Rig rig(DurableOnly());
  const std::vector<Token> text = Tokens(1, 1000);
  auto engine = rig.MakeEngine();
  StoreGate gate(&rig.durable());
  ParkNext(rig, *engine, text, 100);
  gate.WaitForWriter();
  for (int i = 0; i < 600; ++i) ParkNext(rig, *engine, text, 1);
  // An extent each.
  EXPECT_EQ(ParkRanges(Only(rig)), (std::vector<TokenRange>{{0, 100}, {100, 612}, {612, 700}}));
}

TEST(ManagerCollapse, ForgettingTakesAllOfIt) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = Tokens(1, 500);
  auto engine = rig.MakeEngine();
  {
    StoreGate gate(&rig.durable());
    ParkNext(rig, *engine, text, 100);
    gate.WaitForWriter();
    ParkNext(rig, *engine, text, 200);
    ParkNext(rig, *engine, text, 100);
    // A fork keeps what it stands on; nothing is added to the forgotten one any more.
    auto other = rig.MakeEngine();
    rig.Run(*other, Fork(text, 350, 2, 100));
    EXPECT_TRUE(rig.ParkOnce(*other).complete);
    const auto list = rig.cache().List(10, ConversationId());
    ASSERT_EQ(list.size(), 2u);
    const ConversationId root = list[0].forked_from.has_value() ? list[1].id : list[0].id;
    const auto kept = rig.cache().Forget(root);
    ASSERT_TRUE(kept.ok());
    EXPECT_EQ(*kept, 350u);
    ParkNext(rig, *engine, text, 100);
    auto again = rig.MakeEngine();
    EXPECT_EQ(rig.Run(*again, Fork(text, 500, 3, 5)).record.reused_tokens, 500u);
  }
  rig.Settle();
  const auto list = rig.cache().List(10, ConversationId());
  ASSERT_EQ(list.size(), 2u);
  for (const auto& info : list) {
    ASSERT_TRUE(rig.cache().Forget(info.id).ok());
  }
  std::uint32_t parks = 0;
  EXPECT_TRUE(rig.durable().Enumerate([&](const ParkSummary&) { ++parks; }).ok());
  EXPECT_EQ(parks, 0u);
  EXPECT_EQ(rig.Look(text).matched_tokens, 0u);
  EXPECT_EQ(rig.cache().Queue().capture_bytes, 0u);
}

TEST(ManagerCollapse, DrainDropsAndCountsAllOfIt) {
  Rig rig(DurableOnly());
  const std::vector<Token> text = Tokens(1, 500);
  auto engine = rig.MakeEngine();
  {
    StoreGate gate(&rig.durable());
    ParkNext(rig, *engine, text, 100);
    gate.WaitForWriter();
    ParkNext(rig, *engine, text, 200);
    ParkNext(rig, *engine, text, 200);
    rig.cache().Drain(0);
    EXPECT_EQ(rig.cache().Queue().spill_queue_bytes, 100 * kTokenBytes);
  }
  rig.Settle();
  ASSERT_EQ(rig.sink().events().skips.size(), 1u);
  EXPECT_EQ(rig.sink().events().skips[0].tokens, 400u);
  EXPECT_EQ(ParkRanges(Only(rig)), (std::vector<TokenRange>{{0, 100}}));
  EXPECT_EQ(rig.Look(text).matched_tokens, 100u);
}

}  // namespace
}  // namespace parkade::test
