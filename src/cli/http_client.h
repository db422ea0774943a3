// One request at a time, by libcurl.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace parkade {

struct HttpRequest {
  std::string path;  // with its query
  std::string method = "GET";
  std::string body = "";  // JSON; empty: none
};

struct HttpReply {
  long status = 0;
  std::string body;
};

// Asks a server, or whatever answers as one. Unavailable with one line when no answer came.
using HttpCall = std::function<absl::StatusOr<HttpReply>(const HttpRequest& request)>;

// `base_url` without a '/' at its end; `api_key` empty: none is sent. No redirects, no proxy, at
// most 30 s and 64 MiB an answer. One thread at a time.
HttpCall MakeHttpCall(const std::string& base_url, const std::string& api_key);

}  // namespace parkade
