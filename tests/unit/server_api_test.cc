#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "src/server/api.h"
#include "src/server/api_json.h"
#include "tests/support/fake_cache.h"

namespace parkade {
namespace {

constexpr ConversationId kFirst = FakeCache::kFirst;
constexpr ConversationId kSecond = FakeCache::kSecond;
const char kFirstHex[] = "0000000000000001000000000000000a";
const char kSecondHex[] = "0000000000000002000000000000000b";
const char kUnknownHex[] = "00000000000000030000000000000000";

class ApiTest : public ::testing::Test {
 protected:
  ApiResponse Call(std::string_view method, const std::string& path,
                   const QueryParameters& query = {}, std::string_view body = "") {
    ApiResponse response = Handle(cache, method, path, query, body);
    EXPECT_EQ(response.content_type, "application/json; charset=utf-8");
    return response;
  }
  Json Ok(const ApiResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body);
  }
  void ExpectError(const ApiResponse& response, int status, const std::string& type,
                   const std::string& message) {
    EXPECT_EQ(response.status, status) << response.body;
    const Json expected = {{"error", {{"code", status}, {"message", message}, {"type", type}}}};
    EXPECT_EQ(response.body, expected.dump());
  }

  FakeCache cache;
};

TEST_F(ApiTest, ListHasExactlyThePromisedShape) {
  const ApiResponse response = Call("GET", "/conversations");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body,
            "{\"conversations\":["
            "{\"id\":\"0000000000000001000000000000000a\",\"name\":null,\"pinned\":false,"
            "\"tokens\":300,\"durable_tokens\":256,\"stages\":2,\"bytes\":12345,"
            "\"tiers\":[\"ram\",\"disk\"],\"created\":1700000000.123,\"last_used\":1700000001.0,"
            "\"hits\":4,\"forked_from\":null,\"evict_rank\":1},"
            "{\"id\":\"0000000000000002000000000000000b\",\"name\":\"caf\xc3\xa9 \xef\xbf\xbd\","
            "\"pinned\":true,\"tokens\":0,\"durable_tokens\":0,\"stages\":0,\"bytes\":0,"
            "\"tiers\":[],\"created\":0.0,\"last_used\":0.0,\"hits\":0,"
            "\"forked_from\":\"0000000000000001000000000000000a\",\"evict_rank\":0}],"
            "\"tiers\":[{\"tier\":\"ram\",\"used_bytes\":10,\"budget_bytes\":20,"
            "\"physical_bytes\":0,\"free_bytes\":30,\"conversations\":2,\"state\":\"up\"}]}");
  EXPECT_EQ(cache.listed_limit, kDefaultListed);
}

TEST_F(ApiTest, EmptyListsAreArrays) {
  cache.conversations.clear();
  cache.tiers.clear();
  EXPECT_EQ(Call("GET", "/conversations/").body, "{\"conversations\":[],\"tiers\":[]}");
  EXPECT_EQ(Call("GET", "/conversations/lookups").body, "{\"lookups\":[]}");
}

TEST_F(ApiTest, ListIsPaged) {
  Json page = Ok(Call("GET", "/conversations", {{"limit", "1"}}));
  ASSERT_EQ(page["conversations"].size(), 1u);
  EXPECT_EQ(page["conversations"][0]["id"], kFirstHex);
  page = Ok(Call("GET", "/conversations", {{"limit", "1000"}, {"after", kFirstHex}}));
  ASSERT_EQ(page["conversations"].size(), 1u);
  EXPECT_EQ(page["conversations"][0]["id"], kSecondHex);
}

TEST_F(ApiTest, BadPagesAreRefused) {
  for (const char* limit : {"0", "1001", "-1", "1x", "", " 1", "99999999999999999999"}) {
    ExpectError(Call("GET", "/conversations", {{"limit", limit}}), 400, "invalid_request_error",
                "'limit' is a whole number from 1 to 1000");
    ExpectError(Call("GET", "/conversations/lookups", {{"limit", limit}}), 400,
                "invalid_request_error", "'limit' is a whole number from 1 to 1000");
  }
  for (const char* after : {"", "1", "zz", "0000000000000001000000000000000aa"}) {
    ExpectError(Call("GET", "/conversations", {{"after", after}}), 400, "invalid_request_error",
                "'after' is a conversation id, 32 hexadecimal digits");
  }
}

