#include "tests/support/redis_server.h"

#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/support/fail.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;

// The program's path, empty if there is none. PARKADE_TEST_REDIS_SERVER names another one than what
// is found.
std::string Program() {
  const char* const given = std::getenv("PARKADE_TEST_REDIS_SERVER");
  if (given != nullptr) return given;
  const char* const path = std::getenv("PATH");
  for (const char* name : {"redis-server", "valkey-server"}) {
    for (const auto& folder : absl::StrSplit(path != nullptr ? path : "", ':')) {
      const std::string file = absl::StrCat(folder, "/", name);
      if (::access(file.c_str(), X_OK) == 0) return file;
    }
  }
  return "";
}

// Ports that nobody had a moment ago.
std::vector<int> FreePorts(int count) {
  std::vector<int> ports, sockets;
  bool sound = true;
  for (int i = 0; i < count; ++i) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    sound = sound && ::bind(sockets.back(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
            ::getsockname(sockets.back(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
    ports.push_back(ntohs(address.sin_port));
  }
  for (const int one : sockets) ::close(one);
  if (!sound) Fail("there is no free port");
  return ports;
}

std::string Text(const redisReply* reply) {
  if (reply == nullptr) return "(no answer)";
  switch (reply->type) {
    case REDIS_REPLY_NIL:
      return "(nil)";
    case REDIS_REPLY_INTEGER:
      return absl::StrCat(reply->integer);
    case REDIS_REPLY_ARRAY: {
      std::vector<std::string> lines;
      for (std::size_t i = 0; i < reply->elements; ++i) lines.push_back(Text(reply->element[i]));
      return absl::StrJoin(lines, "\n");
    }
    default:
      return std::string(reply->str, reply->len);
  }
}

std::unique_ptr<redisReply, void (*)(void*)> Say(redisContext* context,
                                                 const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  std::vector<std::size_t> sizes;
  for (const std::string& word : words) {
    pointers.push_back(word.data());
    sizes.push_back(word.size());
  }
  void* const reply =
      redisCommandArgv(context, static_cast<int>(words.size()), pointers.data(), sizes.data());
  return {static_cast<redisReply*>(reply), freeReplyObject};
}

}  // namespace

std::string RedisMissing() {
  return Program().empty() ? "there is no redis-server and no valkey-server here" : "";
}

bool WaitUntil(const std::function<bool()>& condition, absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

RedisServer::RedisServer(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {
  std::string name = fs::temp_directory_path().string() + "/parkade-redis-XXXXXX";
  folder_ = ::mkdtemp(name.data());
  for (std::size_t i = 0; i + 1 < arguments_.size(); ++i) {
    if (arguments_[i] == "--requirepass") password_ = arguments_[i + 1];
  }
  // Another process may take a port in between.
  bool up = false;
  for (int attempt = 0; attempt < 5 && !up; ++attempt) {
    Kill();
    const std::vector<int> ports = FreePorts(3);
    port_ = ports[0];
    bus_port_ = ports[1];
    tls_port_ = ports[2];
    up = Launch();
  }
  if (up) return;
  std::ostringstream log;
  log << std::ifstream(folder_ + "/log").rdbuf();
  Kill();
  fs::remove_all(folder_);
  Fail("the server does not start: " + log.str());
}

RedisServer::~RedisServer() {
  Kill();
  fs::remove_all(folder_);
}

bool RedisServer::Launch() {
  std::vector<std::string> words = {Program(),
                                    "--port",
                                    absl::StrCat(port_),
                                    "--bind",
                                    "127.0.0.1",
                                    "--save",
                                    "",
                                    "--dir",
                                    folder_,
                                    "--logfile",
                                    "log",
                                    "--appendonly",
                                    "no",
                                    "--repl-diskless-sync-delay",
                                    "0"};
  for (const std::string& word : arguments_) {
    words.push_back(word);
    if (word == "--cluster-enabled") {
      words.insert(words.end() - 1, {"--cluster-port", absl::StrCat(bus_port_)});
    }
    if (word == "--tls-cert-file") {
      words.insert(words.end() - 1, {"--tls-port", absl::StrCat(tls_port_)});
    }
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    // A test that dies leaves no servers behind.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  const bool up = WaitUntil([this] {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    return pid_ < 0 || Answers();
  });
  return up && pid_ > 0;
}

bool RedisServer::Answers() {
  const std::string said = Ask({"PING"});
  return said == "PONG";
}

void RedisServer::Start() {
  if (running() || !Launch()) Fail(address() + " does not start again");
}

void RedisServer::Kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void RedisServer::Pause() {
  int status = 0;
  const bool stopped = ::kill(pid_, SIGSTOP) == 0 && ::waitpid(pid_, &status, WUNTRACED) == pid_ &&
                       WIFSTOPPED(status);
  if (!stopped) Fail(address() + " does not stand still");
}

void RedisServer::Resume() {
  if (::kill(pid_, SIGCONT) != 0) Fail(address() + " does not go on");
}

std::string RedisServer::address() const { return absl::StrCat("127.0.0.1:", port_); }

std::string RedisServer::Ask(const std::vector<std::string>& words) {
  const timeval limit = {20, 0};
  const std::unique_ptr<redisContext, void (*)(redisContext*)> context(
      redisConnectWithTimeout("127.0.0.1", port_, limit), redisFree);
  if (context == nullptr || context->err != 0) return "(no connection)";
  redisSetTimeout(context.get(), limit);
  if (!password_.empty()) Say(context.get(), {"AUTH", password_});
  return Text(Say(context.get(), words).get());
}

void RedisServer::Command(const std::vector<std::string>& words) {
  const std::string said = Ask(words);
  if (said != "OK") Fail(absl::StrCat(address(), ": ", absl::StrJoin(words, " "), ": ", said));
}

std::string RedisServer::Info(const std::string& section, const std::string& name) {
  const std::string all = Ask({"INFO", section});
  for (const auto& line : absl::StrSplit(all, "\r\n")) {
    if (line.substr(0, name.size() + 1) == name + ":") {
      return std::string(line.substr(name.size() + 1));
    }
  }
  return "";
}

int RedisCluster::MasterOf(int slot) { return slot <= 5460 ? 0 : slot <= 10922 ? 1 : 2; }

RedisCluster::RedisCluster(int replicas, const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"--cluster-enabled",
                                  "yes",
                                  "--cluster-node-timeout",
                                  "1000",
                                  "--cluster-replica-validity-factor",
                                  "0"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  for (int i = 0; i < kMasters * (1 + replicas); ++i) {
    nodes_.push_back(std::make_unique<RedisServer>(all));
  }
  Join(std::find(all.begin(), all.end(), "--tls-cluster") != all.end());
  if (replicas > 0) Replicate();
}

std::string RedisCluster::Id(int index) { return node(index).Ask({"CLUSTER", "MYID"}); }

bool RedisCluster::AllSay(const std::string& name, const std::string& value) {
  for (const auto& one : nodes_) {
    if (!one->running()) continue;
    const std::string all = one->Ask({"CLUSTER", "INFO"});
    if (all.find(absl::StrCat(name, ":", value, "\r\n")) == std::string::npos) return false;
  }
  return true;
}

void RedisCluster::Await(const std::function<bool()>& condition) {
  if (WaitUntil(condition)) return;
  Fail(absl::StrCat("the cluster does not get there:\n", node(0).Ask({"CLUSTER", "NODES"}), "\n",
                    node(0).Ask({"CLUSTER", "SLOTS"})));
}

void RedisCluster::Join(bool tls) {
  const char* const ranges[kMasters][2] = {{"0", "5460"}, {"5461", "10922"}, {"10923", "16383"}};
  for (int i = 0; i < kMasters; ++i) {
    node(i).Command({"CLUSTER", "ADDSLOTSRANGE", ranges[i][0], ranges[i][1]});
  }
  for (int i = 0; i < size(); ++i) {
    node(i).Command({"CLUSTER", "SET-CONFIG-EPOCH", absl::StrCat(i + 1)});
  }
  for (int i = 1; i < size(); ++i) {
    const int port = tls ? node(i).tls_port() : node(i).port();
    node(0).Command(
        {"CLUSTER", "MEET", "127.0.0.1", absl::StrCat(port), absl::StrCat(node(i).bus_port())});
  }
  Await([this] {
    return AllSay("cluster_state", "ok") && AllSay("cluster_known_nodes", absl::StrCat(size()));
  });
}

void RedisCluster::Replicate() {
  for (int i = 0; i < kMasters; ++i) {
    node(i + kMasters).Command({"CLUSTER", "REPLICATE", Id(i)});
  }
  Await([this] {
    for (int i = 0; i < kMasters; ++i) {
      if (node(i + kMasters).Info("replication", "master_link_status") != "up") return false;
      // Each node must have heard who is whose: only then does it vote and fail over as one
      // expects.
      for (const auto& one : nodes_) {
        if (one->Ask({"CLUSTER", "REPLICAS", Id(i)}).find(Id(i + kMasters)) == std::string::npos) {
          return false;
        }
      }
    }
    return true;
  });
}

void RedisCluster::Announce(int index, int port) {
  node(index).Command({"CONFIG", "SET", "cluster-announce-port", absl::StrCat(port)});
  Await([&] {
    for (const auto& one : nodes_) {
      if (one->Ask({"CLUSTER", "SLOTS"}).find(absl::StrCat("\n", port, "\n")) ==
          std::string::npos) {
        return false;
      }
    }
    return true;
  });
}

void RedisCluster::BeginMove(int slot, int from, int to) {
  const std::string number = absl::StrCat(slot);
  node(to).Command({"CLUSTER", "SETSLOT", number, "IMPORTING", Id(from)});
  node(from).Command({"CLUSTER", "SETSLOT", number, "MIGRATING", Id(to)});
}

void RedisCluster::MoveKey(const std::string& key, int from, int to) {
  node(from).Command({"MIGRATE", "127.0.0.1", absl::StrCat(node(to).port()), key, "0", "10000"});
}

void RedisCluster::EndMove(int slot, int to) {
  const std::string id = Id(to);
  node(to).Command({"CLUSTER", "SETSLOT", absl::StrCat(slot), "NODE", id});
  for (int i = 0; i < kMasters; ++i) {
    if (i == to || !node(i).running()) continue;
    node(i).Command({"CLUSTER", "SETSLOT", absl::StrCat(slot), "NODE", id});
  }
  // A node that has not heard of this epoch would take the same one for the next move, and then
  // they dispute both.
  const std::string all = node(to).Ask({"CLUSTER", "INFO"});
  const std::string name = "cluster_current_epoch";
  const std::size_t begin = all.find(name + ":") + name.size() + 1;
  const std::string epoch = all.substr(begin, all.find('\r', begin) - begin);
  Await([&] { return AllSay(name, epoch); });
}

void MakeCertificates(const std::string& folder, const std::string& names) {
  const std::string made = absl::StrCat(
      "cd '", folder, "' && key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2'",
      " && openssl req -x509 $key -subj '/CN=Test authority' -keyout ca.key -out ca.crt",
      " && openssl req -x509 $key -subj '/CN=server' -CA ca.crt -CAkey ca.key",
      " -addext basicConstraints=CA:FALSE -addext subjectAltName=", names,
      " -keyout server.key -out server.crt");
  if (std::system(absl::StrCat("(", made, ") 2>'", folder, "/openssl.log'").c_str()) != 0) {
    Fail("openssl makes no certificates; its words are in " + folder);
  }
}

std::vector<std::string> TlsArguments(const std::string& folder) {
  return {
      "--tls-cert-file",    folder + "/server.crt", "--tls-key-file",     folder + "/server.key",
      "--tls-ca-cert-file", folder + "/ca.crt",     "--tls-auth-clients", "no"};
}

}  // namespace parkade::test
