#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/cli/commands.h"

namespace parkade {
namespace {

constexpr double kNow = 1700000100;
const char kTier[] =
    R"({"tier":"disk","used_bytes":1048576,"budget_bytes":68719476736,"physical_bytes":1050000,)"
    R"("free_bytes":1099511627776,"conversations":2,"state":"up"})";

std::string Conversation(int number, const std::string& name = "null") {
  char id[33];
  std::snprintf(id, sizeof(id), "%032d", number);
  return std::string("{\"id\":\"") + id + "\",\"name\":" + name +
         R"(,"pinned":true,"tokens":4330,"durable_tokens":4096,"stages":2,"bytes":21233664,)"
         R"("tiers":["ram","disk"],"created":1700000000.0,"last_used":1700000040.5,"hits":3,)"
         R"("forked_from":null,"evict_rank":0)";
}

struct Server {
  std::map<std::string, HttpReply> replies;
  std::vector<std::string> asked;
  std::string disk;
  CliArguments arguments;  // what a test sets beside command and ids
  std::size_t columns = 0;

  CliOutcome Run(CliCommand command, bool json = false,
                 std::vector<std::string> ids = {"00000000000000000000000000000001"}) {
    arguments.command = command;
    arguments.ids = std::move(ids);
    arguments.json = json;
    arguments.disk = disk;
    return RunCacheCommand(arguments,
                           [this](const HttpRequest& request) -> absl::StatusOr<HttpReply> {
                             const bool get = request.method == "GET" && request.body.empty();
                             const std::string path =
                                 get ? request.path
                                     : request.method + " " + request.path + request.body;
                             asked.push_back(path);
                             const auto found = replies.find(path);
                             if (found == replies.end())
                               return absl::UnavailableError("no answer from x: refused");
                             return found->second;
                           },
                           {kNow, columns});
  }
};

TEST(CliCommands, ListIsATable) {
  Server server;
  server.replies["/conversations?limit=1000"] = {
      200, "{\"conversations\":[" + Conversation(1, "\"work\"") + "}],\"tiers\":[" + kTier + "]}"};
  const CliOutcome outcome = server.Run(CliCommand::kList);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.out,
            "ID                                NAME  TOKENS  DURABLE      SIZE  TIERS     STAGES  "
            "HITS  LAST USED  RANK\n"
            "00000000000000000000000000000001  work   4,330    4,096  20.2 MiB  ram,disk       2  "
            "   3   59 s ago     0  pinned\n");
}

TEST(CliCommands, ListReadsAllPages) {
  Server server;
  std::string page = "{\"conversations\":[";
  for (int i = 1; i <= 1000; ++i) page += (i > 1 ? "," : "") + Conversation(i) + "}";
  server.replies["/conversations?limit=1000"] = {200, page + "],\"tiers\":[]}"};
  server.replies["/conversations?limit=1000&after=00000000000000000000000000001000"] = {
      200, "{\"conversations\":[" + Conversation(1001) + "}],\"tiers\":[]}"};
  const CliOutcome outcome = server.Run(CliCommand::kList, true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(server.asked.size(), 2u);
  EXPECT_NE(outcome.out.find("\"id\": \"00000000000000000000000000000001\""), std::string::npos);
  EXPECT_NE(outcome.out.find("\"id\": \"00000000000000000000000000001001\""), std::string::npos);
}

TEST(CliCommands, AListFitsTheTerminal) {
  Server server;
  const std::string other = std::string("0000000000000000000000000000001") + "f";
  std::string second = Conversation(1, "\"a name that is longer than twenty-four\"") + "}";
  second.replace(second.find("00000000000000000000000000000001"), 32, other);
  server.replies["/conversations?limit=1000"] = {
      200,
      "{\"conversations\":[" + Conversation(1, "\"work\"") + "}," + second + "],\"tiers\":[]}"};
  const std::string all = server.Run(CliCommand::kList).out;
  for (server.columns = 1; server.columns < 180; ++server.columns) {
    const std::string out = server.Run(CliCommand::kList).out;
    std::size_t longest = 0;
    std::size_t lines = 0;
    for (std::size_t at = 0; at < out.size(); ++lines) {
      const std::size_t end = out.find('\n', at);
      longest = std::max(longest, end - at);
      at = end + 1;
    }
    EXPECT_EQ(lines, 3u);
    EXPECT_LE(longest, server.columns);
    if (server.columns >= all.find('\n')) continue;
    EXPECT_NE(out, all) << server.columns;
  }
  // Ids stay as long as they must to tell conversations apart.
  server.columns = 80;
  EXPECT_EQ(server.Run(CliCommand::kList).out,
            "ID                               NAME          TOKENS  LAST USED  RANK\n"
            "0000000000000000000000000000000  work           4,330   59 s ago     0\n"
            "0000000000000000000000000000001  a name that    4,330   59 s ago     0\n");
}

TEST(CliCommands, AListHasTheOrderThatIsAskedFor) {
  Server server;
  const auto entry = [](int number, int rank, double used) {
    std::string text = Conversation(number) + "}";
    const std::string zero = "\"evict_rank\":0";
    text.replace(text.find(zero), zero.size(), "\"evict_rank\":" + std::to_string(rank));
    const std::string time = "\"last_used\":1700000040.5";
    text.replace(text.find(time), time.size(), "\"last_used\":" + std::to_string(used));
    return text;
  };
  server.replies["/conversations?limit=1000"] = {
      200, "{\"conversations\":[" + entry(1, 2, 1700000001) + "," + entry(2, 0, 1700000003) + "," +
               entry(3, 1, 1700000002) + "],\"tiers\":[]}"};
  const auto order = [&server](const std::string& by) {
    server.arguments.by = by;
    const std::string out = server.Run(CliCommand::kList).out;
    std::string digits;
    for (std::size_t at = out.find('\n') + 1; at < out.size(); at = out.find('\n', at) + 1) {
      digits.push_back(out[at + 31]);
    }
    return digits;
  };
  EXPECT_EQ(order("used"), "231");
  EXPECT_EQ(order("rank"), "231");
  EXPECT_EQ(order("id"), "123");
  EXPECT_EQ(order("size"), "123");
  server.arguments.limit = 1;
  EXPECT_EQ(order("rank"), "2");
}

TEST(CliCommands, AShortenedIdIsOneConversations) {
  Server server;
  const std::string one = "abcd0000000000000000000000000001";
  const std::string two = "abce0000000000000000000000000001";
  const auto listed = [](const std::vector<std::string>& ids) {
    std::string text;
    for (const std::string& id : ids) {
      std::string entry = Conversation(1) + "}";
      entry.replace(entry.find("00000000000000000000000000000001"), 32, id);
      text += (text.empty() ? "" : ",") + entry;
    }
    return HttpReply{200, "{\"conversations\":[" + text + "],\"tiers\":[]}"};
  };
  server.replies["/conversations?limit=2&after=abccffffffffffffffffffffffffffff"] =
      listed({one, two});
  server.replies["/conversations?limit=2&after=abbfffffffffffffffffffffffffffff"] =
      listed({one, two});
  server.replies["/conversations?limit=2&after=afffffffffffffffffffffffffffffff"] = listed({});
  server.replies["/conversations?limit=2"] = listed({one, two});
  const std::string pin = "POST /conversations/" + one + "/pin";
  server.replies[pin + R"({"pinned":true,"name":"work"})"] = {200,
                                                              Conversation(1, "\"work\"") + "}"};
  server.arguments.name = "work";
  EXPECT_EQ(server.Run(CliCommand::kPin, false, {"abcd"}).out,
            "00000000000000000000000000000001 is pinned as 'work'\n");
  EXPECT_EQ(server.Run(CliCommand::kShow, false, {"abc0"}).error,
            "no conversation's id begins with abc0");
  EXPECT_EQ(server.Run(CliCommand::kShow, false, {"b000"}).error,
            "no conversation's id begins with b000");
  // From the very beginning.
  EXPECT_EQ(server.Run(CliCommand::kShow, false, {"0000"}).error,
            "no conversation's id begins with 0000");
  server.replies["DELETE /conversations/" + one] = {
      200, "{\"id\":\"" + one + R"(","deleted":true,"fork_tokens":0})"};
  server.asked.clear();
  const CliOutcome outcome = server.Run(CliCommand::kForget, false, {"abc0", "abcd"});
  EXPECT_EQ(outcome.out, one + " is forgotten\n");
  EXPECT_EQ(outcome.error, "abc0: no conversation's id begins with abc0");
  EXPECT_EQ(outcome.exit_code, 1);
  // What is meant was settled before anything went.
  EXPECT_EQ(server.asked.back(), "DELETE /conversations/" + one);
}

TEST(CliCommands, TwoThatBeginAlikeAreNone) {
  Server server;
  std::string first = Conversation(1) + "}";
  std::string second = Conversation(2) + "}";
  server.replies["/conversations?limit=2"] = {
      200, "{\"conversations\":[" + first + "," + second + "],\"tiers\":[]}"};
  const CliOutcome outcome = server.Run(CliCommand::kForget, false, {"00000000"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.error,
            "00000000: more than one conversation's id begins with 00000000 "
            "(00000000000000000000000000000001, 00000000000000000000000000000002); give more "
            "digits");
  EXPECT_EQ(server.asked.size(), 1u);
}

TEST(CliCommands, BudgetsAreShownAndChanged) {
  Server server;
  server.replies["/conversations?limit=1"] = {
      200, std::string("{\"conversations\":[],\"tiers\":[") + kTier + "]}"};
  const std::string table =
      "TIER     USED    BUDGET  PHYSICAL     FREE  CONVERSATIONS  STATE\n"
      "disk  1.0 MiB  64.0 GiB   1.0 MiB  1.0 TiB              2  up\n";
  EXPECT_EQ(server.Run(CliCommand::kBudgets).out, table);
  server.replies[R"(POST /conversations/budgets{"ram_mib":300.0,"disk_gib":2.5})"] = {
      200, std::string("{\"tiers\":[") + kTier + "]}"};
  server.arguments.ram_mib = 300;
  server.arguments.disk_gib = 2.5;
  EXPECT_EQ(server.Run(CliCommand::kBudgets).out, table);
  server.replies.clear();
  server.replies[R"(POST /conversations/budgets{"ram_mib":300.0,"disk_gib":2.5})"] = {
      400, R"({"error":{"message":"'ram_mib': too little"}})"};
  const CliOutcome outcome = server.Run(CliCommand::kBudgets);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.error, "the server answers 400: 'ram_mib': too little");
}

TEST(CliCommands, ShowHasStagesAndParks) {
  Server server;
  server.replies["/conversations/00000000000000000000000000000001"] = {
      200, Conversation(1) +
               R"(,"forked_at":null,"stage_map":[{"device":"CUDA0","layers":[0,1,2]}],)"
               R"("checkpoints":[4096],"parks":[{"park":0,"tokens":[0,4330],"bytes":21233664,)"
               R"("tiers":["disk"],"stages":1,"window_rows":[],"checkpoints":[4096]}]})"};
  const CliOutcome outcome = server.Run(CliCommand::kShow);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("tokens       4,330, durable 4,096\n"), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("checkpoints  4,096\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("    0       3  CUDA0\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("   0  0-4,330  20.2 MiB       1  disk\n"), std::string::npos)
      << outcome.out;
}

TEST(CliCommands, LookupsSayWhy) {
  Server server;
  server.replies["/conversations/lookups?limit=50"] = {
      200, R"({"lookups":[{"time":1700000097.0,"prompt_tokens":100,"reused_tokens":64,)"
           R"("conversation":null,"outcome":"partial","seconds":0.75,"hit_tokens":{"disk":64},)"
           R"("reason":"diverged","first_difference":70,"identity_field":null,)"
           R"("changed":"time"}]})"};
  const CliOutcome outcome = server.Run(CliCommand::kLookups);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(
      outcome.out,
      "   WHEN  OUTCOME  PROMPT  REUSED  FROM  WHY NOT MORE               TIME  CONVERSATION\n"
      "3 s ago  partial     100      64  disk  diverged at 70 (time)  750.0 ms  -\n");
}

TEST(CliCommands, StatsOfTiersAndTokens) {
  Server server;
  server.replies["/conversations?limit=1"] = {
      200, std::string("{\"conversations\":[],\"tiers\":[") + kTier + "]}"};
  server.replies["/metrics"] = {200,
                                "llamacpp:x 1\nparkade_lookup_tokens_total 1000\n"
                                "parkade_hit_tokens_total{tier=\"disk\"} 750\n"
                                "parkade_hit_tokens_total{tier=\"ram\"} 0\n"
                                "parkade_hit_tokens_total{tier=\"slot\"} 50\n"
                                "parkade_miss_tokens_total{reason=\"new\"} 200\n"
                                "parkade_lookups_total{outcome=\"full\"} 2\n"
                                "parkade_lookups_total{outcome=\"miss\"} 1\n"
                                "parkade_saved_seconds_total 240.5\n"};
  CliOutcome outcome = server.Run(CliCommand::kStats);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.out,
            "TIER     USED    BUDGET  PHYSICAL     FREE  CONVERSATIONS  STATE\n"
            "disk  1.0 MiB  64.0 GiB   1.0 MiB  1.0 TiB              2  up\n"
            "\n"
            "Since the server started the cache saved 750 of 1,000 prompt tokens (7"
            "5.0 %): 750 from disk. Reading\n"
            "them again would have taken at least 4 min 0 s longer than restoring t"
            "hem. Lookups: 2 full, 1 miss.\n"
            "\n"
            "TOKENS             COUNT    SHARE\n"
            "looked up          1,000  100.0 %\n"
            "reused from disk     750   75.0 %\n"
            "still in the slot     50    5.0 %\n"
            "computed, new        200   20.0 %\n");
  outcome = server.Run(CliCommand::kStats, true);
  EXPECT_NE(outcome.out.find("\"parkade_lookup_tokens_total\": 1000.0"), std::string::npos)
      << outcome.out;
}

