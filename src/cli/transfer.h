// The commands that move one conversation between a directory and a file.
#pragma once

#include "src/cli/arguments.h"
#include "src/cli/commands.h"

namespace parkade {

// kExport and kImport. Progress goes to stderr when that is a terminal.
CliOutcome RunExport(const CliArguments& arguments);
CliOutcome RunImport(const CliArguments& arguments);

}  // namespace parkade
