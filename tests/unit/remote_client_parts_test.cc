// The parts of the client that need no server.
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tiers/remote/reply.h"
#include "tiers/remote/request.h"
#include "tiers/remote/resolver.h"
#include "tiers/remote/slots.h"

namespace parkade::remote {
namespace {

std::string AllOf(const Request& request) {
  iovec pieces[64];
  const std::size_t count = request.Next(pieces, 64);
  std::string all;
  for (std::size_t i = 0; i < count; ++i) {
    all.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
  }
  return all;
}

TEST(RemoteRequest, IsWhatTheProtocolSays) {
  Request request;
  request.Add({"SET", std::string_view("k\r\n\0", 4), ""});
  request.Add({"PING"});
  const std::string nul(1, '\0');
  EXPECT_EQ(AllOf(request),
            "*3\r\n$3\r\nSET\r\n$4\r\nk\r\n" + nul + "\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n");
}

TEST(RemoteRequest, GoesOnWhereItWasCutAndCopiesNoLargeWords) {
  const std::string large(Request::kReferenced, 'v');
  Request request;
  request.Add({"SET", "key", large});
  request.Add({"SET", "other", large});
  const std::string all = AllOf(request);
  iovec pieces[8];
  ASSERT_EQ(request.Next(pieces, 8), 5u);
  EXPECT_EQ(pieces[1].iov_base, large.data());
  EXPECT_EQ(pieces[3].iov_base, large.data());
  EXPECT_EQ(request.Next(pieces, 2), 2u);
  std::string rest = all;
  for (const std::size_t step : {1u, 30u, 20u, 16000u, 400u, 16370u}) {
    request.Sent(step);
    rest = rest.substr(step);
    ASSERT_EQ(AllOf(request), rest);
  }
  EXPECT_FALSE(request.sent());
  request.Sent(rest.size());
  EXPECT_TRUE(request.sent());
  EXPECT_EQ(request.Next(pieces, 8), 0u);
}

std::vector<Reply> Read(ReplyReader* reader, const std::string& bytes, std::size_t step) {
  std::vector<Reply> replies;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    EXPECT_EQ(reader->Feed(std::string_view(bytes).substr(at, step)), absl::OkStatus());
    while (true) {
      absl::StatusOr<std::optional<Reply>> reply = reader->Next();
      EXPECT_TRUE(reply.ok()) << reply.status();
      if (!reply.ok() || !reply->has_value()) break;
      replies.push_back(**std::move(reply));
    }
  }
  return replies;
}

TEST(RemoteReply, IsReadWhateverThePieces) {
  const std::string nul(1, '\0');
  const std::string bytes = "+OK\r\n-ERR no\r\n:-42\r\n$-1\r\n*-1\r\n$5\r\n\r\n" + nul +
                            "x\r\r\n$0\r\n\r\n*3\r\n$1\r\na\r\n*2\r\n:7\r\n$-1\r\n+s\r\n*0\r\n";
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    ReplyReader reader;
    const std::vector<Reply> replies = Read(&reader, bytes, step);
    ASSERT_EQ(replies.size(), 9u);
    EXPECT_TRUE(reader.empty());
    EXPECT_EQ(replies[0].kind, Reply::Kind::kStatus);
    EXPECT_EQ(replies[0].bytes, "OK");
    EXPECT_EQ(replies[1].kind, Reply::Kind::kError);
    EXPECT_EQ(replies[1].bytes, "ERR no");
    EXPECT_EQ(replies[2].kind, Reply::Kind::kInteger);
    EXPECT_EQ(replies[2].integer, -42);
    EXPECT_EQ(replies[3].kind, Reply::Kind::kNil);
    EXPECT_EQ(replies[4].kind, Reply::Kind::kNil);
    EXPECT_EQ(replies[5].kind, Reply::Kind::kBytes);
    EXPECT_EQ(replies[5].bytes, "\r\n" + nul + "x\r");
    EXPECT_EQ(replies[6].kind, Reply::Kind::kBytes);
    EXPECT_EQ(replies[6].bytes, "");
    ASSERT_EQ(replies[7].elements.size(), 3u);
    EXPECT_EQ(replies[7].elements[0].bytes, "a");
    ASSERT_EQ(replies[7].elements[1].elements.size(), 2u);
    EXPECT_EQ(replies[7].elements[1].elements[0].integer, 7);
    EXPECT_EQ(replies[7].elements[1].elements[1].kind, Reply::Kind::kNil);
    EXPECT_EQ(replies[7].elements[2].bytes, "s");
    EXPECT_EQ(replies[8].kind, Reply::Kind::kArray);
    EXPECT_TRUE(replies[8].elements.empty());
  }
}

TEST(RemoteReply, KnowsThatMoreIsToCome) {
  ReplyReader reader;
  EXPECT_TRUE(reader.empty());
  EXPECT_TRUE(Read(&reader, "*2\r\n:1\r\n", 1).empty());
  EXPECT_FALSE(reader.empty());
  EXPECT_EQ(Read(&reader, ":2\r\n", 1).size(), 1u);
  EXPECT_TRUE(reader.empty());
}

TEST(RemoteReply, RefusesWhatIsNoReply) {
  for (const std::string bytes : {"HTTP/1.1 400 Bad Request\r\n", "$x\r\n", "*99999999999\r\n"}) {
    ReplyReader reader;
    EXPECT_EQ(reader.Feed(bytes), absl::OkStatus());
    EXPECT_EQ(reader.Next().status().code(), absl::StatusCode::kInternal) << bytes;
    EXPECT_EQ(reader.Feed("+OK\r\n").code(), absl::StatusCode::kInternal);
  }
}

