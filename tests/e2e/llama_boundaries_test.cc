// Where the state of a prompt is kept while it is read.

#include <gtest/gtest.h>

#include "src/engine/llama/prompt_boundaries.h"

namespace parkade {
namespace {

using Positions = std::vector<std::uint32_t>;

common_chat_msg_spans Spans(std::initializer_list<std::pair<common_chat_role, std::size_t>> list) {
  common_chat_msg_spans spans;
  for (const auto& [role, position] : list) spans.add(role, position, 10);
  return spans;
}

TEST(Boundaries, WithoutRolesDoublingPositionsAndOneBeforeTheEnd) {
  EXPECT_EQ(BoundariesOf({}, 5000, 5000, true).wanted, (Positions{512, 1024, 2048, 4096, 4996}));
  EXPECT_EQ(BoundariesOf({}, 512, 512, true).wanted, (Positions{508}));
  EXPECT_EQ(BoundariesOf({}, 4, 4, true).wanted, Positions{});
  EXPECT_EQ(BoundariesOf({}, 5000, 5000, false).wanted, Positions{});
}

TEST(Boundaries, WhereAnImageBeginsAndNotInside) {
  EXPECT_EQ(BoundariesOf({}, 1500, 1500, true, {{300, 400}, {500, 600}, {1490, 1499}}).wanted,
            (Positions{300, 500, 1024, 1490}));
  EXPECT_EQ(BoundariesOf({}, 1500, 500, false, {{0, 100}, {300, 400}, {600, 700}}).wanted,
            (Positions{300}));
}

TEST(Boundaries, TheNumberGrowsWithTheLogarithm) {
  EXPECT_EQ(BoundariesOf({}, 1u << 20, 1u << 20, true).wanted.size(), 12u);
  EXPECT_EQ(BoundariesOf({}, UINT32_MAX, UINT32_MAX, true).wanted.size(), 24u);
}

TEST(Boundaries, WhereMessagesOfTheUserAndTheAnswerBegin) {
  const auto spans = Spans({{COMMON_CHAT_ROLE_USER, 100},
                            {COMMON_CHAT_ROLE_ASSISTANT, 200},
                            {COMMON_CHAT_ROLE_TOOL, 250},
                            {COMMON_CHAT_ROLE_USER, 300},
                            {COMMON_CHAT_ROLE_ASSISTANT, 393}});
  const PromptBoundaries state = BoundariesOf(spans, 400, 400, true);
  EXPECT_EQ(state.wanted, (Positions{100, 300, 393}));
  EXPECT_EQ(state.user_starts, (Positions{100, 300}));
  EXPECT_EQ(state.before_end, 393u);
  // A window has rows before the prompt's end anyway.
  EXPECT_EQ(BoundariesOf(spans, 400, 400, false).wanted, (Positions{100, 300}));
  // An answer that the client began itself is no head.
  EXPECT_EQ(BoundariesOf(spans, 500, 500, true).before_end, 496u);
  EXPECT_EQ(BoundariesOf(Spans({{COMMON_CHAT_ROLE_USER, 0}}), 90, 90, true).wanted,
            (Positions{86}));
}

TEST(Boundaries, NothingBehindAnImage) {
  const auto spans = Spans({{COMMON_CHAT_ROLE_USER, 100}, {COMMON_CHAT_ROLE_USER, 900}});
  EXPECT_EQ(BoundariesOf(spans, 1000, 600, true).wanted, (Positions{100, 512}));
}

TEST(Boundaries, NearTheLastOneOnlyTheOneBeforeTheEnd) {
  const PromptBoundaries boundaries =
      BoundariesOf(Spans({{COMMON_CHAT_ROLE_USER, 300}}), 360, 360, true);
  EXPECT_TRUE(boundaries.Wants(300, 0));
  EXPECT_TRUE(boundaries.Wants(300, 236));
  EXPECT_FALSE(boundaries.Wants(300, 237));
  EXPECT_FALSE(boundaries.Wants(299, 0));
  EXPECT_TRUE(boundaries.Wants(356, 355));
  EXPECT_FALSE(PromptBoundaries().Wants(0, 0));
}

}  // namespace
}  // namespace parkade
