// kill -9 at every step and at random moments. What was acknowledged is there, every park is whole,
// no file is without an owner, and the budget holds.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "tests/crash/disk_crash_process.h"
#include "tests/crash/disk_crash_worker.h"

namespace parkade::test {
namespace {

namespace fs = std::filesystem;
using Key = std::pair<std::uint64_t, std::uint64_t>;

std::uint64_t Number(const char* name, std::uint64_t otherwise) {
  const char* given = std::getenv(name);
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
}

// What the reports of all processes so far allow.
class Expected {
 public:
  void Apply(const std::string& line) {
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
        maybe_.erase(key);
        break;
      case 'f':
        Move(key.first, &there_, &maybe_);
        break;
      case 'F':
        Move(key.first, &maybe_, nullptr);
        names_.erase(key.first);
        break;
      case 'n':
        maybe_names_[key.first].insert(key.second);
        break;
      case 'N':
        maybe_names_[key.first] = {key.second};
        names_.insert(key.first);
        break;
    }
    if (what == 'r' || what == 'f') names_.erase(key.first);
  }
  // Compares and takes what is there as the new truth.
  void Check(const std::set<Key>& held, const std::map<std::uint64_t, std::uint64_t>& names) {
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
    for (const auto& [id, name] : names) names_.insert(id);
  }

 private:
  static void Move(std::uint64_t id, std::set<Key>* from, std::set<Key>* to) {
    for (auto it = from->lower_bound({id, 0}); it != from->end() && it->first == id;) {
      if (to != nullptr) to->insert(*it);
      it = from->erase(it);
    }
  }

  std::set<Key> there_;  // must be there
  std::set<Key> maybe_;  // may be there
  std::set<std::uint64_t> names_;
  std::map<std::uint64_t, std::set<std::uint64_t>> maybe_names_;
};

class DiskCrashTest : public ::testing::Test {
 protected:
  DiskCrashTest() {
    std::string name = (fs::temp_directory_path() / "parkade-crash-XXXXXX").string();
    root_ = mkdtemp(name.data());
    directory_ = root_ + "/tier";
    seed_ = Number("PARKADE_SEED", std::random_device()());
    std::cerr << "PARKADE_SEED=" << seed_ << "\n";
    random_.seed(seed_);
  }
  ~DiskCrashTest() override { fs::remove_all(root_); }

  CrashOutcome Work(const std::string& point, int nth,
                    const std::function<bool(const std::string&)>& enough) {
    const CrashOutcome outcome = RunCrashProcess(
        {"--work", directory_, std::to_string(random_()), point, std::to_string(nth)}, enough);
    for (const std::string& line : outcome.lines) expected_.Apply(line);
    EXPECT_EQ(outcome.signal, SIGKILL) << "exit code " << outcome.exit_code;
    return outcome;
  }

  void Look() {
    {
      auto opened = OpenDiskTier(CrashTierOptions(directory_));
      ASSERT_TRUE(opened.ok()) << opened.status();
      std::vector<ParkSummary> summaries;
      ASSERT_TRUE(
          (*opened)->Enumerate([&](const ParkSummary& one) { summaries.push_back(one); }).ok());
      std::set<Key> held;
      for (const ParkSummary& summary : summaries) {
        held.insert({summary.key.conversation.low, summary.key.park});
        const absl::Status whole = CheckCrashPark(**opened, summary);
        EXPECT_TRUE(whole.ok()) << whole << " " << summary.key.conversation.low << "/"
                                << summary.key.park;
      }
      std::map<std::uint64_t, std::uint64_t> names;
      ASSERT_TRUE((*opened)
                      ->EnumerateAttributes([&](const ConversationAttributes& one) {
                        if (one.pinned) {
                          names[one.conversation.low] =
                              std::strtoull(one.name.c_str(), nullptr, 10);
                        }
                      })
                      .ok());
      expected_.Check(held, names);
      EXPECT_LE((*opened)->usage().physical_bytes, kCrashBudgetBytes);
      EXPECT_TRUE(fs::is_empty(directory_ + "/temporary"));
    }
    auto report = VerifyDiskTier(directory_, false, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->findings, std::vector<std::string>{});
  }

  std::string root_, directory_;
  std::uint64_t seed_ = 0;
  std::mt19937_64 random_;
  Expected expected_;
};

TEST_F(DiskCrashTest, AtEveryStep) {
  for (const char* point : {"store.begin", "segment.created", "segment.written", "segment.synced",
                            "folder.made", "segment.renamed", "folder.synced", "store.batch",
                            "remove.begin", "remove.rows", "remove.unlinked", "forget.tombstone",
                            "forget.rows", "forget.unlinked", "forget.purged", "attributes.rows"}) {
    SCOPED_TRACE(point);
    Work(point, 1 + static_cast<int>(random_() % 4), nullptr);
    ASSERT_NO_FATAL_FAILURE(Look());
  }
  for (const char* point : {"recovery.flagged", "recovery.deleted", "recovery.adopted",
                            "recovery.ended", "recovery.done"}) {
    SCOPED_TRACE(point);
    Work("segment.renamed", 3, nullptr);
    Work(point, 1, nullptr);
    ASSERT_NO_FATAL_FAILURE(Look());
  }
}

TEST_F(DiskCrashTest, AtRandomMoments) {
  const std::uint64_t rounds = Number("PARKADE_CRASH_ROUNDS", 30);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    std::uint64_t lines = 1 + random_() % 120;
    Work("", 0, [&](const std::string&) { return --lines == 0; });
    ASSERT_NO_FATAL_FAILURE(Look());
    if (HasFailure()) break;
  }
}

// Killed again and again without a look in between, and the catalogue lost at the end.
TEST_F(DiskCrashTest, ThenTheCatalogueIsLost) {
  for (int round = 0; round < 5; ++round) {
    std::uint64_t lines = 20 + random_() % 60;
    Work("", 0, [&](const std::string&) { return --lines == 0; });
  }
  fs::remove_all(directory_ + "/catalogue");
  Look();
}

}  // namespace
}  // namespace parkade::test
