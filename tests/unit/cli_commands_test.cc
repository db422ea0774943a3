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

  CliOutcome Run(CliCommand command, bool json = false,
                 std::vector<std::string> ids = {"00000000000000000000000000000001"}) {
    CliArguments arguments;
    arguments.command = command;
    arguments.ids = std::move(ids);
    arguments.json = json;
    arguments.disk = disk;
    return RunCacheCommand(
        arguments,
        [this](const HttpRequest& request) -> absl::StatusOr<HttpReply> {
          const bool get = request.method == "GET" && request.body.empty();
          const std::string path =
              get ? request.path : request.method + " " + request.path + request.body;
          asked.push_back(path);
          const auto found = replies.find(path);
          if (found == replies.end()) return absl::UnavailableError("no answer from x: refused");
          return found->second;
        },
        kNow);
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
            "HITS  LAST USED\n"
            "00000000000000000000000000000001  work   4,330    4,096  20.2 MiB  ram,disk       2  "
            "   3   59 s ago  pinned\n");
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
                                "parkade_miss_tokens_total{reason=\"new\"} 250\n"
                                "parkade_saved_seconds_total 240.5\n"};
  CliOutcome outcome = server.Run(CliCommand::kStats);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.out,
            "TIER     USED    BUDGET  PHYSICAL     FREE  CONVERSATIONS  STATE\n"
            "disk  1.0 MiB  64.0 GiB   1.0 MiB  1.0 TiB              2  up\n"
            "\n"
            "TOKENS            COUNT    SHARE\n"
            "looked up         1,000  100.0 %\n"
            "reused from disk    750   75.0 %\n"
            "computed, new       250   25.0 %\n"
            "\n"
            "saved reading time: 4 min 0 s\n");
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