TEST(CliCommands, StatsOfADirectoryHaveNoBudgetAndNoCounters) {
  Server server;
  server.disk = "/d";
  server.replies["/conversations?limit=1"] = {
      200,
      R"({"conversations":[],"tiers":[{"tier":"disk","used_bytes":1048576,"budget_bytes":null,)"
      R"("physical_bytes":1050000,"free_bytes":1099511627776,"conversations":2,"state":"up"}]})"};
  CliOutcome outcome = server.Run(CliCommand::kStats);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.out,
            "TIER     USED  BUDGET  PHYSICAL     FREE  CONVERSATIONS  STATE\n"
            "disk  1.0 MiB       -   1.0 MiB  1.0 TiB              2  up\n");
  outcome = server.Run(CliCommand::kStats, true);
  EXPECT_NE(outcome.out.find("\"budget_bytes\": null"), std::string::npos) << outcome.out;
  EXPECT_EQ(server.asked.size(), 2u);
}

TEST(CliCommands, PinAndUnpin) {
  Server server;
  const std::string path = "POST /conversations/00000000000000000000000000000001/pin";
  server.replies[path + R"({"pinned":true})"] = {200, Conversation(1) + "}"};
  server.replies[path + R"({"pinned":false})"] = {200, Conversation(1) + "}"};
  CliOutcome outcome = server.Run(CliCommand::kPin);
  EXPECT_EQ(outcome.out, "00000000000000000000000000000001 is pinned\n") << outcome.error;
  outcome = server.Run(CliCommand::kUnpin);
  EXPECT_EQ(outcome.out, "00000000000000000000000000000001 is not pinned\n") << outcome.error;
  outcome = server.Run(CliCommand::kPin, true);
  EXPECT_NE(outcome.out.find("\"pinned\": true"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.exit_code, 0);
}

TEST(CliCommands, ForgetGoesOnAfterOneThatFails) {
  Server server;
  const std::string one(32, '1'), two(32, '2'), three(32, '3');
  server.replies["DELETE /conversations/" + one] = {
      200, "{\"id\":\"" + one + R"(","deleted":true,"fork_tokens":0})"};
  server.replies["DELETE /conversations/" + two] = {404, R"({"error":{"message":"no such"}})"};
  server.replies["DELETE /conversations/" + three] = {
      200, "{\"id\":\"" + three + R"(","deleted":true,"fork_tokens":1200})"};
  CliOutcome outcome = server.Run(CliCommand::kForget, false, {one, two, three});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out,
            one + " is forgotten\n" + three + " is forgotten; 1,200 tokens stay for forks of it\n");
  EXPECT_EQ(outcome.error, two + ": the server answers 404: no such");
  outcome = server.Run(CliCommand::kForget, true, {three});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.out.find("\"fork_tokens\": 1200"), std::string::npos) << outcome.out;
}

