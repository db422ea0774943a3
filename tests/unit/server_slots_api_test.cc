#include <gtest/gtest.h>

#include <string>

#include "src/server/api_json.h"
#include "src/server/slots_api.h"

namespace parkade {
namespace {

using Action = SlotRequest::Action;

std::string Body(const std::string& name) { return Json({{"filename", name}}).dump(); }

TEST(SlotsApiTest, ParsesRequests) {
  const auto save = ParseSlotRequest("3", "save", Body("my chat (2)"));
  ASSERT_TRUE(save.ok());
  EXPECT_EQ(save->action, Action::kSave);
  EXPECT_EQ(save->slot, 3);
  EXPECT_EQ(save->name, "my chat (2)");
  EXPECT_EQ(ParseSlotRequest("0", "restore", Body("caf\xc3\xa9"))->action, Action::kRestore);
  EXPECT_EQ(ParseSlotRequest("0", "restore", Body(std::string(255, 'x')))->name.size(), 255u);
  const auto erase = ParseSlotRequest("0", "erase", "");
  ASSERT_TRUE(erase.ok());
  EXPECT_EQ(erase->action, Action::kErase);
}

TEST(SlotsApiTest, RefusesWhatIsNoRequest) {
  for (const char* slot : {"", "x", "-1", "1x", " 1", "99999999999"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseSlotRequest(slot, "erase", "").status())) << slot;
  }
  for (const char* action : {"", "fly", "SAVE"}) {
    EXPECT_FALSE(ParseSlotRequest("0", action, Body("a")).ok()) << action;
  }
  for (const char* body : {"", "{", "[]", "{}", "{\"filename\":1}", "{\"filename\":\"\xff\"}"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseSlotRequest("0", "save", body).status())) << body;
  }
  const std::string nul("a\0b", 3);
  for (const std::string& name :
       {std::string(), std::string(256, 'x'), std::string("../up"), std::string("a/b"),
        std::string("a\\b"), nul, std::string("."), std::string(".."), std::string(" a"),
        std::string("a "), std::string("a."), std::string("a\x7f"), std::string("a*"),
        std::string("a\n")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseSlotRequest("0", "save", Body(name)).status()))
        << name;
  }
}

TEST(SlotsApiTest, AnswersInTheServersShape) {
  const SlotRequest request{Action::kSave, 2, "name"};
  EXPECT_EQ(Json::parse(SavedResponse(request, 10, 4096, 0.5, true).body),
            Json({{"id_slot", 2},
                  {"filename", "name"},
                  {"n_saved", 10},
                  {"n_written", 4096},
                  {"timings", {{"save_ms", 500.0}}},
                  {"durable", true}}));
  EXPECT_EQ(Json::parse(RestoredResponse(request, 10, 4096, 0.25).body),
            Json({{"id_slot", 2},
                  {"filename", "name"},
                  {"n_restored", 10},
                  {"n_read", 4096},
                  {"timings", {{"restore_ms", 250.0}}}}));
  EXPECT_EQ(Json::parse(ErasedResponse(request, 7).body), Json({{"id_slot", 2}, {"n_erased", 7}}));
}

}  // namespace
}  // namespace parkade