TEST_F(ApiTest, OneConversationWithStageMapParksAndCheckpoints) {
  ConversationInfo& first = cache.conversations[kFirst];
  first.parks.push_back({0, {0, 200}, 100, {TierKind::kDisk}, {{0, 64}, {100, 200}}, {200}, 2});
  first.parks.push_back({1, {200, 300}, 50, {TierKind::kRam}, {}, {300, 200}, 2});
  const Json json = Ok(Call("GET", std::string("/conversations/") + kFirstHex));
  EXPECT_EQ(json["id"], kFirstHex);
  EXPECT_EQ(json["stages"], 2);
  EXPECT_EQ(json["stage_map"].dump(),
            "[{\"device\":\"GPU0\",\"layers\":[0,1]},{\"device\":\"RPC[a]\",\"layers\":[2]}]");
  EXPECT_EQ(json["forked_at"], Json());
  EXPECT_EQ(json["checkpoints"].dump(), "[200,300]");
  EXPECT_EQ(json["parks"].dump(),
            "[{\"park\":0,\"tokens\":[0,200],\"bytes\":100,\"tiers\":[\"disk\"],\"stages\":2,"
            "\"window_rows\":[[0,64],[100,200]],\"checkpoints\":[200]},"
            "{\"park\":1,\"tokens\":[200,300],\"bytes\":50,\"tiers\":[\"ram\"],\"stages\":2,"
            "\"window_rows\":[],\"checkpoints\":[300,200]}]");
  EXPECT_EQ(Ok(Call("GET", std::string("/conversations/") + kSecondHex))["forked_at"], 192);
}

TEST_F(ApiTest, UnknownAndMalformedIds) {
  const std::string unknown = std::string("/conversations/") + kUnknownHex;
  const std::string message = std::string("no conversation ") + kUnknownHex;
  ExpectError(Call("GET", unknown), 404, "not_found_error", message);
  ExpectError(Call("POST", unknown + "/pin", {}, "{\"pinned\":true}"), 404, "not_found_error",
              message);
  ExpectError(Call("DELETE", unknown), 404, "not_found_error", "no such conversation");
  for (const char* id :
       {"x", "0000000000000001000000000000000g", "00000000000000000000000000000000",
        "0000000000000001000000000000000a0", ".."}) {
    ExpectError(Call("GET", std::string("/conversations/") + id), 400, "invalid_request_error",
                "a conversation id has 32 hexadecimal digits, not all of them 0");
    EXPECT_EQ(Call("DELETE", std::string("/conversations/") + id).status, 400);
    EXPECT_EQ(Call("POST", std::string("/conversations/") + id + "/pin").status, 400);
  }
}

TEST_F(ApiTest, PathsAndMethods) {
  const std::string one = std::string("/conversations/") + kFirstHex;
  for (const std::string& path :
       {std::string(""), std::string("/"), std::string("/conversation"),
        std::string("/conversationsx"), std::string("/conversations//pin"), one + "/",
        one + "/other", one + "/pin/x"}) {
    ExpectError(Call("GET", path), 404, "not_found_error", "no such path");
  }
  ExpectError(Call("POST", "/conversations"), 405, "invalid_request_error", "this path takes GET");
  ExpectError(Call("PUT", one), 405, "invalid_request_error", "this path takes GET, DELETE");
  EXPECT_EQ(Call("GET", one + "/pin").status, 405);
  EXPECT_EQ(Call("DELETE", "/conversations/lookups").status, 405);
  EXPECT_EQ(Call("GET", "/conversations/budgets").status, 405);
  EXPECT_EQ(cache.conversations.size(), 2u);
  EXPECT_EQ(AllowedMethods("/conversations"), "GET");
  EXPECT_EQ(AllowedMethods("/conversations/lookups"), "GET");
  EXPECT_EQ(AllowedMethods("/conversations/ui"), "GET");
  EXPECT_EQ(AllowedMethods("/conversations/budgets"), "POST");
  EXPECT_EQ(AllowedMethods(one), "GET, DELETE");
  EXPECT_EQ(AllowedMethods(one + "/pin"), "POST");
  EXPECT_EQ(AllowedMethods(one + "/other"), "");
  EXPECT_EQ(AllowedMethods("/conversationsx"), "");
}

