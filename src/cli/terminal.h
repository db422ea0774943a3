// How wide what people look at is.
#pragma once

#include <cstddef>

namespace parkade {

// Columns of the terminal that stdout is; where it is none, what COLUMNS says; 0: no limit.
std::size_t TerminalColumns();

}  // namespace parkade
