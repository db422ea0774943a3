// The remote tier over a real server: what is published is found by its tokens, by whoever asks.
#include "tiers/remote/remote_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/format/checksum.h"
#include "src/format/wire.h"
#include "tests/support/float_bytes.h"
#include "tests/support/heap_buffer.h"
#include "tests/support/redis_server.h"
#include "tests/support/sample_park.h"
#include "tests/support/tcp_proxy.h"

namespace parkade {
namespace {

using test::MakeSamplePark;
using test::SamplePark;
using test::SampleParkSpec;

constexpr std::uint64_t kTokenBytes = 64;

// Parks of one conversation, and all its tokens.
struct Chat {
  std::vector<SamplePark> parks;
  std::vector<Token> tokens;

  PublishRequest Way() const {
    PublishRequest way;
    way.identity = test::SampleIdentityDigest(test::PlainLayout(kTokenBytes));
    way.tokens = tokens;
    for (const SamplePark& park : parks) {
      const ParkSummary& summary = park.record.summary;
      way.steps.push_back(
          {summary.key, {summary.first_token, summary.end_token()}, summary.end_token()});
    }
    way.read = [this](const PublishStep& step) -> absl::StatusOr<PublishPayload> {
      ++reads;
      const SamplePark& park = parks[step.key.park];
      return PublishPayload{park.record, park.payload};
    };
    return way;
  }
  mutable int reads = 0;
};

Chat MakeChat(std::uint64_t number, const std::vector<std::uint32_t>& counts) {
  Chat chat;
  std::uint32_t first = 0;
  for (const std::uint32_t count : counts) {
    SampleParkSpec spec;
    spec.key = {{7, number}, static_cast<std::uint32_t>(chat.parks.size())};
    spec.layout = test::PlainLayout(kTokenBytes);
    spec.stages.stages = {Stage{"CPU", {0}}};
    spec.first_token = first;
    spec.token_count = count;
    spec.variant = spec.key.park;
    chat.parks.push_back(MakeSamplePark(spec));
    const std::vector<Token>& tokens = chat.parks.back().record.tokens;
    chat.tokens.insert(chat.tokens.end(), tokens.begin(), tokens.end());
    first += count;
  }
  return chat;
}

std::uint32_t End(const std::vector<FoundPark>& found) {
  return found.empty() ? 0 : found.back().end;
}

class RemoteTierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::RedisMissing().empty()) GTEST_SKIP() << test::RedisMissing();
    redis_ = std::make_unique<test::RedisServer>();
  }

  std::unique_ptr<SharedTier> Open(int port = 0, SharedSealKey key = nullptr) {
    RemoteTierOptions options;
    options.url.seeds = {{"127.0.0.1", port == 0 ? redis_->port() : port}};
    options.deadline = absl::Seconds(20);
    options.redis.connect_timeout = absl::Seconds(20);
    options.key = std::move(key);
    auto tier = OpenRemoteTier(options);
    EXPECT_TRUE(tier.ok()) << tier.status();
    return *std::move(tier);
  }

  static void Publish(SharedTier& tier, const Chat& chat) {
    PublishOutcome outcome;
    const absl::Status published = tier.Publish(chat.Way(), &outcome);
    ASSERT_TRUE(published.ok()) << published;
    ASSERT_EQ(outcome.steps, chat.parks.size());
  }

  static std::vector<FoundPark> Find(SharedTier& tier, const std::vector<Token>& tokens,
                                     std::uint32_t beyond = 0) {
    auto found =
        tier.Find(test::SampleIdentityDigest(test::PlainLayout(kTokenBytes)), tokens, beyond);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? std::move(found->parks) : std::vector<FoundPark>();
  }

  // Reads all of what was found and compares every byte.
  static void ExpectWhole(SharedTier& tier, const std::vector<FoundPark>& found) {
    for (std::uint32_t i = 0; i < found.size(); ++i) {
      const ParkKey key{{99, 99}, i};
      tier.Bind(key, found[i]);
      const auto extents = tier.ReadExtents(key);
      ASSERT_TRUE(extents.ok()) << extents.status();
      ASSERT_FALSE(extents->empty());
      for (std::uint32_t extent = 0; extent < extents->size(); ++extent) {
        const auto bytes = tier.ReadExtent(key, extent, MakeHeapBuffer);
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        const absl::Status right = test::CheckSampleBytes(found[i].record.summary.key, extent,
                                                          {(*bytes)->data(), (*bytes)->size()});
        EXPECT_TRUE(right.ok()) << right;
      }
    }
  }

  std::set<std::string> Keys(const std::string& kind) {
    std::set<std::string> keys;
    const std::string all = redis_->Ask({"KEYS", "parkade:" + kind + ":*"});
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t end = std::min(all.find('\n', at), all.size());
      if (end > at) keys.insert(all.substr(at, end - at));
      at = end + 1;
    }
    keys.erase("(nil)");
    return keys;
  }

  std::unique_ptr<test::RedisServer> redis_;
};

