// Named sessions: a name is a conversation and a position.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/manager/catalogue.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

constexpr std::int64_t kDeadlineMs = 30000;

RigOptions Durable(RigModel model = FullModel()) {
  RigOptions options(model);
  options.durable = true;
  return options;
}

std::vector<ConversationInfo> All(Rig& rig) { return rig.cache().List(1000, ConversationId()); }

std::vector<ConversationInfo> Named(Rig& rig, const std::string& name) {
  std::vector<ConversationInfo> found;
  for (ConversationInfo& info : All(rig)) {
    if (info.name == name) found.push_back(std::move(info));
  }
  return found;
}

// Parks all that the engine holds, whatever its length, and saves it.
absl::StatusOr<SavedSession> Save(Rig& rig, FakeEngine& engine, const std::string& name) {
  ParkRequest request;
  request.identity = rig.identity();
  request.tokens = engine.tokens();
  request.always = true;
  const ParkOutcome parked = rig.cache().Park(engine, request);
  EXPECT_TRUE(parked.complete);
  EXPECT_EQ(parked.captured_tokens, engine.tokens().size());
  return rig.cache().SaveSession(parked.conversation, parked.captured_tokens, name, kDeadlineMs);
}

// Restores a session into a new engine, exactly, and checks every row.
void ExpectRestores(Rig& rig, const std::string& name, const std::vector<Token>& tokens,
                    std::vector<int> shares = {1}) {
  SCOPED_TRACE(name);
  const absl::StatusOr<SavedSession> found = rig.cache().FindSession(name);
  ASSERT_EQ(found.status(), absl::OkStatus());
  ASSERT_EQ(found->tokens, tokens);
  EXPECT_EQ(found->identity, rig.identity());
  LookupRequest request;
  request.identity = found->identity;
  request.tokens = found->tokens;
  request.cacheable_tokens = static_cast<std::uint32_t>(tokens.size());
  request.tokens.push_back(0);
  request.session = found->conversation;
  const std::size_t lookups = rig.cache().Lookups(1000).size();
  auto engine = rig.MakeEngine(std::move(shares));
  std::unique_ptr<Restore> restore = rig.cache().Lookup(std::move(request));
  ASSERT_TRUE(restore->WaitReady(kDeadlineMs));
  ASSERT_EQ(restore->restored_tokens(), tokens.size());
  ASSERT_EQ(rig.StepToEnd(*restore, *engine), Restore::State::kRestored);
  engine->SetTokens(tokens);
  EXPECT_EQ(engine->Verify(), absl::OkStatus());
  const RestoreTotals totals = rig.cache().FinishSession(std::move(restore));
  EXPECT_EQ(totals.tokens, tokens.size());
  EXPECT_GT(totals.bytes, 0u);
  EXPECT_EQ(rig.cache().Lookups(1000).size(), lookups);
}

