#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "src/cli/http_client.h"

namespace parkade {
namespace {

// Answers one connection on a port of its own with fixed bytes and keeps what it was asked.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~OneAnswer() {
    shutdown(listener_, SHUT_RDWR);  // ends the accept if nobody came
    thread_.join();
    close(listener_);
  }

  const std::string& url() const { return url_; }
  // After the client has its answer.
  const std::string& request() const { return request_; }

 private:
  void Serve() {
    const int connection = accept(listener_, nullptr, nullptr);
    if (connection < 0) return;
    char piece[1024];
    while (request_.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = read(connection, piece, sizeof(piece));
      if (got <= 0) break;
      request_.append(piece, static_cast<std::size_t>(got));
    }
    EXPECT_EQ(write(connection, answer_.data(), answer_.size()),
              static_cast<ssize_t>(answer_.size()));
    close(connection);
  }

  const std::string answer_;
  int listener_ = -1;
  std::string url_;
  std::string request_;
  std::thread thread_;
};

TEST(CliHttpClient, GetsStatusAndBody) {
  OneAnswer server("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello");
  const auto reply = MakeHttpCall(server.url(), "secret")({"/conversations?limit=1"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->status, 404);
  EXPECT_EQ(reply->body, "hello");
  EXPECT_EQ(server.request().rfind("GET /conversations?limit=1 HTTP/1.1\r\n", 0), 0u);
  EXPECT_NE(server.request().find("\r\nAuthorization: Bearer secret\r\n"), std::string::npos);
}

TEST(CliHttpClient, SendsMethodAndBody) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
  const auto reply = MakeHttpCall(server.url(), "")({"/pin", "POST", R"({"pinned":true})"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->body, "{}");
  EXPECT_EQ(server.request().rfind("POST /pin HTTP/1.1\r\n", 0), 0u) << server.request();
  EXPECT_NE(server.request().find("\r\nContent-Type: application/json\r\n"), std::string::npos);
  EXPECT_NE(server.request().find("\r\nContent-Length: 15\r\n"), std::string::npos);
}

TEST(CliHttpClient, DeletesWithoutABody) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  const auto reply = MakeHttpCall(server.url(), "")({"/x", "DELETE"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(server.request().rfind("DELETE /x HTTP/1.1\r\n", 0), 0u) << server.request();
}

TEST(CliHttpClient, SendsNoKeyWhenThereIsNone) {
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  const auto reply = MakeHttpCall(server.url(), "")({"/"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(server.request().find("Authorization"), std::string::npos);
}

TEST(CliHttpClient, NoAnswerIsUnavailable) {
  std::string url;
  {
    OneAnswer gone("");
    url = gone.url();
  }
  const auto reply = MakeHttpCall(url, "")({"/"});
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(reply.status().message()).rfind("no answer from " + url + ": ", 0), 0u);
}

TEST(CliHttpClient, TakesNoOtherProtocol) {
  const auto reply = MakeHttpCall("file:///etc", "")({"/hostname"});
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace parkade