TEST(RemoteSlots, AreTheProtocols) {
  // The check value of CRC-16/XMODEM, and what CLUSTER KEYSLOT says.
  EXPECT_EQ(SlotOf("123456789"), 0x31c3);
  EXPECT_EQ(SlotOf(""), 0);
  EXPECT_EQ(SlotOf("foo"), 12182);
  EXPECT_EQ(SlotOf("x{foo}y{bar}"), 12182);
  EXPECT_EQ(SlotOf("{}foo"), SlotOf("{}foo"));
  EXPECT_NE(SlotOf("{}foo"), SlotOf("foo"));
  EXPECT_NE(SlotOf("{foo"), SlotOf("foo"));
}

TEST(RemoteSlots, RedirectsAreRead) {
  const Endpoint asked = {"10.0.0.9", 7000};
  auto redirect = ParseRedirect("MOVED 3999 127.0.0.1:6381", asked);
  ASSERT_TRUE(redirect.has_value());
  EXPECT_FALSE(redirect->ask);
  EXPECT_EQ(redirect->slot, 3999);
  EXPECT_EQ(redirect->to, (Endpoint{"127.0.0.1", 6381}));
  redirect = ParseRedirect("ASK 1 ::1:6381", asked);
  ASSERT_TRUE(redirect.has_value());
  EXPECT_TRUE(redirect->ask);
  EXPECT_EQ(redirect->to, (Endpoint{"::1", 6381}));
  for (const char* text : {"MOVED 1 :6381", "MOVED 1 ?:6381"}) {
    EXPECT_EQ(ParseRedirect(text, asked)->to, (Endpoint{"10.0.0.9", 6381}));
  }
  for (const char* text : {"", "MOVED", "MOVED 1", "MOVED 1 x", "MOVED 16384 h:1", "MOVED -1 h:1",
                           "MOVED 1 h:0", "MOVED 1 h:65536", "MOVEDX 1 h:1", "ERR MOVED 1 h:1"}) {
    EXPECT_FALSE(ParseRedirect(text, asked).has_value()) << text;
  }
}

Reply Number(std::int64_t value) {
  Reply reply;
  reply.kind = Reply::Kind::kInteger;
  reply.integer = value;
  return reply;
}

Reply Text(const std::string& text) {
  Reply reply;
  reply.kind = text == "(nil)" ? Reply::Kind::kNil : Reply::Kind::kBytes;
  if (text != "(nil)") reply.bytes = text;
  return reply;
}

Reply List(std::vector<Reply> elements) {
  Reply reply;
  reply.kind = Reply::Kind::kArray;
  reply.elements = std::move(elements);
  return reply;
}

TEST(RemoteSlots, MapsAreRead) {
  const Reply a = List({Text("10.0.0.1"), Number(7000), Text("id")});
  const Reply b = List({Text("(nil)"), Number(7001), Text("id")});
  const Reply c = List({Text("10.0.0.3"), Number(7002), Text("id")});
  const auto map =
      ParseSlots(List({List({Number(0), Number(99), a, c}), List({Number(100), Number(16383), b}),
                       List({Number(50), Number(50), b, c})}),
                 {"10.0.0.9", 1});
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->masters, (std::vector<Endpoint>{{"10.0.0.1", 7000}, {"10.0.0.9", 7001}}));
  EXPECT_EQ(map->replicas, (std::vector<Endpoint>{{"10.0.0.3", 7002}}));
  EXPECT_EQ(map->owner[0], 0);
  EXPECT_EQ(map->owner[50], 1);
  EXPECT_EQ(map->owner[99], 0);
  EXPECT_EQ(map->owner[16383], 1);
  const auto part = ParseSlots(List({List({Number(5), Number(5), a})}), {"h", 1});
  EXPECT_EQ(part->owner[4], SlotMap::kNobody);
  EXPECT_EQ(part->owner[5], 0);
}

TEST(RemoteSlots, RefusesWhatIsNoMap) {
  const Reply a = List({Text("h"), Number(7000)});
  for (const Reply& wrong :
       {Text("x"), List({Text("x")}), List({List({Number(0), Number(16384), a})}),
        List({List({Number(-1), Number(1), a})}), List({List({Number(2), Number(1), a})}),
        List({List({Number(0), Number(1), Text("h")})}),
        List({List({Number(0), Number(1), List({Text("h"), Number(0)})})})}) {
    EXPECT_EQ(ParseSlots(wrong, {"h", 1}).status().code(), absl::StatusCode::kInternal);
  }
}

TEST(RemoteResolver, KnowsAddressesAndNames) {
  Resolver resolver;
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  const auto numeric = resolver.Resolve({"127.0.0.1", 80}, absl::InfinitePast());
  ASSERT_TRUE(numeric.ok()) << numeric.status();
  EXPECT_EQ((*numeric)[0].family(), AF_INET);
  EXPECT_EQ(resolver.Resolve({"::1", 80}, absl::InfinitePast())->at(0).family(), AF_INET6);
  EXPECT_TRUE(resolver.Resolve({"localhost", 80}, deadline).ok());
  // Reserved for this.
  const auto none = resolver.Resolve({"no-such-host.invalid", 80}, deadline);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnavailable) << none.status();
}

}  // namespace
}  // namespace parkade::remote
