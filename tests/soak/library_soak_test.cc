// The library with a fake engine, a RAM and a disk tier: lives with faults that are closed, killed,
// or lose their power, one after the other, for PARKADE_SOAK_MINUTES. Every restored row is
// checked, and after each life the directory. PARKADE_SEED repeats a run.

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "src/format/page_hash.h"
#include "tests/crash/disk_crash_process.h"
#include "tests/soak/library_life.h"
#include "tests/support/disk_checks.h"
#include "tests/support/test_root.h"
#include "tiers/disk/disk_tier.h"

namespace parkade::test {
namespace {

constexpr std::uint64_t kMib = 1ull << 20;
constexpr std::uint64_t kDiskBudgetBytes = 64 * kMib;
constexpr std::uint64_t kRamBudgetBytes = 48 * kMib;
// Heap that comes and goes between two equal states: arenas of threads, RocksDB's blocks.
constexpr std::uint64_t kWanderBytes = 24 * kMib;

SharedSealKey SoakKey() { return *SealKey::Parse(std::string(kSealKeyBytes, 'k')); }

RigOptions SoakOptions(const RigModel& model, bool encrypted) {
  RigOptions options(model);
  options.disk = true;
  options.durable_budget_bytes = kDiskBudgetBytes;
  options.cache.ram_budget_bytes = kRamBudgetBytes;
  options.cache.capture_buffer_bytes = 2 * kMib;
  if (encrypted) {
    options.disk_key = SoakKey();
    options.cache.page_hash_key = PageHashKey(options.disk_key);
  }
  return options;
}

std::uint64_t FilesBelow(const std::string& folder) {
  std::uint64_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  return files;
}

class LibrarySoak : public ::testing::Test {
 protected:
  LibrarySoak() {
    ::setenv("TEST_TMPDIR", DiskTestRoot().c_str(), 1);
    const char* given = std::getenv("PARKADE_SEED");
    seed_ = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
    std::printf("PARKADE_SEED=%llu\n", static_cast<unsigned long long>(seed_));
    std::fflush(stdout);
    random_.seed(seed_);
    AddUser(FullModel(), false);
    AddUser(WindowModel(), true);
    AddUser(MixedModel(), false);
  }

  void AddUser(const RigModel& model, bool encrypted) {
    LibraryUser user;
    user.rig = std::make_unique<Rig>(SoakOptions(model, encrypted));
    for (const std::vector<int>& shares :
         {std::vector<int>{1}, std::vector<int>{1, 1}, std::vector<int>{2, 1, 1}}) {
      user.engines.push_back(user.rig->MakeEngine(shares));
    }
    user.rig->Close();
    users_.push_back(std::move(user));
  }

  LifeEnd AnyEnd() {
    const std::uint64_t dice = random_() % 10;
    if (dice < 3) return LifeEnd::kClosed;
    if (dice < 6) return LifeEnd::kKilled;
    return dice < 9 ? LifeEnd::kPowerCut : LifeEnd::kLyingSyncs;
  }

  void Live(LibraryUser& user) {
    const LifeEnd end = AnyEnd();
    SCOPED_TRACE("life " + std::to_string(lives_) + ", end " +
                 std::to_string(static_cast<int>(end)));
    ProcessSample held;
    LifeWill will = LibraryLife(&user, end, random_(), &totals_).Run(&held);
    ++lives_;
    open_memory_.Add(held.anonymous_bytes);
    open_descriptors_.Add(held.descriptors);
    open_threads_.Add(held.threads);
    if (end == LifeEnd::kLyingSyncs) RepairInAnotherProcess(user);
    Look(user, will);
    if (HasFailure()) std::printf("the last life said:\n%s", will.log.c_str());
    const ProcessSample closed = SampleProcess();
    closed_memory_.Add(closed.anonymous_bytes);
    closed_descriptors_.Add(closed.descriptors);
    closed_threads_.Add(closed.threads);
  }