class ManagerSessionsOf : public testing::TestWithParam<int> {
 protected:
  static RigModel Model() {
    switch (GetParam()) {
      case 0:
        return FullModel();
      case 1:
        return WindowModel();
      case 2:
        return StateModel();
      default:
        return MixedModel();
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Models, ManagerSessionsOf, testing::Range(0, 4));

TEST_P(ManagerSessionsOf, KeepTheirPositionWhenTheChatGoesOnAndAfterARestart) {
  Rig rig(Durable(Model()));
  const std::vector<Token> text = Tokens(1, 900);
  const std::vector<Token> first(text.begin(), text.begin() + 300);
  const std::vector<Token> second(text.begin(), text.begin() + 517);
  auto engine = rig.MakeEngine();
  engine->Append(first);
  const auto saved = Save(rig, *engine, "first");
  ASSERT_EQ(saved.status(), absl::OkStatus());
  EXPECT_TRUE(saved->durable);
  EXPECT_EQ(saved->token_count, 300u);
  EXPECT_GT(saved->bytes, 0u);
  engine->Append(absl::MakeConstSpan(text).subspan(300, 217));
  ASSERT_EQ(Save(rig, *engine, "second").status(), absl::OkStatus());
  engine->Append(absl::MakeConstSpan(text).subspan(517));
  rig.Park(*engine);
  for (int round = 0; round < 2; ++round) {
    ExpectRestores(rig, "first", first);
    ExpectRestores(rig, "second", second);
    rig.Close();
    rig.Open();
  }
  ExpectRestores(rig, "second", second, {1, 2, 1});
  const std::vector<ConversationInfo> listed = Named(rig, "first");
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_TRUE(listed[0].pinned);
  EXPECT_EQ(listed[0].tokens, 300u);
  EXPECT_EQ(listed[0].durable_tokens, 300u);
  EXPECT_EQ(listed[0].bytes, 0u);
  EXPECT_EQ(listed[0].forked_at, 300u);
  // The chat itself went on as one conversation.
  EXPECT_EQ(All(rig).size(), 3u);
}

TEST(ManagerSessions, ShortOnesCanBeSavedToo) {
  Rig rig(Durable());
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 9));
  ASSERT_EQ(Save(rig, *engine, "short").status(), absl::OkStatus());
  rig.Close();
  rig.Open();
  ExpectRestores(rig, "short", Tokens(1, 9));
}

TEST(ManagerSessions, AnotherSaveTakesTheName) {
  Rig rig(Durable());
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 400);
  engine->Append(absl::MakeConstSpan(text).subspan(0, 200));
  ASSERT_EQ(Save(rig, *engine, "name").status(), absl::OkStatus());
  engine->Append(absl::MakeConstSpan(text).subspan(200));
  const auto again = Save(rig, *engine, "name");
  ASSERT_EQ(again.status(), absl::OkStatus());
  ASSERT_EQ(Named(rig, "name").size(), 1u);
  EXPECT_EQ(Named(rig, "name")[0].id, again->conversation);
  ExpectRestores(rig, "name", text);
  rig.Close();
  rig.Open();
  EXPECT_EQ(All(rig).size(), 2u);
  ExpectRestores(rig, "name", text);
}

// A crash after a save and before what had the name has lost it.
TEST(ManagerSessions, ANameIsOneConversationsAfterARestart) {
  Rig rig(Durable());
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 200));
  ASSERT_EQ(Save(rig, *engine, "first").status(), absl::OkStatus());
  auto other = rig.MakeEngine();
  other->Append(Tokens(2, 150));
  ASSERT_EQ(Save(rig, *other, "name").status(), absl::OkStatus());
  const ConversationId older = Named(rig, "first").at(0).id;
  rig.Close();
  ConversationAttributes attributes;
  attributes.conversation = older;
  attributes.pinned = true;
  attributes.name = "name";
  attributes.name_tokens = 200;
  ASSERT_TRUE(rig.durable_medium().WriteAttributes({&attributes, 1}, true).ok());
  rig.Open();
  ASSERT_EQ(Named(rig, "name").size(), 1u);
  // The newer one has it, or either if both are of the same millisecond.
  const bool first = Named(rig, "name")[0].tokens == 200;
  ExpectRestores(rig, "name", first ? Tokens(1, 200) : Tokens(2, 150));
}

