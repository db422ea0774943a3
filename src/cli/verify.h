// `parkade verify`.
#pragma once

#include "src/cli/arguments.h"
#include "src/cli/commands.h"

namespace parkade {

// Reads and checks every byte of the tier in arguments.disk, which no server may hold. Exit code 1
// when something was found, repaired or not. Progress goes to stderr when that is a terminal.
CliOutcome RunVerify(const CliArguments& arguments);

}  // namespace parkade
