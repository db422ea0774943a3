// What a lookup says of a prompt that leaves what is stored, and parts that are reused whole.

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

std::vector<Token> Parked(Rig& rig, std::uint64_t seed, std::size_t count) {
  std::vector<Token> text = Tokens(seed, count);
  auto engine = rig.MakeEngine();
  engine->Append(text);
  rig.Park(*engine);
  return text;
}

std::vector<Token> Part(const std::vector<Token>& text, std::size_t begin, std::size_t end) {
  return {text.begin() + static_cast<std::ptrdiff_t>(begin),
          text.begin() + static_cast<std::ptrdiff_t>(end)};
}

struct Asked {
  int calls = 0;
  std::vector<Token> before, stored, wanted;
};

void Listen(LookupRequest* request, Asked* asked) {
  request->name_change = [asked](absl::Span<const Token> before, absl::Span<const Token> stored,
                                 absl::Span<const Token> wanted) -> std::string {
    ++asked->calls;
    asked->before.assign(before.begin(), before.end());
    asked->stored.assign(stored.begin(), stored.end());
    asked->wanted.assign(wanted.begin(), wanted.end());
    return "time";
  };
}

// Looks up and restores; what is not restored counts as computed.
LookupRecord Finish(Rig& rig, const LookupRequest& request) {
  auto restore = rig.cache().Lookup(request);
  auto engine = rig.MakeEngine();
  rig.StepToEnd(*restore, *engine);
  const std::uint32_t reused = restore->restored_tokens();
  rig.cache().FinishLookup(std::move(restore), reused);
  return rig.cache().Lookups(1).at(0);
}

TEST(ManagerExplain, ShowsBothSidesOfTheDifference) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 2000);
  const std::vector<Token> prompt = Fork(text, 300, 2, 1500);
  LookupRequest request = rig.Request(prompt);
  Asked asked;
  Listen(&request, &asked);
  const LookupRecord record = Finish(rig, request);
  EXPECT_EQ(record.reused_tokens, 300u);
  EXPECT_EQ(record.changed, "time");
  EXPECT_EQ(asked.calls, 1);
  EXPECT_EQ(asked.before, Part(prompt, 300 - kExplainTokens, 300));
  EXPECT_EQ(asked.stored, Part(text, 300, 300 + kExplainTokens));
  EXPECT_EQ(asked.wanted, Part(prompt, 300, 300 + kExplainTokens));
}

TEST(ManagerExplain, AnEarlierPromptWhereTheFirstPageDiffers) {
  Rig rig;
  const std::vector<Token> text = Tokens(1, 2000);
  Asked asked;
  LookupRequest request = rig.Request(text);
  Listen(&request, &asked);
  EXPECT_EQ(Finish(rig, request).changed, "") << "there was no prompt before it";
  EXPECT_EQ(asked.calls, 0);
  const std::vector<Token> prompt = Fork(text, 25, 2, 1500);
  request = rig.Request(prompt);
  Listen(&request, &asked);
  const LookupRecord record = Finish(rig, request);
  EXPECT_EQ(record.changed, "time");
  EXPECT_EQ(record.first_difference, 25u);
  EXPECT_GT(Miss(record, MissReason::kCold), kExplainedMissTokens);
  EXPECT_EQ(asked.calls, 1);
  EXPECT_EQ(asked.before, Part(prompt, 0, 25));
  EXPECT_EQ(asked.stored, Part(text, 25, 25 + kExplainTokens));
  EXPECT_EQ(asked.wanted, Part(prompt, 25, 25 + kExplainTokens));
  // A beginning that all prompts of a template share is none.
  request = rig.Request(Fork(text, 7, 3, 1500));
  Listen(&request, &asked);
  EXPECT_EQ(Finish(rig, request).changed, "");
  EXPECT_EQ(asked.calls, 1);
}

