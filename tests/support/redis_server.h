// Real Redis (or Valkey) servers on this machine: single ones and clusters. What can't be had of
// them throws std::runtime_error.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace parkade::test {

// Why there are no such tests here: no redis-server and no valkey-server in PATH. Empty: there is.
std::string RedisMissing();

// Asks until `condition` is true; false: it was not within `limit`.
bool WaitUntil(const std::function<bool()>& condition, absl::Duration limit = absl::Seconds(20));

// Keeps nothing on disk.
class RedisServer {
 public:
  // `arguments` are further words of its command line ("--maxmemory", "8mb"); a password given with
  // "--requirepass" is used by Ask. Returns when the server answers.
  explicit RedisServer(std::vector<std::string> arguments = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  int port() const { return port_; }
  int bus_port() const { return bus_port_; }  // of a node of a cluster
  int tls_port() const { return tls_port_; }  // listens if `arguments` have certificates
  std::string address() const;                // "127.0.0.1:port"
  const std::string& folder() const { return folder_; }

  // One command by a connection of its own, outside of what is tested. What it says: bytes, status,
  // error or number as text, "(nil)", an array one element a line.
  std::string Ask(const std::vector<std::string>& words);
  // The same of a command that is answered OK.
  void Command(const std::vector<std::string>& words);
  // The value of a line of INFO, empty if there is none.
  std::string Info(const std::string& section, const std::string& name);

  void Kill();    // SIGKILL; its data is gone
  void Start();   // again, on the same port
  void Pause();   // SIGSTOP; returns when it stands still
  void Resume();  // SIGCONT
  bool running() const { return pid_ > 0; }

 private:
  bool Launch();
  bool Answers();

  std::vector<std::string> arguments_;
  std::string password_;
  std::string folder_;
  int port_ = 0;
  int bus_port_ = 0;
  int tls_port_ = 0;
  pid_t pid_ = -1;
};

// Three masters with a third of the slots each, and a replica of each.
class RedisCluster {
 public:
  // `replicas`: 0 or 1 for each master. `arguments` go to each node; with "--tls-cluster" the nodes
  // know each other by tls_port().
  explicit RedisCluster(int replicas = 1, const std::vector<std::string>& arguments = {});

  static constexpr int kMasters = 3;
  // Masters first; node i + kMasters is a replica of node i.
  RedisServer& node(int index) { return *nodes_[static_cast<std::size_t>(index)]; }
  int size() const { return static_cast<int>(nodes_.size()); }
  // Which master (0 to 2) has the slot at the beginning.
  static int MasterOf(int slot);

  // The node is known to clients by another port of 127.0.0.1 (a proxy's). Returns when all nodes
  // say so.
  void Announce(int index, int port);

  // A slot on its way: keys that are not there any more are asked for at the other one.
  void BeginMove(int slot, int from, int to);
  // Moves one key that `from` has.
  void MoveKey(const std::string& key, int from, int to);
  // The slot is `to`'s, and all nodes know.
  void EndMove(int slot, int to);

 private:
  std::string Id(int index);
  void Join(bool tls);
  void Replicate();
  void Await(const std::function<bool()>& condition);
  bool AllSay(const std::string& name, const std::string& value);

  std::vector<std::unique_ptr<RedisServer>> nodes_;
};

// A certificate authority, "ca.crt" in `folder`, and a server's certificate by it, "server.crt" and
// "server.key", for `names`. Needs the program openssl.
void MakeCertificates(const std::string& folder,
                      const std::string& names = "IP:127.0.0.1,DNS:localhost");
// The words with which a server uses them; it then listens on tls_port() too.
std::vector<std::string> TlsArguments(const std::string& folder);

}  // namespace parkade::test