TEST_F(ApiTest, LookupsInTheirShape) {
  LookupRecord partial;
  partial.unix_ms = 1700000000500;
  partial.prompt_tokens = 100;
  partial.matched_tokens = 70;
  partial.usable_tokens = 64;
  partial.reused_tokens = 64;
  partial.boundary_tokens = 64;
  partial.boundary_kind = BoundaryKind::kSystem;
  partial.conversation = kFirst;
  partial.outcome = LookupOutcome::kPartial;
  partial.hit_tokens[static_cast<int>(Source::kDisk)] = 64;
  partial.miss_tokens[static_cast<int>(MissReason::kDiverged)] = 30;
  partial.miss_tokens[static_cast<int>(MissReason::kNew)] = 6;
  partial.stage_sources = {Source::kRam, Source::kDisk};
  partial.first_difference = 70;
  partial.changed = "time";
  partial.lookup_seconds = 0.25;
  partial.restore_seconds = 0.5;
  partial.restored_bytes = 9;
  partial.expected_load_seconds = 0.25;
  partial.expected_read_seconds = 8;
  LookupRecord identity;
  identity.prompt_tokens = 10;
  identity.miss_tokens[static_cast<int>(MissReason::kIdentity)] = 9;
  identity.miss_tokens[static_cast<int>(MissReason::kNew)] = 1;
  identity.identity_field = "kv_type_k";
  LookupRecord full;
  full.outcome = LookupOutcome::kFull;
  full.failed_tier = Source::kDisk;
  full.miss_tokens[static_cast<int>(MissReason::kNew)] = 1;
  cache.lookups = {partial, identity, full};

  const Json json = Ok(Call("GET", "/conversations/lookups", {{"limit", "7"}}));
  EXPECT_EQ(cache.listed_limit, 7u);
  ASSERT_EQ(json["lookups"].size(), 3u);
  EXPECT_EQ(json["lookups"][0].dump(),
            "{\"time\":1700000000.5,\"prompt_tokens\":100,\"matched_tokens\":70,"
            "\"usable_tokens\":64,\"reused_tokens\":64,"
            "\"conversation\":\"0000000000000001000000000000000a\",\"outcome\":\"partial\","
            "\"boundary\":{\"position\":64,\"kind\":\"system\"},"
            "\"stage_tiers\":[\"ram\",\"disk\"],\"seconds\":0.75,\"lookup_seconds\":0.25,"
            "\"restore_seconds\":0.5,\"restored_bytes\":9,"
            "\"expected\":{\"load_seconds\":0.25,\"read_seconds\":8.0},"
            "\"hit_tokens\":{\"disk\":64},"
            "\"miss_tokens\":{\"new\":6,\"diverged\":30},\"reason\":\"diverged\","
            "\"first_difference\":70,\"identity_field\":null,\"changed\":\"time\","
            "\"failed_tier\":null,\"detail\":null}");
  EXPECT_EQ(json["lookups"][1]["reason"], "identity");
  EXPECT_EQ(json["lookups"][1]["identity_field"], "kv_type_k");
  EXPECT_EQ(json["lookups"][1]["first_difference"], Json());
  EXPECT_EQ(json["lookups"][1]["conversation"], Json());
  EXPECT_EQ(json["lookups"][1]["expected"], Json());
  EXPECT_EQ(json["lookups"][2]["reason"], Json());
  EXPECT_EQ(json["lookups"][2]["boundary"], Json());
  EXPECT_EQ(json["lookups"][2]["failed_tier"], "disk");
  EXPECT_EQ(json["lookups"][2]["changed"], Json());
}

TEST_F(ApiTest, ForgetSaysWhatForksKeep) {
  const std::string path = std::string("/conversations/") + kFirstHex;
  EXPECT_EQ(Call("DELETE", path).body,
            "{\"id\":\"0000000000000001000000000000000a\",\"deleted\":true,\"fork_tokens\":192}");
  EXPECT_EQ(Call("GET", path).status, 404);
  EXPECT_EQ(Call("DELETE", path).status, 404);
}

TEST_F(ApiTest, PinAndUnpin) {
  const std::string path = std::string("/conversations/") + kFirstHex + "/pin";
  Json json = Ok(Call("POST", path, {}, "{\"pinned\":true,\"name\":\"work\"}"));
  EXPECT_EQ(json["pinned"], true);
  EXPECT_EQ(json["name"], "work");
  json = Ok(Call("POST", path, {}, "{\"pinned\":false}"));
  EXPECT_EQ(json["pinned"], false);
  EXPECT_EQ(json["name"], "work") << "no name given: it keeps its own";
  json = Ok(Call("POST", path, {}, "{\"pinned\":true,\"name\":\"\"}"));
  EXPECT_EQ(json["name"], Json());
}

TEST_F(ApiTest, BadPinsAreRefused) {
  const std::string path = std::string("/conversations/") + kFirstHex + "/pin";
  const auto refused = [&](const std::string& body, const std::string& message) {
    ExpectError(Call("POST", path, {}, body), 400, "invalid_request_error", message);
  };
  refused("", "the body is not a JSON object");
  refused("[1]", "the body is not a JSON object");
  refused("{\"pinned\":tru", "the body is not a JSON object");
  refused("{\"pinned\":true,\"name\":\"\xff\"}", "the body is not a JSON object");
  refused(std::string((64 << 10) + 1, ' '), "the body is larger than 64 KiB");
  refused("{}", "'pinned' is true or false");
  refused("{\"pinned\":1}", "'pinned' is true or false");
  refused("{\"pinned\":true,\"name\":5}", "'name' is a string");
  refused("{\"pinned\":true,\"name\":\"a\\nb\"}", "'name' holds a control character");
  refused("{\"pinned\":true,\"name\":\"" + std::string(256, 'a') + "\"}",
          "'name' is longer than 255 bytes");
  refused(std::string(60000, '['), "the body is not a JSON object");
  EXPECT_FALSE(cache.conversations[kFirst].pinned);
}

