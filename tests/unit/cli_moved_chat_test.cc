// Random chats, forks and sessions of every kind of model, each moved alone into an empty tier: it
// must be worth there what it was worth here, row by row.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/cli/container_file.h"
#include "src/cli/conversation_path.h"
#include "src/cli/export.h"
#include "src/cli/import.h"
#include "tests/unit/format_samples.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

class MovedChatTest : public ::testing::TestWithParam<int> {
 protected:
  MovedChatTest() {
    std::string name = ::testing::TempDir() + "parkade-moved-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~MovedChatTest() override { std::filesystem::remove_all(root_); }

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

  static RigOptions Options() {
    RigOptions options(Model());
    options.ram = false;
    options.durable = true;
    return options;
  }

  std::vector<int> Shares() {
    std::vector<int> shares(Draw(random_, 1, 3));
    for (int& share : shares) share = static_cast<int>(Draw(random_, 1, 3));
    return shares;
  }

  // Chats that go on over a few turns, from their beginning or from inside another one.
  void Talk(Rig& rig) {
    std::vector<std::vector<Token>> texts;
    for (int chat = 0; chat < 6; ++chat) {
      std::vector<Token> prompt = Tokens(random_(), Draw(random_, 40, 400));
      if (!texts.empty() && Draw(random_, 0, 3) > 0) {
        const std::vector<Token>& other = texts[Draw(random_, 0, texts.size() - 1)];
        prompt = Fork(other, Draw(random_, 1, other.size()), random_(), Draw(random_, 10, 200));
      }
      for (std::uint64_t turn = Draw(random_, 1, 3); turn > 0; --turn) {
        const auto engine = rig.MakeEngine(Shares());
        rig.Run(*engine, prompt);
        engine->Append(Tokens(random_(), Draw(random_, 1, 60)));
        const ParkOutcome parked = rig.Park(*engine);
        texts.push_back(engine->tokens());
        if (Draw(random_, 0, 3) == 0) {
          const auto tokens = static_cast<std::uint32_t>(engine->tokens().size());
          const auto saved = rig.cache().SaveSession(parked.conversation, tokens,
                                                     "session " + std::to_string(chat), 30000);
          EXPECT_TRUE(saved.ok()) << saved.status();
        }
        prompt = engine->tokens();
        for (const Token token : Tokens(random_(), Draw(random_, 1, 60))) prompt.push_back(token);
      }
    }
    rig.Settle();
  }

  std::mt19937_64 random_ = SeededRandom();
  std::string root_;
};

std::vector<Token> TextOf(Tier& tier, const ConversationId& id) {
  std::vector<Token> text;
  const auto path = FindPath(tier, id);
  EXPECT_TRUE(path.ok()) << path.status();
  if (!path.ok()) return text;
  for (const PathStep& step : path->steps) {
    const auto tokens = ReadStepTokens(tier, step);
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    if (tokens.ok()) text.insert(text.end(), tokens->begin(), tokens->end());
  }
  return text;
}

TEST_P(MovedChatTest, IsWorthTheSameElsewhere) {
  Rig here(Options());
  Talk(here);
  const std::vector<ConversationInfo> listed = here.cache().List(1000, {});
  ASSERT_GE(listed.size(), 1u);
  here.Close();
  std::uint64_t forks = 0;
  for (const ConversationInfo& info : listed) {
    std::vector<Token> prompt = TextOf(here.durable_medium(), info.id);
    EXPECT_EQ(prompt.size(), info.tokens);
    if (prompt.empty()) continue;
    for (const Token token : Tokens(random_(), 20)) prompt.push_back(50000 + token);
    here.Open();
    const auto engine = here.MakeEngine(Shares());
    const Restored wanted = here.Run(*engine, prompt);
    here.Close();

    const std::string file = root_ + "/" + ToHex(info.id);
    const auto exported =
        ExportConversation(here.durable_medium(), {ToHex(info.id), file, false}, nullptr);
    ASSERT_TRUE(exported.ok()) << exported.status();
    Rig there(Options());
    there.Close();
    auto container = ContainerFile::Open(file);
    ASSERT_TRUE(container.ok()) << container.status();
    const auto checked = CheckContainer(*container, nullptr);
    ASSERT_TRUE(checked.ok()) << checked.status();
    const auto imported =
        ImportConversation(there.durable_medium(), *container, *checked, 1, nullptr);
    ASSERT_TRUE(imported.ok()) << imported.status();
    there.Open();
    const auto other = there.MakeEngine(Shares());
    const Restored got = there.Run(*other, prompt);
    EXPECT_EQ(got.record.reused_tokens, wanted.record.reused_tokens) << ToHex(info.id);
    EXPECT_EQ(got.record.matched_tokens, wanted.record.matched_tokens) << ToHex(info.id);
    const auto moved = there.cache().Get(info.id);
    ASSERT_TRUE(moved.has_value());
    EXPECT_EQ(moved->tokens, info.tokens);
    EXPECT_EQ(moved->name, info.name);
    EXPECT_EQ(moved->pinned, info.pinned);
    EXPECT_FALSE(moved->forked_from.has_value());
    if (!info.name.empty()) {
      EXPECT_TRUE(there.cache().FindSession(info.name).ok());
    }
    forks += info.forked_from.has_value() ? 1 : 0;
  }
  std::cout << listed.size() << " conversations, " << forks << " of them forks\n";
}

INSTANTIATE_TEST_SUITE_P(
    Models, MovedChatTest, ::testing::Range(0, 4), [](const ::testing::TestParamInfo<int>& info) {
      return std::string(std::vector<const char*>{"Full", "Window", "State", "Mixed"}[info.param]);
    });

}  // namespace
}  // namespace parkade::test
