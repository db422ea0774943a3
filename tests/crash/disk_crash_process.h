// Starts this program again in one of its roles and reads what it says.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace parkade::test {

struct CrashOutcome {
  std::vector<std::string> lines;  // whole ones
  int exit_code = -1;              // -1: ended by `signal`
  int signal = 0;
};

// `enough` sees each line; true: the process is killed (SIGKILL) there. Null: it runs to its end.
CrashOutcome RunCrashProcess(const std::vector<std::string>& arguments,
                             const std::function<bool(const std::string& line)>& enough);

}  // namespace parkade::test
