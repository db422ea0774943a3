// The commands that ask a running server, or a directory as if it were one: answers in, text out.
#pragma once

#include <string>

#include "src/cli/arguments.h"
#include "src/cli/http_client.h"

namespace parkade {

struct CliOutcome {
  int exit_code = 0;  // 0 or 1
  std::string out;    // for stdout
  std::string error;  // for stderr, without a line end; empty: none
};

// Runs kList, kShow, kLookups, kStats, kForget, kPin or kUnpin. `now_unix_seconds` is what ages are
// counted from. Throws nothing; an answer of another shape is an error.
CliOutcome RunCacheCommand(const CliArguments& arguments, const HttpCall& call,
                           double now_unix_seconds);

}  // namespace parkade
