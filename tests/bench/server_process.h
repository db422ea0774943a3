// A real parkade-server beside this program, and requests to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/image.h"

namespace parkade::bench {

struct CompletionRequest {
  std::vector<Token> prompt;
  int answer_tokens = 16;  // exactly: an end-of-turn token does not end it
};

struct Completion {
  double first_token_s = 0;   // from the request to the first token, as a client sees it
  double decode_token_s = 0;  // between tokens, the first excluded
  double total_s = 0;
  std::uint32_t reused_tokens = 0;
  std::vector<Token> answer;
};

// Ends with the object, by SIGKILL. One caller at a time.
class ServerProcess {
 public:
  // Starts the parkade-server that stands beside this program, with the model of PARKADE_MODEL or
  // else the demo's, and waits until it answers and, with a cache, knows the model's weights.
  // NotFound: there is no program or model.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(
      const std::string& log_file, bool cache, const std::vector<std::string>& arguments);
  ~ServerProcess();

  void Kill();

  absl::StatusOr<Completion> Complete(const CompletionRequest& request);
  absl::StatusOr<nlohmann::json> GetJson(const std::string& path);
  absl::StatusOr<nlohmann::json> PostJson(const std::string& path, const nlohmann::json& body);
  absl::StatusOr<std::string> GetText(const std::string& path);
  absl::Status Delete(const std::string& path);
  // Waits until a conversation is durable up to this many tokens.
  absl::Status WaitDurable(std::uint32_t tokens);
  std::uint64_t resident_bytes() const;

 private:
  ServerProcess(pid_t pid, int port, std::string log_file)
      : pid_(pid), port_(port), log_file_(std::move(log_file)) {}
  bool Running();
  absl::Status WaitReady(bool cache);
  // Hands every piece of the answer's body to `take` as it comes.
  // `method`: other than GET without a body and POST with one.
  absl::Status Ask(const std::string& path, const std::string* body,
                   const std::function<void(std::string_view)>& take, const char* method = nullptr);

  pid_t pid_;
  const int port_;
  const std::string log_file_;
};

// A ggml-rpc-server on this machine's loopback, with one thread, as a device. Ends with the object.
class RpcDevice {
 public:
  // Starts the one that stands beside this program and waits until it listens.
  static absl::StatusOr<std::unique_ptr<RpcDevice>> Start(const std::string& log_file);
  ~RpcDevice();
  // "host:port", as --rpc takes it.
  const std::string& address() const { return address_; }

 private:
  RpcDevice(pid_t pid, std::string address) : pid_(pid), address_(std::move(address)) {}

  const pid_t pid_;
  const std::string address_;
};

}  // namespace parkade::bench
