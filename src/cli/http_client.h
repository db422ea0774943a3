// One GET at a time, by libcurl.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace parkade {

struct HttpReply {
  long status = 0;
  std::string body;
};

// Gets a path (with its query) from a server. Unavailable with one line when no answer came.
using HttpGet = std::function<absl::StatusOr<HttpReply>(const std::string& path)>;

// `base_url` without a '/' at its end; `api_key` empty: none is sent. No redirects, no proxy, at
// most 30 s and 64 MiB an answer. One thread at a time.
HttpGet MakeHttpGet(const std::string& base_url, const std::string& api_key);

}  // namespace parkade
