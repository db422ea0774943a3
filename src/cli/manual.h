// The manual page, from the command table.
#pragma once

#include <string>

namespace parkade {

// parkade(1) in the man macros of roff.
std::string CliManual();

}  // namespace parkade