TEST(ManagerSessions, ANameGivenByPinIsOneToo) {
  Rig rig(Durable());
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 200));
  rig.Park(*engine);
  const ConversationId chat = All(rig).at(0).id;
  ASSERT_EQ(rig.cache().Pin(chat, true, "mine"), absl::OkStatus());
  ExpectRestores(rig, "mine", Tokens(1, 200));
  auto other = rig.MakeEngine();
  other->Append(Tokens(2, 100));
  ASSERT_EQ(Save(rig, *other, "theirs").status(), absl::OkStatus());
  EXPECT_TRUE(absl::IsAlreadyExists(rig.cache().Pin(chat, true, "theirs")));
  // Without a word about names it keeps its own; an empty one takes it away, for good.
  ASSERT_EQ(rig.cache().Pin(chat, false, std::nullopt), absl::OkStatus());
  EXPECT_EQ(rig.cache().Get(chat)->name, "mine");
  ASSERT_EQ(rig.cache().Pin(chat, true, ""), absl::OkStatus());
  EXPECT_EQ(rig.cache().Get(chat)->name, "");
  EXPECT_TRUE(absl::IsNotFound(rig.cache().FindSession("mine").status()));
  rig.Settle();
  rig.Close();
  rig.Open();
  ASSERT_TRUE(rig.cache().Get(chat).has_value());
  EXPECT_EQ(rig.cache().Get(chat)->name, "");
  EXPECT_TRUE(rig.cache().Get(chat)->pinned);
  ASSERT_EQ(rig.cache().Pin(chat, true, "mine"), absl::OkStatus());
  // A save takes the name away; the chat itself stays.
  ASSERT_EQ(Save(rig, *other, "mine").status(), absl::OkStatus());
  ASSERT_TRUE(rig.cache().Get(chat).has_value());
  EXPECT_EQ(rig.cache().Get(chat)->name, "");
  ExpectRestores(rig, "mine", Tokens(2, 100));
}

TEST(ManagerSessions, OutliveTheirConversationAndEviction) {
  Rig rig(Durable());
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 600);
  engine->Append(absl::MakeConstSpan(text).subspan(0, 300));
  ASSERT_EQ(Save(rig, *engine, "kept").status(), absl::OkStatus());
  engine->Append(absl::MakeConstSpan(text).subspan(300));
  rig.Park(*engine);
  for (const ConversationInfo& info : All(rig)) {
    if (info.name.empty()) {
      ASSERT_TRUE(rig.cache().Forget(info.id).ok());
    }
  }
  ASSERT_EQ(All(rig).size(), 1u);
  for (const TierKind kind : {TierKind::kRam, TierKind::kDisk}) {
    ASSERT_TRUE(rig.cache().SetBudget(kind, 0).ok());
  }
  ExpectRestores(rig, "kept", {text.begin(), text.begin() + 300});
  ASSERT_TRUE(rig.cache().Forget(Named(rig, "kept").at(0).id).ok());
  EXPECT_TRUE(absl::IsNotFound(rig.cache().FindSession("kept").status()));
  // The forgotten chat has gone with it.
  EXPECT_TRUE(rig.durable()
                  .Enumerate([](const ParkSummary& park) { ADD_FAILURE() << park.token_count; })
                  .ok());
}

TEST(ManagerSessions, WithoutADurableTierTheySayso) {
  Rig rig;
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 300));
  const auto saved = Save(rig, *engine, "ram");
  ASSERT_EQ(saved.status(), absl::OkStatus());
  EXPECT_FALSE(saved->durable);
  ExpectRestores(rig, "ram", Tokens(1, 300));
}

TEST(ManagerSessions, RefusalsChangeNothing) {
  Rig rig(Durable(StateModel()));
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 300);
  engine->Append(text);
  rig.Park(*engine);
  const ConversationId chat = All(rig).at(0).id;
  EXPECT_TRUE(absl::IsNotFound(rig.cache().FindSession("nobody").status()));
  // No state was kept at 200.
  EXPECT_TRUE(
      absl::IsResourceExhausted(rig.cache().SaveSession(chat, 200, "name", kDeadlineMs).status()));
  EXPECT_TRUE(absl::IsNotFound(rig.cache().SaveSession(chat, 301, "name", kDeadlineMs).status()));
  EXPECT_TRUE(absl::IsNotFound(
      rig.cache().SaveSession(Digest128{1, 2}, 300, "name", kDeadlineMs).status()));
  EXPECT_EQ(All(rig).size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(rig.cache().FindSession("name").status()));
}