  // RocksDB may end the process over what a medium that lies has left of its files, once: the next
  // start sets the database aside and makes a new one.
  void RepairInAnotherProcess(LibraryUser& user) {
    const std::string key = user.rig->options().disk_key == nullptr ? "plain" : "sealed";
    CrashOutcome outcome;
    for (int start = 0; start < 2; ++start) {
      outcome = RunCrashProcess({"--repair", user.rig->folder(), key}, nullptr);
      if (outcome.signal != SIGABRT) break;
      ++aborts_;
    }
    EXPECT_EQ(outcome.exit_code, 0) << "signal " << outcome.signal;
    findings_ += outcome.lines.size();
    user.sessions.clear();
  }

  void Look(LibraryUser& user, LifeWill& will) {
    const DiskTierOptions options = user.rig->disk_options();
    // What was evicted may be back. It must not push anything out before it is looked for.
    user.rig->options().durable_budget_bytes = 1ull << 30;
    std::vector<ParkSummary> summaries;
    if (will.damaged) {
      user.rig->Open();
      user.rig->Close();
    }
    {
      auto opened = OpenDiskTier(options);
      ASSERT_TRUE(opened.ok()) << opened.status();
      EXPECT_EQ((*opened)->usage().state, "up");
      summaries = Summaries(**opened);
      ExpectWholeOrAbsent(**opened, summaries);
      EXPECT_LE((*opened)->usage().physical_bytes, kDiskBudgetBytes);
      EXPECT_LE(BlockBytesBelow(options.directory), kDiskBudgetBytes);
    }
    parks_checked_ += summaries.size();
    ExpectNoFileWithoutOwner(options);
    ExpectCatalogueEqualsScan(options, options.directory + ".scan", summaries);
    const std::uint64_t files = FilesBelow(options.directory);
    // Two segments at most for each: the park, and the conversation's name and pin.
    EXPECT_LE(files, 64 + 2 * summaries.size()) << summaries.size() << " parks";
    files_.Add(files);
    user.rig->Open();
    if (will.binding) ExpectWill(user, will);
    std::erase_if(user.sessions, [&user](const auto& session) {
      return !user.rig->cache().FindSession(session.first).ok();
    });
    user.rig->Close();
    user.rig->sink().Reset();
    user.rig->options().durable_budget_bytes = kDiskBudgetBytes;
  }

  void ExpectWill(LibraryUser& user, const LifeWill& will) {
    ConversationCache& cache = user.rig->cache();
    for (const auto& [id, tokens] : will.durable) {
      const std::optional<ConversationInfo> found = cache.Get(id);
      EXPECT_TRUE(found.has_value() && found->durable_tokens >= tokens)
          << ToHex(id) << " had " << tokens << " durable tokens and has "
          << (found.has_value() ? std::to_string(found->durable_tokens) : "gone");
      ++durable_checked_;
    }
    for (const ConversationId& id : will.forgotten) {
      EXPECT_FALSE(cache.Get(id).has_value()) << ToHex(id) << " was forgotten and is back";
      ++forgotten_checked_;
    }
    for (const auto& [name, tokens] : will.sessions) {
      const absl::StatusOr<SavedSession> found = cache.FindSession(name);
      EXPECT_TRUE(found.ok() && found->tokens == tokens) << name << ": " << found.status();
      ++sessions_checked_;
    }
  }

