// A directory that processes are killed over, what their reports allow, and what has to hold after
// each of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/crash/disk_crash_process.h"
#include "tests/crash/disk_crash_worker.h"
#include "tests/support/disk_checks.h"
#include "tests/support/environment.h"

namespace parkade::test {

// Failpoints of the tier's work, and of opening a directory where rows and files differ.
inline constexpr const char* kCrashPoints[] = {
    "store.begin",  "segment.created", "segment.written", "segment.synced",
    "folder.made",  "segment.renamed", "folder.synced",   "store.batch",
    "remove.begin", "remove.rows",     "remove.unlinked", "forget.tombstone",
    "forget.rows",  "forget.unlinked", "forget.purged",   "attributes.rows"};
inline constexpr const char* kRecoveryPoints[] = {"recovery.scanned", "recovery.flagged",
                                                  "recovery.deleted", "recovery.adopted",
                                                  "recovery.ended",   "recovery.done"};

// What the reports of all processes so far allow.
class ExpectedParks {
 public:
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // conversation, park

  // Whether the power goes: an eviction does not wait for its folder's sync.
  void LetEvictedReturn(bool may) { evicted_may_return_ = may; }
  void Apply(const std::string& line);
  // Compares and takes what is there as the new truth.
  void Check(const std::set<Key>& held, const std::map<std::uint64_t, std::uint64_t>& names);
  // Parks that must be there and are not among these.
  std::uint64_t Lost(const std::vector<ParkSummary>& summaries) const;

 private:
  std::set<Key> there_;  // must be there
  std::set<Key> maybe_;  // may be there
  std::set<std::uint64_t> names_;
  std::map<std::uint64_t, std::set<std::uint64_t>> maybe_names_;
  std::map<std::uint64_t, std::set<std::uint64_t>> given_names_;  // since the last Check
  bool evicted_may_return_ = false;
};

class DiskCrashTest : public ::testing::Test {
 protected:
  DiskCrashTest();
  ~DiskCrashTest() override;

  // Sends a process to work in the directory and waits for its end, which has to be SIGKILL.
  CrashOutcome Work(CrashOrder order, const std::function<bool(const std::string&)>& enough);
  CrashOutcome WorkUntil(const std::string& point, int nth);
  CrashOutcome WorkForLines(std::uint64_t lines);

  // At every failpoint once, then while what a kill left is recovered.
  void EndAtEveryStep();

  // Opens the directory and checks every property below.
  void Look();
  void ExpectWhatWasReported(Tier& tier, const std::vector<ParkSummary>& summaries);
  void ExpectWithinBudget(const Tier& tier);

  std::string root_, directory_;
  bool encrypted_ = false;
  bool power_ = false;
  std::mt19937_64 random_;
  ExpectedParks expected_;
};

}  // namespace parkade::test
