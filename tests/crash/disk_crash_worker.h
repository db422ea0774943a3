// The process that is killed: parks, forks, evicts, forgets and names under load, and reports every
// step on its standard output.
//
// A line is written with one write call: `s C P` before a store, `S C P` after it returned OK;
// `r C P` and `R C P` around a removal, `f C` and `F C` around a Forget; `n C N` and `N C N` around
// giving conversation C the name N. C, P and N are decimal numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parkade/image.h"
#include "tests/support/sample_park.h"
#include "tiers/disk/disk_tier.h"

namespace parkade::test {

inline constexpr std::uint64_t kCrashBudgetBytes = 72ull << 20;

// Encrypted also where the environment has PARKADE_CRASH_SEALED.
DiskTierOptions CrashTierOptions(const std::string& directory, bool encrypted = false);
ConversationId CrashConversation(std::uint64_t number);
// Reads a park and checks every byte and token of it.
absl::Status CheckCrashPark(Tier& tier, const ParkSummary& summary);

// What the process is to do, and when it ends.
struct CrashOrder {
  std::string directory;
  std::uint64_t seed = 0;
  // It kills itself at the `nth` time it gets there; empty: it goes on until it is killed.
  std::string point;
  int nth = 0;
  bool encrypted = false;
  // What was not synced goes with it (PowerCut), at `point` or before its `at_change`th change of
  // files, if that is not 0.
  bool power = false;
  std::uint64_t at_change = 0;
  unsigned lies = 0;  // of 100 syncs, with `power`

  std::vector<std::string> ToArguments() const;
  static CrashOrder FromArguments(char** arguments);  // the kArguments of them after the first two
  static constexpr int kArguments = 8;
};
int RunCrashWorker(const CrashOrder& order);
// Opens, reads everything, and prints `P C P` for each whole park. 0: it could.
int RunCrashReader(const std::string& directory);
// Verifies, and prints a line for each finding. 0: it could.
int RunCrashVerifier(const std::string& directory, bool repair);

}  // namespace parkade::test