  void Report() {
    SoakReport report("library_soak");
    report.Add("seed", static_cast<double>(seed_));
    report.Add("lives", lives_);
    const char* ends[] = {"closed", "killed", "power_cuts", "power_cuts_after_lies"};
    for (int i = 0; i < kLifeEnds; ++i) report.Add(ends[i], totals_.ends[i]);
    report.Add("lookups", totals_.lookups);
    report.Add("prompt_tokens", totals_.prompt_tokens);
    for (int i = 0; i < kSources; ++i) {
      const Source source = static_cast<Source>(i);
      if (source == Source::kRemote) continue;
      report.Add("reused_from_" + std::string(SourceName(source)), totals_.reused_tokens[i]);
    }
    report.Add("restores", totals_.restores);
    report.Add("parks", totals_.parks);
    report.Add("skipped_parks", totals_.skipped_parks);
    report.Add("evictions", totals_.evictions);
    report.Add("file_faults", totals_.faults_hit);
    report.Add("tier_errors", totals_.tier_errors);
    report.Add("damages_found", totals_.corrupt);
    report.Add("damages_repaired", findings_);
    report.Add("aborts_in_lied_database", aborts_);
    report.Add("sessions_saved", totals_.sessions_saved);
    report.Add("parks_checked", parks_checked_);
    report.Add("durable_checked", durable_checked_);
    report.Add("forgotten_checked", forgotten_checked_);
    report.Add("sessions_checked", sessions_checked_);
    report.Add("failures", HasFailure() ? 1 : 0);
    report.Add("anonymous_bytes_closed", closed_memory_);
    report.Add("anonymous_bytes_open", open_memory_);
    report.Add("descriptors_closed", closed_descriptors_);
    report.Add("descriptors_open", open_descriptors_);
    report.Add("threads_closed", closed_threads_);
    report.Add("threads_open", open_threads_);
    report.Add("files", files_);
    EXPECT_TRUE(report.Tell()) << "PARKADE_SOAK_REPORT can't be written to";
  }

  std::uint64_t seed_ = 0;
  std::mt19937_64 random_;
  std::vector<LibraryUser> users_;
  LifeTotals totals_;
  std::uint64_t lives_ = 0, aborts_ = 0, findings_ = 0;
  std::uint64_t parks_checked_ = 0, durable_checked_ = 0, forgotten_checked_ = 0,
                sessions_checked_ = 0;
  Series open_memory_, closed_memory_, files_;
  Series open_descriptors_, closed_descriptors_, open_threads_, closed_threads_;
};

TEST_F(LibrarySoak, MixedTraffic) {
  const absl::Time end = absl::Now() + SoakTime();
  while (absl::Now() < end && !HasFailure()) {
    for (LibraryUser& user : users_) {
      if (!HasFailure()) Live(user);
    }
  }
  Report();
  if (HasFailure()) return;
  EXPECT_LE(closed_memory_.late_max(), closed_memory_.early_max() + kWanderBytes);
  EXPECT_LE(open_memory_.late_max(), open_memory_.early_max() + kWanderBytes);
  EXPECT_EQ(closed_descriptors_.late_max(), closed_descriptors_.early_max());
  EXPECT_LE(closed_threads_.late_max(), closed_threads_.early_max());
  // Nothing of this was idle.
  for (const std::uint64_t count : totals_.ends) EXPECT_GT(count, 0u);
  for (const std::uint64_t count :
       {totals_.reused_tokens[1], totals_.reused_tokens[2], totals_.evictions, totals_.faults_hit,
        totals_.corrupt, durable_checked_, forgotten_checked_, sessions_checked_}) {
    EXPECT_GT(count, 0u);
  }
  for (LibraryUser& user : users_) {
    user.rig->Open();
    user.rig->ExpectNothingLeaks();
    user.rig->Close();
  }
}

int Repair(const std::string& directory, bool sealed) {
  DiskTierOptions options;
  options.directory = directory;
  options.budget_bytes = kDiskBudgetBytes;
  options.min_free_bytes = 0;
  if (sealed) options.key = SoakKey();
  auto opened = OpenDiskTier(options);
  if (!opened.ok()) return 2;
  opened->reset();
  const auto report = VerifyDiskTier(directory, true, nullptr, options.key);
  if (!report.ok()) return 3;
  for (const std::string& finding : report->findings) std::printf("%s\n", finding.c_str());
  return 0;
}

}  // namespace
}  // namespace parkade::test

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--repair") == 0) {
    return parkade::test::Repair(argv[2], std::strcmp(argv[3], "sealed") == 0);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
