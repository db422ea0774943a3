#include "src/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/numbers.h"

namespace parkade {

std::size_t TerminalColumns() {
  winsize size = {};
  if (::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
      size.ws_col > 0) {
    return size.ws_col;
  }
  const char* given = std::getenv("COLUMNS");
  std::uint32_t columns = 0;
  return given != nullptr && absl::SimpleAtoi(given, &columns) ? columns : 0;
}

}  // namespace parkade
