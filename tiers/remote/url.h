// Where the remote is: the one text a user gives.
//
//   redis://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/PREFIX]
//   rediss://...                            the same over TLS
//
// `@file:PATH` in place of PASSWORD, of USER:PASSWORD or of :PASSWORD: the password is what that
// file holds. The last '@' of the text divides, so a password or a path may have '@' and '/' in it.
// USER and PASSWORD are percent-decoded, PATH is taken as it is; a password that itself begins with
// "@file:" is written "%40file:". An IPv6 address stands in brackets. PORT is 6379 if there is
// none. PREFIX, "parkade" if there is none, is 1 to 64 of letters, digits and "._-:/"; one '/' at
// its end is dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace parkade::remote {

inline constexpr int kDefaultPort = 6379;

struct Endpoint {
  std::string host;  // a name, or an address without brackets
  int port = kDefaultPort;

  // "host:port", an IPv6 address in brackets.
  std::string ToString() const;
  friend bool operator==(const Endpoint& a, const Endpoint& b) {
    return a.host == b.host && a.port == b.port;
  }
};

struct RemoteUrl {
  bool tls = false;
  std::vector<Endpoint> seeds;  // at least one: nodes of one cluster, or of one replicated server
  std::string user;             // empty: only the password is sent
  std::string password;         // empty: no authentication
  // Not empty: whoever parsed reads this file and puts its content into `password`.
  std::string password_file;
  std::string prefix = "parkade";

  // For people: scheme, seeds and prefix, nothing secret.
  std::string ToString() const;
};

// InvalidArgument with one line that repeats nothing of the text, as any part of a mistyped one may
// be the password.
absl::StatusOr<RemoteUrl> ParseRemoteUrl(std::string_view text);

}  // namespace parkade::remote
