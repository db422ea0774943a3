#include <map>
#include <string>

#include "gtest/gtest.h"
#include "parkade/events.h"
#include "src/cli/lookup_why.h"

namespace parkade {
namespace {

constexpr double kNow = 1700000100;

// A lookup as the server tells it, with `fields` in place of its own.
CliJson Lookup(const CliJson& fields) {
  CliJson lookup = CliJson::parse(
      R"({"time":1700000097.0,"prompt_tokens":4330,"matched_tokens":4224,"usable_tokens":4096,)"
      R"("reused_tokens":4096,"conversation":null,"outcome":"partial","boundary":null,)"
      R"("seconds":0.0121,"hit_tokens":{"slot":96,"disk":4000},"miss_tokens":{},"reason":null,)"
      R"("first_difference":null,"identity_field":null,"changed":null,"failed_tier":null,)"
      R"("detail":null})");
  lookup.update(fields);
  return lookup;
}

std::string Text(const CliJson& fields, std::size_t columns = 1000) {
  return LookupText(Lookup(fields), {kNow, columns});
}

TEST(CliLookupWhy, SaysWhatWasReusedAndWhatWasNot) {
  EXPECT_EQ(Text({{"boundary", {{"position", 4096}, {"kind", "system"}}},
                  {"conversation", "abcd"},
                  {"miss_tokens", {{"new", 16}, {"checkpoint", 128}, {"diverged", 90}}},
                  {"first_difference", 4224},
                  {"changed", "time"}}),
            "3 s ago: 4,096 of 4,330 prompt tokens reused (slot 96, disk 4,000), up to token "
            "4,096, the end of the system prompt, in 12.1 ms, conversation abcd.\n"
            "  128 computed, checkpoint: this model goes on only where its state was kept. The "
            "match ends at token 4,224, the nearest state at or below it is that of token 4,096.\n"
            "  90 computed, diverged: the prompt differs from what is kept at token 4,224 (a clock "
            "time that changes in every request). Only what stands before it can be reused: it "
            "belongs at the end of the prompt, or out of it.\n"
            "  16 computed, new: they follow everything that was kept; the last token is always "
            "computed.\n");
}

TEST(CliLookupWhy, LinesFitTheTerminal) {
  const std::string text = Text({{"miss_tokens", {{"evicted", 1234}}}}, 40);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    EXPECT_LE(end - at, 40u);
    at = end + 1;
  }
  EXPECT_NE(text.find("\n  1,234 computed, evicted: what"), std::string::npos) << text;
}

// A reason that is added has to be explained, too.
TEST(CliLookupWhy, EveryReasonHasASentence) {
  std::map<std::string, std::string> sentences;
  for (int i = 0; i < kMissReasons; ++i) {
    const std::string reason(MissReasonName(static_cast<MissReason>(i)));
    const std::string text = Text({{"miss_tokens", {{reason, 7}}},
                                   {"reason", reason},
                                   {"identity_field", "kv_type_k"},
                                   {"failed_tier", "disk"},
                                   {"detail", "checksum\x1b differs"}});
    const std::string begin = "\n  7 computed, " + reason + ": ";
    const std::size_t at = text.find(begin);
    ASSERT_NE(at, std::string::npos) << text;
    const std::string sentence = text.substr(at + begin.size());
    EXPECT_EQ(sentence.find("no more than"), std::string::npos) << text;
    EXPECT_GT(sentence.size(), 30u) << text;
    EXPECT_EQ(sentence.substr(sentence.size() - 2), ".\n");
    sentences[reason] = sentence;
  }
  EXPECT_NE(sentences["identity"].find("'kv_type_k' differs"), std::string::npos);
  EXPECT_NE(sentences["corrupt"].find("the disk tier holds of it was damaged (checksum? differs)"),
            std::string::npos);
  EXPECT_NE(sentences["incomplete"].find("(checksum? differs)"), std::string::npos);
  EXPECT_NE(Text({{"miss_tokens", {{"stolen", 7}}}}).find("the server says no more than 'stolen'"),
            std::string::npos);
}

// So has a boundary.
TEST(CliLookupWhy, EveryBoundaryHasWords) {
  for (int i = 1; i <= static_cast<int>(BoundaryKind::kTurn); ++i) {
    const std::string kind(BoundaryKindName(static_cast<BoundaryKind>(i)));
    const std::string text = Text({{"boundary", {{"position", 5}, {"kind", kind}}}});
    EXPECT_EQ(text.find("up to token 5, " + kind + ", in"), std::string::npos) << text;
    EXPECT_NE(text.find("up to token 5, "), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace parkade