TEST_F(ApiTest, RefusalsOfTheCacheKeepTheirMeaning) {
  const std::string path = std::string("/conversations/") + kFirstHex + "/pin";
  const std::string body = "{\"pinned\":true}";
  cache.refuse = absl::ResourceExhaustedError("pins hold 80 %");
  ExpectError(Call("POST", path, {}, body), 507, "insufficient_storage_error", "pins hold 80 %");
  cache.refuse = absl::FailedPreconditionError("kv_type_k differs");
  ExpectError(Call("POST", path, {}, body), 409, "conflict_error", "kv_type_k differs");
  cache.refuse = absl::UnavailableError("loading");
  ExpectError(Call("POST", path, {}, body), 503, "unavailable_error", "loading");
  cache.refuse = absl::InternalError("x");
  ExpectError(Call("POST", path, {}, body), 500, "server_error", "x");
  cache.refuse = absl::InvalidArgumentError("bad");
  ExpectError(Call("POST", path, {}, body), 400, "invalid_request_error", "bad");
}

TEST_F(ApiTest, BudgetsChangeTogetherOrNotAtAll) {
  const std::string path = "/conversations/budgets";
  const Json json = Ok(Call("POST", path, {}, "{\"ram_mib\":3}"));
  EXPECT_EQ(json["tiers"][0]["budget_bytes"], 3 << 20);
  ExpectError(Call("POST", path, {}, "{\"ram_mib\":4,\"disk_gib\":1}"), 404, "not_found_error",
              "there is no disk tier");
  EXPECT_EQ(cache.tiers[0].usage.budget_bytes, 3u << 20);
  TierInfo disk;
  disk.kind = TierKind::kDisk;
  cache.tiers.push_back(disk);
  Ok(Call("POST", path, {}, "{\"ram_mib\":4,\"disk_gib\":0.5}"));
  EXPECT_EQ(cache.tiers[0].usage.budget_bytes, 4u << 20);
  EXPECT_EQ(cache.tiers[1].usage.budget_bytes, 512u << 20);
  const std::string ram = "'ram_mib' is a number from 0 to 1073741824";
  const std::string gib = "'disk_gib' is a number from 0.1 to 1048576";
  for (const auto& [body, message] :
       std::map<std::string, std::string>{{"{}", "give 'ram_mib', 'disk_gib' or both"},
                                          {"{\"ram_mib\":-1}", ram},
                                          {"{\"ram_mib\":\"5\"}", ram},
                                          {"{\"ram_mib\":1e300}", ram},
                                          {"{\"ram_mib\":7,\"disk_gib\":0}", gib},
                                          {"{\"disk_gib\":null}", gib}}) {
    ExpectError(Call("POST", path, {}, body), 400, "invalid_request_error", message);
  }
  EXPECT_EQ(cache.tiers[0].usage.budget_bytes, 4u << 20);
}

TEST_F(ApiTest, ABudgetThatLeavesNothingToImagesIsRefused) {
  const std::string path = "/conversations/budgets";
  cache.tiers[0].reserved_bytes = (100u << 20) + 1;
  TierInfo disk;
  disk.kind = TierKind::kDisk;
  cache.tiers.push_back(disk);
  ExpectError(Call("POST", path, {}, "{\"disk_gib\":1,\"ram_mib\":100}"), 400,
              "invalid_request_error",
              "'ram_mib': buffers and index take 100 MiB of it, so 101 is the least, or 0 for no "
              "images in ram");
  EXPECT_EQ(cache.tiers[0].usage.budget_bytes, 20u);
  EXPECT_EQ(cache.tiers[1].usage.budget_bytes, 0u);
  Ok(Call("POST", path, {}, "{\"ram_mib\":101}"));
  EXPECT_EQ(cache.tiers[0].usage.budget_bytes, 101u << 20);
  Ok(Call("POST", path, {}, "{\"ram_mib\":0}"));
  EXPECT_EQ(cache.tiers[0].usage.budget_bytes, 0u);
}

TEST_F(ApiTest, NoExceptionLeaves) {
  cache.throws = true;
  ExpectError(Call("GET", "/conversations"), 500, "server_error", "broken");
}

}  // namespace
}  // namespace parkade