TEST(ManagerExplain, NotForLittle) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 2000);
  Asked asked;
  LookupRequest request = rig.Request(Fork(text, 300, 2, 1 + kExplainedMissTokens));
  Listen(&request, &asked);
  EXPECT_EQ(Miss(Finish(rig, request), MissReason::kDiverged), kExplainedMissTokens);
  EXPECT_EQ(asked.calls, 0);
  request = rig.Request(Fork(text, 300, 2, 2 + kExplainedMissTokens));
  Listen(&request, &asked);
  EXPECT_EQ(Finish(rig, request).changed, "time");
  EXPECT_EQ(asked.calls, 1);
  // What comes after the end of a stored one is new: nothing has changed.
  request = rig.Request(Fork(text, 2000, 2, 1500));
  Listen(&request, &asked);
  EXPECT_EQ(Finish(rig, request).changed, "");
  EXPECT_EQ(asked.calls, 1);
}

TEST(ManagerExplain, TheSlotsOwnWhereNoTierHasIt) {
  Rig rig;
  const std::vector<Token> text = Tokens(1, 1500);
  const std::vector<Token> prompt = Fork(text, 200, 2, 1300);
  LookupRequest request = rig.Request(prompt, 200);
  request.held_next = Part(text, 200, 210);
  Asked asked;
  Listen(&request, &asked);
  auto restore = rig.cache().Lookup(request);
  rig.cache().FinishLookup(std::move(restore), 200);
  const LookupRecord record = rig.cache().Lookups(1).at(0);
  EXPECT_EQ(Miss(record, MissReason::kDiverged), 1299u);
  EXPECT_EQ(record.changed, "time");
  EXPECT_EQ(asked.stored, Part(text, 200, 210));
  EXPECT_EQ(asked.wanted, Part(prompt, 200, 200 + kExplainTokens));
}

TEST(ManagerExplain, NothingIsReusedInsideOfAWholePart) {
  Rig rig;
  const std::vector<Token> text = Parked(rig, 1, 300);
  for (const auto& [leaves, reused] : std::vector<std::pair<std::size_t, std::uint32_t>>{
           {100, 100}, {101, 100}, {200, 100}, {249, 100}, {250, 250}, {280, 280}}) {
    LookupRequest request = rig.Request(Fork(text, leaves, 2, 50));
    request.whole_ranges = {{100, 250}};
    EXPECT_EQ(Finish(rig, request).reused_tokens, reused) << leaves;
  }
  // The last token is always computed, and with it the part that it belongs to.
  LookupRequest request = rig.Request(text);
  request.whole_ranges = {{100, 200}, {220, 300}};
  EXPECT_EQ(Finish(rig, request).reused_tokens, 220u);
}

// A restore that ends early because of damage keeps no part of it either.
TEST(ManagerExplain, NorWhereARestoreFallsShort) {
  RigOptions options;
  options.ram = false;
  options.cache.ram_budget_bytes = 0;
  options.durable = true;
  Rig rig(options);
  const std::vector<Token> text = Tokens(1, 600);
  auto engine = rig.MakeEngine();
  engine->Append(absl::MakeConstSpan(text).subspan(0, 300));
  rig.Park(*engine);
  engine->Append(absl::MakeConstSpan(text).subspan(300));
  rig.Park(*engine);
  Fault fault;
  fault.kind = Fault::Kind::kFlip;
  fault.key = ParkKey{rig.cache().List(1, ConversationId()).at(0).id, 1};
  rig.durable().AddFault(fault);
  LookupRequest request = rig.Request(Fork(text, 600, 2, 50));
  request.whole_ranges = {{250, 350}};
  const LookupRecord record = Finish(rig, request);
  EXPECT_EQ(record.reused_tokens, 250u);
  EXPECT_EQ(record.failed_tier, Source::kDisk);
  EXPECT_EQ(Miss(record, MissReason::kCorrupt), 350u);
}

}  // namespace
}  // namespace parkade::test