TEST_F(RemoteTierTest, WhatOneMachinePublishesAnotherOneFinds) {
  for (const bool sealed : {false, true}) {
    const SharedSealKey key =
        sealed ? *SealKey::Parse(std::string(kSealKeyBytes, 'k')) : SharedSealKey();
    redis_->Ask({"FLUSHALL"});
    auto one = Open(0, key);
    auto other = Open(0, key);
    const Chat chat = MakeChat(1, {700, 130, 20, 900});
    Publish(*one, chat);
    std::vector<Token> prompt = chat.tokens;
    prompt.push_back(5);
    const std::vector<FoundPark> found = Find(*other, prompt);
    ASSERT_EQ(found.size(), 4u) << sealed;
    EXPECT_EQ(End(found), 1750u);
    ExpectWhole(*other, found);
    EXPECT_EQ(other->usage().read_bytes, 1750 * kTokenBytes);
  }
}

TEST_F(RemoteTierTest, APromptThatLeavesFindsWhatItShares) {
  auto tier = Open();
  const Chat chat = MakeChat(1, {700, 600, 900});
  Publish(*tier, chat);
  auto other = Open();
  std::vector<Token> prompt(chat.tokens.begin(), chat.tokens.begin() + 1100);
  prompt.insert(prompt.end(), 300, Token{3});
  // Boundaries stand at 512, 640 (the last full page of 700), 1024 and so on.
  std::vector<FoundPark> found = Find(*other, prompt);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].record.summary.first_token, 700u);
  // Nothing beyond what is held: no answer.
  EXPECT_TRUE(Find(*other, prompt, 1100).empty());
  EXPECT_TRUE(Find(*other, {chat.tokens.begin(), chat.tokens.begin() + 60}).empty());
}

TEST_F(RemoteTierTest, NothingIsStoredTwice) {
  auto tier = Open();
  const Chat chat = MakeChat(1, {700, 600});
  Publish(*tier, chat);
  EXPECT_EQ(chat.reads, 2);
  const std::set<std::string> extents = Keys("x");
  Publish(*tier, chat);
  EXPECT_EQ(chat.reads, 2);
  // A new process, or another machine that has read the same.
  auto other = Open();
  Publish(*other, chat);
  EXPECT_EQ(chat.reads, 2);
  EXPECT_EQ(Keys("x"), extents);
  // Cut in other places: what goes beyond stands on what is there.
  Chat longer = MakeChat(2, {1300, 500});
  longer.tokens = chat.tokens;
  longer.parks[0].record.tokens = chat.tokens;
  longer.tokens.insert(longer.tokens.end(), longer.parks[1].record.tokens.begin(),
                       longer.parks[1].record.tokens.end());
  Publish(*other, longer);
  EXPECT_EQ(longer.reads, 1);
  const std::vector<FoundPark> found = Find(*tier, longer.tokens);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(End(found), 1800u);
  ExpectWhole(*tier, found);
}

TEST_F(RemoteTierTest, ChainsOfManyParks) {
  auto tier = Open();
  const Chat chat = MakeChat(1, std::vector<std::uint32_t>(150, 30));
  Publish(*tier, chat);
  auto other = Open();
  const std::vector<FoundPark> found = Find(*other, chat.tokens);
  ASSERT_EQ(found.size(), 150u);
  EXPECT_EQ(End(found), 4500u);
  ExpectWhole(*other, found);
}

