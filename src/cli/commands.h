// The commands that ask a running server, or a directory as if it were one: answers in, text out.
#pragma once

#include <string>

#include "src/cli/arguments.h"
#include "src/cli/cache_tables.h"
#include "src/cli/http_client.h"

namespace parkade {

struct CliOutcome {
  int exit_code = 0;  // 0 or 1
  std::string out;    // for stdout
  std::string error;  // for stderr, without a line end; empty: none
};

// Runs a command that works on a server, or on a server or a directory (see CliPlace). Throws
// nothing; an answer of another shape is an error.
CliOutcome RunCacheCommand(const CliArguments& arguments, const HttpCall& call,
                           const CliView& view);

}  // namespace parkade