TEST(CliCommands, FailuresAreOneLineAndExitOne) {
  Server server;
  CliOutcome outcome = server.Run(CliCommand::kShow);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.error, "no answer from x: refused");
  EXPECT_EQ(outcome.out, "");

  HttpReply& reply = server.replies["/conversations/00000000000000000000000000000001"];
  reply = {404, R"({"error":{"code":404,"message":"no conversation 1","type":"not_found_error"}})"};
  outcome = server.Run(CliCommand::kShow);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.error, "the server answers 404: no conversation 1");
  reply = {401, R"({"error":{"message":"Invalid API Key"}})"};
  EXPECT_EQ(server.Run(CliCommand::kShow).error,
            "the server answers 401: Invalid API Key; give the key with --api-key");
  reply = {404, "Not Found"};
  EXPECT_EQ(server.Run(CliCommand::kShow).error, "the server answers 404; is it a parkade-server?");
  reply = {200, "<html>"};
  EXPECT_EQ(server.Run(CliCommand::kShow).error, "the server's answer is not a JSON object");
  for (const char* body : {"{}", "{\"id\":5}", "{\"id\":\"x\",\"name\":null,\"pinned\":\"no\"}"}) {
    reply = {200, body};
    outcome = server.Run(CliCommand::kShow);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.error.rfind("the server's answer has another shape: ", 0), 0u);
  }
}

}  // namespace
}  // namespace parkade