// All boundary hashes in one pipeline, rows and tombstone, extents: however many there are.
TEST_F(RemoteTierTest, ThreeRoundTripsToTheFirstExtent) {
  auto tier = Open();
  for (std::uint64_t i = 10; i < 60; ++i) Publish(*tier, MakeChat(i, {1024}));
  const Chat chat = MakeChat(1, {16000, 15000, 1000});
  Publish(*tier, chat);
  test::TcpProxy proxy(redis_->port());
  auto other = Open(proxy.port());
  // The first call of all asks for the secret, whether the server is a cluster, and connects.
  EXPECT_TRUE(Find(*other, std::vector<Token>(200, Token{1})).empty());
  proxy.ResetCounts();
  const std::vector<FoundPark> found = Find(*other, chat.tokens);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(End(found), 32000u);
  EXPECT_EQ(proxy.counts().round_trips, 2u);
  const ParkKey key{{99, 99}, 0};
  other->Bind(key, found[0]);
  ASSERT_TRUE(other->ReadExtents(key).ok());
  ASSERT_TRUE(other->ReadExtent(key, 0, MakeHeapBuffer).ok());
  EXPECT_EQ(proxy.counts().round_trips, 3u);
}

TEST_F(RemoteTierTest, ValuesAreAtMostFourMebibytesAndExpire) {
  auto tier = Open();
  Publish(*tier, MakeChat(1, {4000}));
  std::size_t keys = 0;
  for (const std::string kind : {"x", "r", "b"}) {
    for (const std::string& key : Keys(kind)) {
      ++keys;
      EXPECT_LE(std::stoll(redis_->Ask({"STRLEN", key})), 4 << 20) << key;
      EXPECT_GT(std::stoll(redis_->Ask({"PTTL", key})), 6 * 24 * 3600 * 1000) << key;
    }
  }
  EXPECT_GT(keys, 10u);
}

TEST_F(RemoteTierTest, ErasedConversationsStayAway) {
  auto tier = Open();
  const Chat chat = MakeChat(1, {700, 600});
  const Chat others = MakeChat(2, {800});
  Publish(*tier, chat);
  Publish(*tier, others);
  const PublishRequest way = chat.Way();
  ASSERT_TRUE(tier->Erase({7, 1}, way.identity, way.tokens, way.steps).ok());
  EXPECT_EQ(Keys("t").size(), 1u);
  EXPECT_TRUE(Find(*Open(), chat.tokens).empty());
  EXPECT_EQ(End(Find(*Open(), others.tokens)), 800u);
  EXPECT_EQ(Keys("r").size(), 1u);
  // Neither who has erased it nor who did not hear of it brings it back.
  auto sleeping = Open();
  for (SharedTier* who : {tier.get(), sleeping.get()}) {
    PublishOutcome outcome;
    EXPECT_TRUE(who->Publish(chat.Way(), &outcome).ok());
    EXPECT_EQ(outcome.written_parks, 0u);
  }
  EXPECT_EQ(Keys("r").size(), 1u);
}

