#include "tests/crash/disk_crash_fixture.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "tests/support/faulty_files.h"
#include "tests/support/test_root.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;
using Key = ExpectedParks::Key;

void Move(std::uint64_t id, std::set<Key>* from, std::set<Key>* to) {
  for (auto it = from->lower_bound({id, 0}); it != from->end() && it->first == id;) {
    if (to != nullptr) to->insert(*it);
    it = from->erase(it);
  }
}

}  // namespace

void ExpectedParks::Apply(const std::string& line) {
  std::istringstream words(line);
  char what = 0;
  Key key;
  words >> what >> key.first >> key.second;
  switch (what) {
    case 's':
      maybe_.insert(key);
      break;
    case 'S':
      maybe_.erase(key);
      there_.insert(key);
      break;
    case 'r':
      there_.erase(key);
      maybe_.insert(key);
      break;
    case 'R':
      if (!evicted_may_return_) maybe_.erase(key);
      break;
    case 'f':
      Move(key.first, &there_, &maybe_);
      break;
    case 'F':
      Move(key.first, &maybe_, nullptr);
      names_.erase(key.first);
      given_names_.erase(key.first);
      break;
    case 'n':
      maybe_names_[key.first].insert(key.second);
      given_names_[key.first].insert(key.second);
      break;
    case 'N':
      maybe_names_[key.first] = {key.second};
      names_.insert(key.first);
      break;
  }
  if (what == 'r' || what == 'f') names_.erase(key.first);
  // With the conversation any of its names may be back.
  if (what == 'r' && evicted_may_return_) {
    const std::set<std::uint64_t>& given = given_names_[key.first];
    maybe_names_[key.first].insert(given.begin(), given.end());
  }
}

void ExpectedParks::Check(const std::set<Key>& held,
                          const std::map<std::uint64_t, std::uint64_t>& names) {
  for (const Key& key : there_) {
    EXPECT_TRUE(held.count(key)) << "acknowledged and lost: " << key.first << "/" << key.second;
  }
  for (const Key& key : held) {
    EXPECT_TRUE(there_.count(key) || maybe_.count(key))
        << "removed and back: " << key.first << "/" << key.second;
  }
  for (const std::uint64_t id : names_) {
    EXPECT_TRUE(names.count(id)) << "name of " << id << " is lost";
  }
  for (const auto& [id, name] : names) {
    EXPECT_TRUE(maybe_names_[id].count(name)) << id << " has an older name";
    maybe_names_[id] = {name};
  }
  there_ = held;
  maybe_.clear();
  names_.clear();
  given_names_.clear();
  for (const auto& [id, name] : names) {
    names_.insert(id);
    given_names_[id] = {name};
  }
}

std::uint64_t ExpectedParks::Lost(const std::vector<ParkSummary>& summaries) const {
  std::set<Key> held;
  for (const ParkSummary& summary : summaries) {
    held.insert({summary.key.conversation.low, summary.key.park});
  }
  return static_cast<std::uint64_t>(std::count_if(
      there_.begin(), there_.end(), [&held](const Key& key) { return !held.contains(key); }));
}

DiskCrashTest::DiskCrashTest() {
  std::string name = DiskTestRoot() + "/parkade-crash-XXXXXX";
  root_ = mkdtemp(name.data());
  directory_ = root_ + "/tier";
  const std::uint64_t seed = FromEnvironment("PARKADE_SEED", std::random_device()());
  std::cerr << "PARKADE_SEED=" << seed << "\n";
  random_.seed(seed);
}

DiskCrashTest::~DiskCrashTest() { fs::remove_all(root_); }

CrashOutcome DiskCrashTest::Work(CrashOrder order,
                                 const std::function<bool(const std::string&)>& enough) {
  order.directory = directory_;
  order.seed = random_();
  order.encrypted = encrypted_;
  order.power = power_;
  expected_.LetEvictedReturn(power_);
  const CrashOutcome outcome = RunCrashProcess(order.ToArguments(), enough);
  for (const std::string& line : outcome.lines) expected_.Apply(line);
  EXPECT_EQ(outcome.signal, SIGKILL) << "exit code " << outcome.exit_code;
  return outcome;
}

CrashOutcome DiskCrashTest::WorkUntil(const std::string& point, int nth) {
  CrashOrder order;
  order.point = point;
  order.nth = nth;
  return Work(order, nullptr);
}

CrashOutcome DiskCrashTest::WorkForLines(std::uint64_t lines) {
  return Work(CrashOrder(), [lines](const std::string&) mutable { return --lines == 0; });
}

void DiskCrashTest::EndAtEveryStep() {
  for (const char* point : kCrashPoints) {
    SCOPED_TRACE(point);
    WorkUntil(point, 1 + static_cast<int>(random_() % 4));
    ASSERT_NO_FATAL_FAILURE(Look());
  }
  const bool power = power_;
  for (const char* point : kRecoveryPoints) {
    SCOPED_TRACE(point);
    power_ = false;  // so that there is something to recover
    WorkUntil("segment.renamed", 3);
    power_ = power;
    WorkUntil(point, 1);
    ASSERT_NO_FATAL_FAILURE(Look());
  }
}

void DiskCrashTest::Look() {
  std::vector<ParkSummary> summaries;
  {
    auto opened = OpenDiskTier(CrashTierOptions(directory_, encrypted_));
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->usage().state, "up");
    summaries = Summaries(**opened);
    ExpectWholeOrAbsent(**opened, summaries, CheckSampleBytes);
    ExpectWhatWasReported(**opened, summaries);
    ExpectWithinBudget(**opened);
  }
  const DiskTierOptions options = CrashTierOptions(directory_, encrypted_);
  ExpectNoFileWithoutOwner(options);
  ExpectCatalogueEqualsScan(options, root_ + "/scanned", summaries);
}

void DiskCrashTest::ExpectWhatWasReported(Tier& tier, const std::vector<ParkSummary>& summaries) {
  std::set<Key> held;
  for (const ParkSummary& summary : summaries) {
    held.insert({summary.key.conversation.low, summary.key.park});
  }
  std::map<std::uint64_t, std::uint64_t> names;
  const absl::Status visited = tier.EnumerateAttributes([&](const ConversationAttributes& one) {
    if (!one.pinned) return;
    names[one.conversation.low] = std::strtoull(one.name.c_str(), nullptr, 10);
  });
  EXPECT_EQ(visited, absl::OkStatus());
  expected_.Check(held, names);
}

void DiskCrashTest::ExpectWithinBudget(const Tier& tier) {
  EXPECT_LE(tier.usage().physical_bytes, kCrashBudgetBytes);
  EXPECT_LE(BlockBytesBelow(directory_), kCrashBudgetBytes);
}

}  // namespace parkade::test
