// Stages as the tensors' buffers tell them: models split by layers over two RPC servers on this
// machine (PARKADE_TEST_RPC_SERVER is the program). A child process of a test ends with it.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "ggml-rpc.h"
#include "parkade/image.h"
#include "tests/e2e/llama_engine.h"

namespace parkade {
namespace {

std::string ServerProgram() {
  const char* program = std::getenv("PARKADE_TEST_RPC_SERVER");
#ifdef PARKADE_TEST_RPC_SERVER_PROGRAM
  if (program == nullptr) program = PARKADE_TEST_RPC_SERVER_PROGRAM;
#endif
  return program == nullptr ? "" : program;
}

sockaddr_in LocalAddress(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

std::uint16_t FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = LocalAddress(0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

bool Listens(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = LocalAddress(port);
  const bool connected =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  ::close(fd);
  return connected;
}

class RpcServer {
 public:
  RpcServer() : port_(FreePort()) {
    const std::string program = ServerProgram();
    const std::string port = std::to_string(port_);
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(126);
      ::execl(program.c_str(), program.c_str(), "-p", port.c_str(), "-t", "1", nullptr);
      ::_exit(127);
    }
    const std::time_t deadline = std::time(nullptr) + 20;
    while (!Listens(port_) && std::time(nullptr) < deadline) {
      const timespec pause{0, 10'000'000};
      ::nanosleep(&pause, nullptr);
    }
  }
  ~RpcServer() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  const std::uint16_t port_;
  pid_t process_ = -1;
};

class Stages : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    if (ServerProgram().empty()) return;
    QuietBackends();
    // Never ended before the program: llama.cpp aborts when a server goes away.
    for (int i = 0; i < 2; ++i) {
      auto* server = new RpcServer();
      ggml_backend_reg_t registry = ggml_backend_rpc_add_server(server->endpoint().c_str());
      ASSERT_NE(registry, nullptr);
      ASSERT_GE(ggml_backend_reg_dev_count(registry), 1u);
      devices_.push_back(ggml_backend_reg_dev_get(registry, 0));
    }
    devices_.push_back(nullptr);
  }
  void SetUp() override {
    if (devices_.size() != 3) GTEST_SKIP() << "PARKADE_TEST_RPC_SERVER is not set";
  }

  // Layers shared out in the proportion `first` : `second`.
  llama_model* Load(float first, float second) {
    llama_model_params params = llama_model_default_params();
    params.devices = devices_.data();
    params.n_gpu_layers = 99;
    params.split_mode = LLAMA_SPLIT_MODE_LAYER;
    std::vector<float> split(llama_max_devices(), 0.0f);
    split[0] = first;
    split[1] = second;
    params.tensor_split = split.data();
    return llama_model_load_from_file((ModelsFolder() + "/" + GetParam() + ".gguf").c_str(),
                                      params);
  }

  inline static std::vector<ggml_backend_dev_t> devices_;
};

INSTANTIATE_TEST_SUITE_P(Memory, Stages,
                         testing::Values("dense", "mrope", "window", "recurrent", "hybrid",
                                         "hybrid_window"),
                         [](const auto& info) { return info.param; });

constexpr std::uint32_t kTokens = 400;

TEST_P(Stages, FollowTheSplitAndMoveBetweenSplits) {
  llama_model* even = Load(1, 1);
  llama_model* uneven = Load(3, 1);
  ASSERT_NE(even, nullptr);
  ASSERT_NE(uneven, nullptr);
  {
    Engine source(even, {});
    ASSERT_EQ(source.status(), absl::OkStatus());
    ASSERT_EQ(source.view().CheckLayout(0), absl::OkStatus());
    const StageMap& stages = source.view().stages();
    ASSERT_EQ(stages.stages.size(), 2u);
    EXPECT_NE(stages.stages[0].device, stages.stages[1].device);
    EXPECT_LT(stages.stages[0].layers.back(), stages.stages[1].layers.front());
    ASSERT_EQ(source.Decode(0, 0, kTokens), 0);
    const absl::StatusOr<Image> image = Capture(source.Sequence(0), kTokens);
    ASSERT_EQ(image.status(), absl::OkStatus());
    ASSERT_EQ(source.Decode(0, kTokens, kTokens + 20, 5), 0);

    Engine target(uneven, {});
    ASSERT_EQ(target.status(), absl::OkStatus());
    EXPECT_NE(target.view().stages(), stages);
    ASSERT_EQ(Restore(target.Sequence(0), *image, kTokens), absl::OkStatus());
    const absl::StatusOr<Image> again = Capture(target.Sequence(0), kTokens);
    ASSERT_EQ(again.status(), absl::OkStatus());
    ExpectSameRows(target.view().layout(), *image, *again);
    ASSERT_EQ(target.Decode(0, kTokens, kTokens + 20, 5), 0);
    EXPECT_LE(Distance(source.Logits(), target.Logits()), 0.05f);
  }
  llama_model_free(even);
  llama_model_free(uneven);
}

}  // namespace
}  // namespace parkade
