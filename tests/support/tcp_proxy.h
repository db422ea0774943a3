// A way to a server on this machine that counts, delays, slows down, stops and cuts.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace parkade::test {

struct ProxyCounts {
  std::uint64_t connections = 0;      // accepted
  std::uint64_t bytes_to_server = 0;  // received from clients
  std::uint64_t bytes_to_client = 0;  // handed on to clients
  // How often a client sent something after it had been handed an answer (or for the first time),
  // of all connections: what is sent in one go, in any number of pieces, is one.
  std::uint64_t round_trips = 0;
};

// Listens on a port of 127.0.0.1 and hands everything on to another port of it. Thread safe.
// std::runtime_error: there is no port.
class TcpProxy {
 public:
  explicit TcpProxy(int target_port);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  int port() const { return port_; }

  // Of each way: half a round trip.
  void SetLatency(absl::Duration latency);
  // Of each way and connection; 0: no limit.
  void SetBytesPerSecond(std::uint64_t bytes);
  // While stopped nothing is handed on, though connections are accepted.
  void Stop(bool stopped);
  // Closes all connections.
  void Cut();
  // Closes the connection that has handed so many more bytes to its client, right after them; once.
  void CutAfter(std::uint64_t bytes_to_client);
  // New connections are closed at once.
  void Refuse(bool refused);

  ProxyCounts counts() const;
  void ResetCounts();

 private:
  struct Link;
  struct Way;
  struct Settings {
    absl::Duration latency;
    std::uint64_t bytes_per_second = 0;
    bool stopped = false;
    bool refused = false;
    std::uint64_t cut_after = 0;  // 0: never
    int cuts = 0;                 // how often Cut was called
    bool ending = false;
  };

  void Change(const std::function<void(Settings*)>& change);
  void Work();
  void Accept(bool refused);
  void Serve(Link* link, const Settings& settings, absl::Time now);
  void Receive(Link* link, Way* way, const Settings& settings, absl::Time now);
  void Deliver(Link* link, Way* way, absl::Time now);

  const int target_port_;
  int port_ = 0;
  int listener_ = -1;
  int wake_ = -1;
  std::list<Link> links_;  // the thread's

  mutable absl::Mutex mutex_;
  Settings settings_ ABSL_GUARDED_BY(mutex_);
  ProxyCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace parkade::test
