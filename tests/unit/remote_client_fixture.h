// A client of servers that the test started.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/redis_server.h"
#include "tests/support/tcp_proxy.h"
#include "tiers/remote/redis.h"
#include "tiers/remote/url.h"

namespace parkade::remote {

// Longer than anything takes that is not to fail.
inline absl::Time Ample() { return absl::Now() + absl::Seconds(20); }

inline std::unique_ptr<Redis> MakeRedis(const std::string& url, RedisOptions options = {}) {
  const absl::StatusOr<RemoteUrl> parsed = ParseRemoteUrl(url);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  absl::StatusOr<std::unique_ptr<Redis>> redis = Redis::Create(*parsed, options);
  EXPECT_TRUE(redis.ok()) << redis.status();
  return redis.ok() ? *std::move(redis) : nullptr;
}

inline std::string Url(int port) { return absl::StrCat("redis://127.0.0.1:", port); }

// One command; its first word after the name is its key.
inline absl::StatusOr<Reply> RunOne(Redis& redis, const std::vector<std::string>& words,
                                    absl::Time deadline = Ample()) {
  Command command;
  for (const std::string& word : words) command.words.push_back(word);
  if (words.size() > 1) command.key = words[1];
  absl::StatusOr<std::vector<Reply>> replies =
      redis.Run(absl::MakeConstSpan(&command, 1), deadline);
  if (!replies.ok()) return replies.status();
  EXPECT_EQ(replies->size(), 1u);
  return std::move(replies->at(0));
}

inline absl::StatusOr<std::string> GetValue(Redis& redis, const std::string& key,
                                            absl::Time deadline = Ample()) {
  std::string value;
  const absl::Status status = redis.Get(
      key, deadline,
      [&](std::size_t size) {
        value.resize(size);
        return value.data();
      },
      [&](std::size_t) { return deadline; });
  if (!status.ok()) return status;
  return value;
}

inline absl::Status SetValue(Redis& redis, const std::string& key, const std::string& value,
                             std::int64_t ttl_ms = 0, absl::Time deadline = Ample()) {
  return redis.Set(key, value, ttl_ms, deadline);
}

// Whether the value is there and as expected; what is said then doesn't fill the screen.
inline ::testing::AssertionResult Same(const absl::StatusOr<std::string>& value,
                                       const std::string& expected) {
  if (!value.ok()) return ::testing::AssertionFailure() << value.status();
  if (*value == expected) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << value->size() << " bytes, expected " << expected.size() << " others";
}
inline ::testing::AssertionResult Same(const absl::StatusOr<Reply>& reply,
                                       const std::string& expected) {
  if (!reply.ok()) return ::testing::AssertionFailure() << reply.status();
  return Same(reply->bytes, expected);
}

// Bytes that compare unequal when they are moved, with CR, LF and NUL in them.
inline std::string Bytes(std::size_t size, std::uint64_t seed = 1) {
  std::string bytes(size, '\0');
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (char& c : bytes) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    c = static_cast<char>(state >> 56);
  }
  const std::string special("\r\n\0$5\r\n", 7);
  if (size >= special.size()) bytes.replace(size / 2, special.size(), special);
  bytes.resize(size);
  return bytes;
}

// Skips where there is no server to start.
class RemoteClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = test::RedisMissing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

}  // namespace parkade::remote