TEST(ManagerSessions, WhatCanNotBeStoredHasNoName) {
  Rig rig(Durable());
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 300));
  ASSERT_EQ(Save(rig, *engine, "name").status(), absl::OkStatus());
  engine->Append(Tokens(2, 300));
  Fault full;
  full.call = TierCall::kStore;
  full.status = absl::ResourceExhaustedError("no space");
  rig.durable().AddFault(full);
  EXPECT_TRUE(absl::IsResourceExhausted(Save(rig, *engine, "name").status()));
  rig.durable().ClearFaults();
  // The one before still has it.
  ExpectRestores(rig, "name", Tokens(1, 300));
}

// A budget of which the pins hold so much that `bytes` are left for more of them.
absl::Status LeaveForPins(Rig& rig, std::uint64_t bytes) {
  for (const TierInfo& tier : rig.cache().Tiers()) {
    if (tier.kind != TierKind::kDisk) continue;
    return rig.cache().SetBudget(TierKind::kDisk, (tier.pinned_bytes + bytes) * 5 / 4 + 1);
  }
  return absl::InternalError("no disk");
}

std::uint64_t PinnedBytes(Rig& rig) {
  for (const TierInfo& tier : rig.cache().Tiers()) {
    if (tier.kind == TierKind::kDisk) return tier.pinned_bytes;
  }
  return 0;
}

TEST(ManagerSessions, PinsHoldAtMostFourFifthsOfATier) {
  constexpr std::uint64_t kRowBytes = 8 * 64;
  Rig rig(Durable());
  auto engine = rig.MakeEngine();
  const std::vector<Token> text = Tokens(1, 3000);
  engine->Append(absl::MakeConstSpan(text).subspan(0, 1500));
  rig.Park(*engine);
  const std::uint64_t used = rig.durable().usage().used_bytes;
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kDisk, used * 3).ok());
  ASSERT_EQ(Save(rig, *engine, "first").status(), absl::OkStatus());
  EXPECT_EQ(PinnedBytes(rig), 1500 * kRowBytes + kNameBytes);
  engine->Append(absl::MakeConstSpan(text).subspan(1500));
  // 4,500 tokens would be too many; only the new ones count once more.
  EXPECT_EQ(Save(rig, *engine, "second").status(), absl::OkStatus());
  EXPECT_EQ(PinnedBytes(rig), 3000 * kRowBytes + 2 * kNameBytes);
  engine->Append(Tokens(5, 100));
  ASSERT_TRUE(LeaveForPins(rig, 100 * kRowBytes).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Save(rig, *engine, "third").status()));
  EXPECT_TRUE(Named(rig, "third").empty());
  EXPECT_EQ(PinnedBytes(rig), 3000 * kRowBytes + 2 * kNameBytes);
  ASSERT_TRUE(LeaveForPins(rig, 100 * kRowBytes + kNameBytes).ok());
  EXPECT_EQ(Save(rig, *engine, "third").status(), absl::OkStatus());
}

// A name costs rows and small files, and nothing of it may be evicted.
TEST(ManagerSessions, NamesAloneDoNotFillATier) {
  Rig rig(Durable());
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 300));
  ASSERT_EQ(Save(rig, *engine, "name 0").status(), absl::OkStatus());
  ASSERT_TRUE(LeaveForPins(rig, 3 * kNameBytes).ok());
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(Save(rig, *engine, "name " + std::to_string(i)).status(), absl::OkStatus());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Save(rig, *engine, "name 4").status()));
  // One that is there may be saved again.
  EXPECT_EQ(Save(rig, *engine, "name 2").status(), absl::OkStatus());
  ASSERT_TRUE(rig.cache().Forget(Named(rig, "name 1").at(0).id).ok());
  EXPECT_EQ(Save(rig, *engine, "name 4").status(), absl::OkStatus());
  const std::uint64_t pinned = PinnedBytes(rig);
  EXPECT_EQ(pinned, 300 * 8 * 64 + 4 * kNameBytes);
  rig.Close();
  rig.Open();
  EXPECT_EQ(PinnedBytes(rig), pinned);
}

}  // namespace
}  // namespace parkade::test
