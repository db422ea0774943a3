// A client of one Redis (or Valkey) server or of a cluster, for many small commands at once and for
// single large values.
//
// Connections are made when they are needed and kept; at most `connections_per_node` to each
// server. A call keeps its deadline whatever the servers do: connecting, TLS, authentication and
// the middle of a value are part of it. A connection whose exchange failed is closed, never used
// again. A server that closed a connection while it lay idle is noticed before the next use.
//
// A cluster is recognised by itself (CLUSTER SLOTS), its map is kept up to date (cluster.h),
// replicas are not read. RESP2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tiers/remote/reply.h"
#include "tiers/remote/url.h"

namespace parkade::remote {

class Cluster;
struct NodeSettings;

struct RedisOptions {
  // For one connection with TLS and authentication; the deadline of a call bounds it too.
  absl::Duration connect_timeout = absl::Milliseconds(500);
  int connections_per_node = 4;  // so many calls at once; more wait
  // With rediss://: certificates (PEM) that are trusted. Empty: the system's, or what the
  // environment's SSL_CERT_FILE and SSL_CERT_DIR name. The server's certificate must be for the
  // host that was connected: in a cluster the address that its map tells.
  std::string tls_ca_file;
};

struct Command {
  std::vector<std::string_view> words;  // stay valid until Run returns; sent from there if large
  std::string_view key;                 // decides the node; empty: any
};

struct NodeInfo {
  std::string address;
  std::uint64_t bytes_in = 0;   // received from it since it is known
  std::uint64_t bytes_out = 0;  // sent to it
  bool connected = false;       // there is a connection that was not found broken yet
};

// Thread safe, nothing throws, no lock is held over I/O. Outlives its calls.
//
// Errors, their messages one line with the server's address and without the password:
//   Unavailable        a server can't be reached, closed the connection, or would not serve until
//   the
//                      deadline (LOADING, CLUSTERDOWN, READONLY)
//   DeadlineExceeded   no answer in time; what was sent may still happen
//   PermissionDenied   NOAUTH, WRONGPASS, NOPERM, or a certificate that is not trusted
//   Internal           it does not answer as Redis does
class Redis {
 public:
  // Connects nothing. InvalidArgument: a password file that nobody read, no such CA file, no
  // connections.
  static absl::StatusOr<std::unique_ptr<Redis>> Create(const RemoteUrl& url,
                                                       const RedisOptions& options);
  ~Redis();
  Redis(const Redis&) = delete;
  Redis& operator=(const Redis&) = delete;

  // One reply each, in order; a command's error is a reply. Commands of one node go over one
  // connection in one pipeline in their order, nodes are served at the same time; a command that
  // was redirected or put off (ASK, MOVED, TRYAGAIN, LOADING, CLUSTERDOWN, READONLY) comes after
  // the others. Nothing is sent twice but what a server refused. If any node fails there are no
  // replies, though other nodes' commands were run.
  absl::StatusOr<std::vector<Reply>> Run(absl::Span<const Command> commands, absl::Time deadline);

  // GET of one value, received straight into the memory that `allocate` gives for its size (called
  // at most once, before the value arrives; null: ResourceExhausted and a closed connection). After
  // an error the memory holds anything. NotFound: no such key. FailedPrecondition: it is no string.
  // `first_byte` is for all until the value's size came, `deadline_after(size)` for the value.
  absl::Status Get(std::string_view key, absl::Time first_byte,
                   const std::function<char*(std::size_t size)>& allocate,
                   const std::function<absl::Time(std::size_t size)>& deadline_after);

  // SET of one value, sent from where it is. `ttl_ms` 0: it stays. ResourceExhausted: the server is
  // at its maxmemory (OOM). FailedPrecondition: another refusal, in the server's words.
  absl::Status Set(std::string_view key, absl::Span<const char> value, std::int64_t ttl_ms,
                   absl::Time deadline);

  // The servers that have keys, as far as is known by now; no I/O.
  std::vector<NodeInfo> nodes() const;

 private:
  explicit Redis(const RemoteUrl& url);

  const std::unique_ptr<NodeSettings> settings_;
  const std::unique_ptr<Cluster> cluster_;
};

}  // namespace parkade::remote