// Nobody could use it; what lies before it is stored all the same.
TEST_F(RemoteTierTest, APayloadThatDoesNotFitItsRecordIsRefused) {
  const Chat chat = MakeChat(1, {700, 600});
  using Break = std::function<void(PublishPayload&)>;
  const std::vector<std::pair<std::string, Break>> breaks = {
      {"one too few", [](PublishPayload& payload) { payload.extents.pop_back(); }},
      {"one too many",
       [](PublishPayload& payload) { payload.extents.push_back(payload.extents[0]); }},
      {"none", [](PublishPayload& payload) { payload.extents[1] = nullptr; }},
      {"a byte too few",
       [](PublishPayload& payload) {
         payload.extents[2] = test::CopyToHeap(test::ViewOf(payload.extents[2]).substr(1));
       }},
      {"another sum", [](PublishPayload& payload) { ++payload.record.summary.payload_bytes; }},
      {"no such stage", [](PublishPayload& payload) { payload.record.extents[0].stage = 1; }},
      {"a page hash too few",
       [](PublishPayload& payload) { payload.record.summary.page_hashes.pop_back(); }},
      {"a token too few", [](PublishPayload& payload) { payload.record.tokens.pop_back(); }},
      {"too large",
       [](PublishPayload& payload) {
         payload.extents[0] = MakeHeapBuffer(kExtentBytes + 1);
         payload.record.summary.payload_bytes +=
             kExtentBytes + 1 - payload.record.extents[0].raw_bytes;
         payload.record.extents[0].raw_bytes = kExtentBytes + 1;
       }},
  };
  for (const auto& [name, break_it] : breaks) {
    redis_->Ask({"FLUSHALL"});
    auto tier = Open();
    PublishRequest way = chat.Way();
    way.read = [&](const PublishStep& step) -> absl::StatusOr<PublishPayload> {
      PublishPayload payload{chat.parks[step.key.park].record, chat.parks[step.key.park].payload};
      if (step.key.park == 1) break_it(payload);
      return payload;
    };
    PublishOutcome outcome;
    EXPECT_EQ(tier->Publish(way, &outcome).code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(outcome.steps, 1u) << name;
    EXPECT_EQ(outcome.written_parks, 1u) << name;
    EXPECT_EQ(outcome.bound, std::vector<ParkKey>{chat.parks[0].key()}) << name;
    EXPECT_EQ(tier->ReadTokens(chat.parks[1].key()).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(Keys("x").size(), chat.parks[0].payload.size()) << name;
    EXPECT_EQ(Keys("r").size(), 1u) << name;
    EXPECT_EQ(tier->usage().state, "up") << name;
    Publish(*tier, chat);
    EXPECT_EQ(End(Find(*Open(), chat.tokens)), 1300u) << name;
  }
}

// What is gone in the store ends the match before it, and is stored anew by who has it.
TEST_F(RemoteTierTest, GapsShortenAndAreFilled) {
  auto tier = Open();
  const Chat chat = MakeChat(1, {700, 600, 500});
  Publish(*tier, chat);
  for (const std::string& key : Keys("r")) {
    auto before = Find(*Open(), chat.tokens);
    redis_->Ask({"RENAME", key, "elsewhere"});
    const std::vector<FoundPark> found = Find(*Open(), chat.tokens);
    EXPECT_LT(found.size(), before.size());
    std::uint32_t position = 0;
    for (const FoundPark& park : found) {
      EXPECT_EQ(park.record.summary.first_token, position);
      position = park.end;
    }
    redis_->Ask({"RENAME", "elsewhere", key});
  }
  redis_->Ask({"FLUSHALL"});
  auto other = Open();
  Publish(*other, chat);
  EXPECT_EQ(End(Find(*Open(), chat.tokens)), 1800u);
}

TEST_F(RemoteTierTest, AStoreThatDoesNotAnswerIsAskedOnce) {
  RemoteTierOptions options;
  options.url.seeds = {{"127.0.0.1", redis_->port()}};
  options.deadline = absl::Milliseconds(100);
  options.redis.connect_timeout = absl::Milliseconds(100);
  auto tier = *OpenRemoteTier(options);
  const Chat chat = MakeChat(1, {700});
  Publish(*tier, chat);
  redis_->Pause();
  const auto identity = chat.Way().identity;
  EXPECT_FALSE(tier->Find(identity, chat.tokens, 0).ok());
  EXPECT_FALSE(tier->reachable());
  EXPECT_EQ(tier->usage().state.substr(0, 5), "down:");
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(tier->Find(identity, chat.tokens, 0).ok());
  EXPECT_LT(absl::Now() - begin, absl::Milliseconds(100));
  redis_->Resume();
  EXPECT_TRUE(test::WaitUntil([&] {
    tier->Tick();
    return tier->reachable();
  }));
  EXPECT_EQ(tier->usage().state, "up");
  EXPECT_EQ(End(Find(*tier, chat.tokens)), 700u);
}

TEST_F(RemoteTierTest, IsLookedAtBeforeAnybodyAsks) {
  auto tier = Open();
  EXPECT_EQ(redis_->Info("stats", "keyspace_misses"), "0");
  tier->Tick();
  EXPECT_EQ(redis_->Info("stats", "keyspace_misses"), "1");
  EXPECT_EQ(tier->usage().state, "up");
  tier->Tick();
  EXPECT_EQ(redis_->Info("stats", "keyspace_misses"), "1");
  auto other = Open();
  redis_->Kill();
  other->Tick();
  EXPECT_EQ(other->usage().state.substr(0, 5), "down:");
}

// A newer program's rows are left to it, and so is what leads there.
TEST_F(RemoteTierTest, WhatANewerProgramWroteStays) {
  constexpr std::size_t kHeaderBytes = 64;
  constexpr std::size_t kVersionAt = 8;
  const Chat chat = MakeChat(1, {700, 600});
  Publish(*Open(), chat);
  for (const std::string& key : Keys("r")) {
    std::string value = redis_->Ask({"GET", key});
    value[kVersionAt] = 99;
    const std::string_view covered = std::string_view(value).substr(0, kHeaderBytes - 8);
    const std::uint64_t checksum = Checksum64(covered);
    std::memcpy(value.data() + covered.size(), &checksum, sizeof(checksum));
    redis_->Ask({"SET", key, value});
  }
  const std::set<std::string> boundaries = Keys("b");
  auto tier = Open();
  const auto found = tier->Find(chat.Way().identity, chat.tokens, 0);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->parks.empty());
  EXPECT_EQ(found->lost_tokens, 0u);
  EXPECT_FALSE(found->damaged);
  for (int i = 0; i < 3; ++i) tier->Tick();
  EXPECT_EQ(Keys("b"), boundaries);
  EXPECT_EQ(Keys("r").size(), 2u);
  // What this program stores beside them serves it.
  Publish(*tier, chat);
  EXPECT_EQ(End(Find(*Open(), chat.tokens)), 1300u);
  EXPECT_EQ(Keys("r").size(), 4u);
}

// Of 16-bit floats a third is saved; what has to be known for that is measured with the first ones.
TEST_F(RemoteTierTest, ASlowLinkGetsPackedValues) {
  constexpr std::uint32_t kRowBytes = 1024;
  test::TcpProxy proxy(redis_->port());
  proxy.SetBytesPerSecond(1u << 20);
  RemoteTierOptions options;
  options.url.seeds = {{"127.0.0.1", proxy.port()}};
  options.deadline = absl::Seconds(20);
  options.codec = CodecChoice::kAuto;
  auto tier = *OpenRemoteTier(options);
  std::vector<Chat> chats;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    chats.push_back(MakeChat(number, {2048}));
    SampleParkSpec spec;
    spec.key = chats.back().parks[0].key();
    spec.layout = test::PlainLayout(kRowBytes);
    spec.stages.stages = {Stage{"CPU", {0}}};
    spec.token_count = 2048;
    SamplePark park = MakeSamplePark(spec);
    park.record.tokens = chats.back().tokens;
    park.record.summary.identity = chats.back().Way().identity;
    for (std::size_t i = 0; i < park.payload.size(); ++i) {
      const std::string floats = test::FloatBytes(number * 1000 + i, park.payload[i]->size());
      park.record.extents[i].checksum = Checksum(floats);
      park.payload[i] = test::CopyToHeap(floats);
    }
    chats.back().parks[0] = std::move(park);
  }
  constexpr std::uint64_t kPayload = 2048 * kRowBytes;
  Publish(*tier, chats[0]);
  const std::uint64_t first = tier->usage().written_bytes;
  EXPECT_GT(first * 100, kPayload * 70);
  Publish(*tier, chats[1]);
  const std::uint64_t packed = tier->usage().written_bytes - first;
  // On a busy machine now and then a value seems to have gone so fast that the next ones stay as
  // they are.
  EXPECT_LT(packed * 100, kPayload * 97);
  auto other = Open();
  for (const Chat& chat : chats) {
    const std::vector<FoundPark> found = Find(*other, chat.tokens);
    ASSERT_EQ(found.size(), 1u);
    const ParkKey key{{99, chat.parks[0].key().conversation.low}, 0};
    other->Bind(key, found[0]);
    for (std::uint32_t i = 0; i < chat.parks[0].payload.size(); ++i) {
      const auto bytes = other->ReadExtent(key, i, MakeHeapBuffer);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      EXPECT_EQ(std::string_view((*bytes)->data(), (*bytes)->size()),
                std::string_view(chat.parks[0].payload[i]->data(), (*bytes)->size()));
    }
  }
  EXPECT_EQ(other->usage().read_bytes, first + packed);
}

}  // namespace
}  // namespace parkade
