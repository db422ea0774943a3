#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tiers/remote/url.h"

namespace parkade::remote {
namespace {

RemoteUrl Parsed(const std::string& text) {
  absl::StatusOr<RemoteUrl> url = ParseRemoteUrl(text);
  EXPECT_TRUE(url.ok()) << text << ": " << url.status();
  return url.ok() ? *std::move(url) : RemoteUrl();
}

std::string Refused(const std::string& text) {
  const absl::StatusOr<RemoteUrl> url = ParseRemoteUrl(text);
  EXPECT_EQ(url.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(url.status().message());
}

TEST(RemoteUrl, HasDefaults) {
  const RemoteUrl url = Parsed("redis://cache");
  EXPECT_FALSE(url.tls);
  ASSERT_EQ(url.seeds.size(), 1u);
  EXPECT_EQ(url.seeds[0].host, "cache");
  EXPECT_EQ(url.seeds[0].port, 6379);
  EXPECT_EQ(url.user, "");
  EXPECT_EQ(url.password, "");
  EXPECT_EQ(url.password_file, "");
  EXPECT_EQ(url.prefix, "parkade");
  EXPECT_EQ(Parsed("redis://cache/").prefix, "parkade");
}

TEST(RemoteUrl, HasAllParts) {
  const RemoteUrl url = Parsed("rediss://me:secret@10.0.0.1:7000,[fe80::1%eth0]:7001,c_2/a/b:c/");
  EXPECT_TRUE(url.tls);
  EXPECT_EQ(url.user, "me");
  EXPECT_EQ(url.password, "secret");
  ASSERT_EQ(url.seeds.size(), 3u);
  EXPECT_EQ(url.seeds[0], (Endpoint{"10.0.0.1", 7000}));
  EXPECT_EQ(url.seeds[1], (Endpoint{"fe80::1%eth0", 7001}));
  EXPECT_EQ(url.seeds[2], (Endpoint{"c_2", 6379}));
  EXPECT_EQ(url.prefix, "a/b:c");
  EXPECT_EQ(url.ToString(), "rediss://10.0.0.1:7000,[fe80::1%eth0]:7001,c_2:6379/a/b:c");
  EXPECT_EQ(Parsed("redis://[::1]").seeds[0], (Endpoint{"::1", 6379}));
}

TEST(RemoteUrl, DecodesUserAndPassword) {
  const RemoteUrl url = Parsed("redis://a%3ab:p%40%2F%25%00x@h");
  EXPECT_EQ(url.user, "a:b");
  EXPECT_EQ(url.password, std::string("p@/%\0x", 6));
  // What needs no code may stand as it is.
  EXPECT_EQ(Parsed("redis://:p@s/s:w,ord@h:1/x").password, "p@s/s:w,ord");
}

TEST(RemoteUrl, TakesThePasswordFromAFile) {
  for (const std::string before : {"me:", ":", ""}) {
    const RemoteUrl url = Parsed("redis://" + before + "@file:/run/a@b/pass%20word@h:7000/x");
    EXPECT_EQ(url.user, before == "me:" ? "me" : "");
    EXPECT_EQ(url.password, "");
    EXPECT_EQ(url.password_file, "/run/a@b/pass%20word");
    EXPECT_EQ(url.seeds[0], (Endpoint{"h", 7000}));
  }
  EXPECT_EQ(Parsed("redis://:%40file:x@h").password, "@file:x");
}

TEST(RemoteUrl, RefusesInOneLineWithoutSecrets) {
  const std::string secret = "s3cr3t";
  const std::vector<std::string> wrong = {
      "",
      "s3cr3t",
      "http://u:s3cr3t@h",
      "REDIS://u:s3cr3t@h",
      "redis://",
      "redis:///x",
      "redis://u:s3cr3t",
      "redis://s3cr3t@h",
      "redis://u:@h",
      "redis://u:s3cr3t%zz@h",
      "redis://u%4:s3cr3t@h",
      "redis://u:s3cr3t@",
      "redis://u:s3cr3t@h:0",
      "redis://u:s3cr3t@h:65536",
      "redis://u:s3cr3t@h:",
      "redis://u:s3cr3t@h:+1",
      "redis://u:s3cr3t@h,",
      "redis://u:s3cr3t@h h",
      "redis://u:s3cr3t@[h]",
      "redis://u:s3cr3t@[::1",
      "redis://u:s3cr3t@[::1]x",
      "redis://u:s3cr3t@h/a{b}",
      "redis://u:s3cr3t@h/" + std::string(65, 'a'),
      "redis://u:@file:@h",
  };
  for (const std::string& text : wrong) {
    const std::string message = Refused(text);
    EXPECT_EQ(message.find(secret), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(message.rfind("the remote's URL ", 0), 0u) << message;
  }
}

TEST(RemoteUrl, SaysWhere) {
  EXPECT_EQ(Refused("redis://a:1,b:x"),
            "the remote's URL has no port from 1 to 65535 after host 2; it is "
            "redis://[user:password@]host:port[,host:port...][/prefix] or the same with rediss://");
}

}  // namespace
}  // namespace parkade::remote
