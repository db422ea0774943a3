// Sixteen threads over one cache with a slow disk: six serve engines of their own, two give up what
// they began, the others forget, pin, name, save, change budgets, drain, prefetch and list. Rows
// say what they are (hash of tokens, layer and position), so every restore is exact or a miss.
// In the end everything is back at zero, and what the tiers hold is what the catalogue says.
// PARKADE_SEED repeats a run as far as threads can, PARKADE_STEPS makes it longer.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/model/live_operations.h"
#include "tests/support/environment.h"
#include "tests/support/faulty_files.h"
#include "tests/unit/manager_rig.h"
#include "tiers/disk/disk_tier.h"
#include "tiers/disk/space.h"

namespace parkade::test {
namespace {

constexpr int kServing = 6;
constexpr int kGivingUp = 2;
constexpr int kManaging = 8;
constexpr std::int64_t kPatienceMs = 120000;  // longer than anything may take: a deadlock
constexpr int kLeastPasses = 12;
constexpr std::size_t kTextsKept = 24;
constexpr std::size_t kLongestText = 1500;

struct Storm {
  const char* name;
  RigModel (*model)();
  bool ram;
  bool disk;
  bool sealed;
};

void PrintTo(const Storm& setup, std::ostream* out) { *out << setup.name; }

// Texts that were parked: some to go on from, all to compare with.
class Texts {
 public:
  explicit Texts(std::vector<Token> first) : texts_{std::move(first)} {}

  std::vector<Token> Any(std::mt19937_64& random) const {
    absl::MutexLock lock(&mu_);
    return texts_[random() % texts_.size()];
  }
  std::vector<std::vector<Token>> All() const {
    absl::MutexLock lock(&mu_);
    return texts_;
  }
  void Add(std::vector<Token> text) {
    absl::MutexLock lock(&mu_);
    all_.insert(text);
    if (text.size() < kLongestText) texts_.push_back(std::move(text));
    // The first one stays, so that most have it in common.
    if (texts_.size() > kTextsKept) texts_.erase(texts_.begin() + 1);
  }

  struct Parked {
    ConversationId conversation;
    std::vector<Token> tokens;
  };
  void SetParked(Parked parked) {
    absl::MutexLock lock(&mu_);
    parked_ = std::move(parked);
  }
  Parked LastParked() const {
    absl::MutexLock lock(&mu_);
    return parked_;
  }
  // Whether a text that was parked begins so.
  bool WasParked(const std::vector<Token>& tokens) const {
    absl::MutexLock lock(&mu_);
    const auto found = all_.lower_bound(tokens);
    return found != all_.end() && found->size() >= tokens.size() &&
           std::equal(tokens.begin(), tokens.end(), found->begin());
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<std::vector<Token>> texts_ ABSL_GUARDED_BY(mu_);
  Parked parked_ ABSL_GUARDED_BY(mu_);
  std::set<std::vector<Token>> all_ ABSL_GUARDED_BY(mu_);
};

// The serving threads' turns, after which the others go: one pass for a turn, none of them faster.
class Turns {
 public:
  void Next() {
    absl::MutexLock lock(&mu_);
    ++turn_;
  }
  void End() {
    absl::MutexLock lock(&mu_);
    ended_ = true;
  }
  // Waits for a turn later than *seen; false at the end.
  bool Wait(std::uint64_t* seen) {
    absl::MutexLock lock(&mu_);
    auto later = [this, seen]()
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ended_ || turn_ > *seen; };
    mu_.Await(absl::Condition(&later));
    *seen = turn_;
    return !ended_;
  }

 private:
  absl::Mutex mu_;
  std::uint64_t turn_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

bool IsOneOf(const absl::Status& status, std::initializer_list<absl::StatusCode> codes) {
  return status.ok() || std::find(codes.begin(), codes.end(), status.code()) != codes.end();
}

FileFault Delay(FileCall call, absl::Duration delay) {
  FileFault fault;
  fault.call = call;
  fault.kind = FileFault::Kind::kDelay;
  fault.delay = delay;
  return fault;
}

class CacheThreads : public ::testing::TestWithParam<Storm> {
 protected:
  CacheThreads()
      : seed_(FromEnvironment("PARKADE_SEED", std::random_device()())),
        files_(true),
        rig_(Options(&files_)),
        texts_(Tokens(seed_, 300)) {
    std::printf("PARKADE_SEED=%llu\n", static_cast<unsigned long long>(seed_));
    // A device that has to be waited for: other threads come in between every two of its steps.
    files_.AddFault(Delay(FileCall::kRead, absl::Microseconds(300)));
    files_.AddFault(Delay(FileCall::kOpenToRead, absl::Microseconds(100)));
    files_.AddFault(Delay(FileCall::kWrite, absl::Microseconds(200)));
    files_.AddFault(Delay(FileCall::kSyncData, absl::Microseconds(500)));
    files_.AddFault(Delay(FileCall::kRename, absl::Microseconds(200)));
    files_.AddFault(Delay(FileCall::kUnlink, absl::Microseconds(200)));
  }

  static RigOptions Options(disk::FileDoor* files) {
    const Storm& setup = GetParam();
    RigOptions options(setup.model());
    options.ram = setup.ram;
    options.disk = setup.disk;
    options.disk_files = files;
    if (setup.sealed) {
      options.disk_key = *SealKey::Parse(std::string(kSealKeyBytes, 'k'));
      options.cache.page_hash_key = "a key";
    }
    if (!setup.ram) options.cache.ram_budget_bytes = 0;
    options.cache.reader_threads = 3;
    options.cache.capture_buffer_bytes = 2u << 20;
    options.cache.read_buffer_bytes = 1u << 20;
    return options;
  }

  ConversationCache& cache() { return rig_.cache(); }

  // ---- engines ----

  LookupRequest Request(const std::vector<Token>& prompt) {
    LookupRequest request = rig_.Request(prompt);
    live_.Mark(&request);
    return request;
  }

  // Steps to the end; what was restored must be what the prompt's rows are.
  std::uint32_t RestoreAll(Restore& restore, FakeEngine& engine, const std::vector<Token>& prompt) {
    engine.Clear();
    EXPECT_TRUE(restore.WaitReady(kPatienceMs)) << "no plan comes";
    if (!restore.WillRestore()) return 0;
    Restore::State state = restore.state();
    while (state == Restore::State::kReading) {
      const bool ready = restore.WaitReady(kPatienceMs);
      EXPECT_TRUE(ready) << "no bytes come";
      if (!ready) return 0;
      state = restore.Step(engine, 200);
    }
    const std::uint32_t restored = restore.restored_tokens();
    EXPECT_LT(restored, prompt.size());
    engine.SetTokens({prompt.begin(), prompt.begin() + restored});
    EXPECT_EQ(engine.Verify(), absl::OkStatus()) << restored << " of " << prompt.size();
    if (restored > 0) ++exact_;
    return restored;
  }

  std::vector<Token> MakePrompt(std::mt19937_64& random) {
    const std::vector<Token> text = texts_.Any(random);
    const std::size_t keep = random() % 3 == 0 ? random() % text.size() : text.size();
    return Fork(text, keep, random(), 1 + random() % 150);
  }

  void Serve(std::mt19937_64& random, FakeEngine& engine) {
    const std::vector<Token> prompt = MakePrompt(random);
    std::unique_ptr<Restore> restore = cache().Lookup(Request(prompt));
    const std::uint32_t reused = RestoreAll(*restore, engine, prompt);
    engine.Append(absl::MakeConstSpan(prompt).subspan(reused));
    cache().FinishLookup(std::move(restore), reused);
    texts_.Add(prompt);
    const bool boundary = random() % 4 != 0;
    const ParkOutcome parked = rig_.ParkOnce(engine, boundary);
    EXPECT_LE(parked.captured_tokens, prompt.size());
    if (boundary && parked.captured_tokens == prompt.size() && !parked.conversation.IsZero()) {
      texts_.SetParked({parked.conversation, prompt});
    }
  }

  // Lets go of a lookup wherever it is.
  void GiveUp(std::mt19937_64& random, FakeEngine& engine) {
    const std::vector<Token> prompt = MakePrompt(random);
    std::unique_ptr<Restore> restore = cache().Lookup(Request(prompt));
    const std::uint64_t when = random() % 5;
    if (when >= 1) restore->WaitReady(when == 1 ? 0 : 1);
    for (std::uint64_t step = 2; step <= when && restore->WillRestore(); ++step) {
      if (restore->Step(engine, 0) != Restore::State::kReading) break;
    }
    engine.Clear();
    if (random() % 2 == 0) cache().FinishLookup(std::move(restore), 0);
  }

  // ---- people ----

  std::optional<ConversationInfo> SomeConversation(std::mt19937_64& random) {
    const std::vector<ConversationInfo> list = cache().List(1000, ConversationId());
    if (list.empty()) return std::nullopt;
    return list[random() % list.size()];
  }

  void ForgetOne(std::mt19937_64& random) {
    const std::optional<ConversationInfo> some = SomeConversation(random);
    if (!some.has_value() || random() % 4 != 0) return;
    const absl::Status forgotten = cache().Forget(some->id).status();
    EXPECT_TRUE(IsOneOf(forgotten, {absl::StatusCode::kNotFound})) << forgotten;
    EXPECT_FALSE(cache().Get(some->id).has_value());
  }

  void PinOne(std::mt19937_64& random) {
    const std::optional<ConversationInfo> some = SomeConversation(random);
    if (!some.has_value()) return;
    std::optional<std::string> name;
    if (random() % 2 == 0) name = random() % 2 == 0 ? "" : "p" + std::to_string(random() % 4);
    const absl::Status pinned = cache().Pin(some->id, random() % 6 == 0, name);
    EXPECT_TRUE(IsOneOf(pinned, {absl::StatusCode::kNotFound, absl::StatusCode::kAlreadyExists,
                                 absl::StatusCode::kResourceExhausted}))
        << pinned;
  }

  void SaveOne(std::mt19937_64& random) {
    const Texts::Parked parked = texts_.LastParked();
    if (parked.tokens.empty()) return;
    const std::string name = "s" + std::to_string(random() % 3);
    const absl::StatusOr<SavedSession> saved = cache().SaveSession(
        parked.conversation, static_cast<std::uint32_t>(parked.tokens.size()), name, 500);
    EXPECT_TRUE(
        IsOneOf(saved.status(), {absl::StatusCode::kNotFound, absl::StatusCode::kResourceExhausted,
                                 absl::StatusCode::kUnavailable}))
        << saved.status();
  }

  void RestoreSession(std::mt19937_64& random, FakeEngine& engine) {
    const std::string name = "s" + std::to_string(random() % 3);
    const absl::StatusOr<SavedSession> session = cache().FindSession(name);
    EXPECT_TRUE(IsOneOf(session.status(), {absl::StatusCode::kNotFound})) << session.status();
    if (!session.ok()) return;
    EXPECT_TRUE(texts_.WasParked(session->tokens)) << "tokens of nobody";
    const std::vector<Token> prompt = Fork(session->tokens, session->tokens.size(), 1, 1);
    LookupRequest request = Request(prompt);
    request.session = session->conversation;
    std::unique_ptr<Restore> restore = cache().Lookup(std::move(request));
    const std::uint32_t restored = RestoreAll(*restore, engine, prompt);
    EXPECT_EQ(cache().FinishSession(std::move(restore)).tokens, restored);
  }

  void ChangeBudgets(std::mt19937_64& random) {
    for (const TierInfo& tier : cache().Tiers()) {
      const bool ram = tier.kind == TierKind::kRam;
      const std::uint64_t held = ram ? tier.reserved_bytes : disk::kHeadroomBytes;
      // Little or nothing for a moment, then some; nothing is stored in between.
      const std::uint64_t little = random() % 4 == 0 ? 0 : held + random() % (2u << 20);
      if (random() % 16 == 0) {
        EXPECT_EQ(cache().SetBudget(tier.kind, little), absl::OkStatus());
      }
      const bool much = random() % 4 == 0;
      const std::uint64_t more = tier.usage.used_bytes + random() % (8u << 20);
      EXPECT_EQ(cache().SetBudget(tier.kind, much ? 1u << 30 : held + more), absl::OkStatus());
    }
  }

  void Look(std::mt19937_64& random) {
    ConversationId after;
    const std::uint32_t page = 1 + random() % 20;
    while (true) {
      const std::vector<ConversationInfo> list = cache().List(page, after);
      for (const ConversationInfo& info : list) {
        EXPECT_LT(after, info.id);
        after = info.id;
      }
      if (list.size() < page) break;
    }
    if (const std::optional<ConversationInfo> some = SomeConversation(random)) {
      const std::optional<ConversationInfo> details = cache().Get(some->id);
      std::optional<std::uint32_t> end;
      for (std::size_t i = 0; details.has_value() && i < details->parks.size(); ++i) {
        const TokenRange& tokens = details->parks[i].tokens;
        if (tokens.empty()) continue;
        EXPECT_EQ(tokens.begin, end.value_or(tokens.begin)) << "a gap";
        end = tokens.end;
      }
    }
    for (const LookupRecord& record : cache().Lookups(20)) EXPECT_EQ(CheckSums(record), "");
    cache().Queue();
  }

  void Manage(int number, std::mt19937_64& random, FakeEngine& engine) {
    switch (number) {
      case 0:
        return ForgetOne(random);
      case 1:
        return PinOne(random);
      case 2:
        return SaveOne(random);
      case 3:
        return RestoreSession(random, engine);
      case 4:
        return ChangeBudgets(random);
      case 5:
        // Zero: what is queued is dropped.
        return cache().Drain(random() % 8 == 0 ? 0 : 1000);
      case 6:
        return cache().Prefetch(rig_.identity(), texts_.Any(random));
      default:
        return Look(random);
    }
  }

  // ---- the storm, and what it leaves ----

  // Those that wait for the disk make few passes while an engine makes many.
  bool OthersHaveWorked() const {
    return std::all_of(passes_.begin(), passes_.end(),
                       [](const std::atomic<int>& passes) { return passes >= kLeastPasses; });
  }

  void RunAll(int turns) {
    std::vector<std::thread> serving;
    std::vector<std::thread> others;
    for (int i = 0; i < kServing; ++i) {
      serving.emplace_back([this, i, turns] {
        std::mt19937_64 random(seed_ + static_cast<std::uint64_t>(i));
        const auto engine = rig_.MakeEngine(i % 2 == 0 ? std::vector<int>{1} : std::vector{1, 1});
        for (int turn = 0; (turn < turns || !OthersHaveWorked()) && !HasFailure(); ++turn) {
          turns_.Next();
          Serve(random, *engine);
        }
      });
    }
    for (int i = 0; i < kGivingUp + kManaging; ++i) {
      others.emplace_back([this, i] {
        std::mt19937_64 random(seed_ + 100 + static_cast<std::uint64_t>(i));
        const auto engine = rig_.MakeEngine();
        for (std::uint64_t seen = 0; turns_.Wait(&seen); ++passes_[i]) {
          i < kGivingUp ? GiveUp(random, *engine) : Manage(i - kGivingUp, random, *engine);
        }
      });
    }
    for (std::thread& thread : serving) thread.join();
    turns_.End();
    for (std::thread& thread : others) thread.join();
  }

  struct Scan {
    std::size_t parks = 0;
    std::vector<std::string> ownerless;  // attributes of conversations without a park
  };
  static Scan ScanOf(Tier& tier) {
    Scan scan;
    std::set<ConversationId> held;
    const absl::Status parks = tier.Enumerate([&](const ParkSummary& summary) {
      held.insert(summary.key.conversation);
      ++scan.parks;
    });
    EXPECT_EQ(parks, absl::OkStatus());
    const absl::Status rows = tier.EnumerateAttributes([&](const ConversationAttributes& row) {
      if (held.contains(row.conversation)) return;
      scan.ownerless.push_back("'" + row.name + (row.pinned ? "', pinned" : "', not pinned"));
    });
    EXPECT_EQ(rows, absl::OkStatus());
    return scan;
  }
  // The cache's own housekeeping may just be removing what it holds no more.
  static Scan SettledScanOf(Tier& tier, const std::function<bool(const Scan&)>& settled) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    Scan scan = ScanOf(tier);
    while (!settled(scan) && absl::Now() < deadline) scan = ScanOf(tier);
    return scan;
  }
  void ExpectAttributesHaveParks() {
    for (FaultyTier* tier : rig_.tiers()) {
      const Scan scan = SettledScanOf(*tier, [](const Scan& now) { return now.ownerless.empty(); });
      EXPECT_EQ(scan.ownerless, std::vector<std::string>{}) << TierName(tier->kind());
    }
  }

  // What the tiers hold by their own scan, park by park, is what the catalogue says.
  void ExpectTiersEqualTheCatalogue() {
    std::map<ParkKey, std::set<TierKind>> listed;
    std::set<ConversationId> seen;
    for (const ConversationInfo& one : cache().List(100000, ConversationId())) {
      seen.insert(one.id);
      const std::optional<ConversationInfo> info = cache().Get(one.id);
      ASSERT_TRUE(info.has_value());
      for (const ConversationInfo::ParkDetail& park : info->parks) {
        EXPECT_FALSE(park.tiers.empty()) << "a park in the catalogue that no tier has";
        listed[{one.id, park.park}] = {park.tiers.begin(), park.tiers.end()};
      }
    }
    // Forgotten ones of which forks need something are not listed.
    std::set<ConversationId> hidden;
    for (FaultyTier* tier : rig_.tiers()) {
      const absl::Status scanned = tier->Enumerate([&](const ParkSummary& summary) {
        if (!summary.parent.IsZero()) hidden.insert(summary.parent);
      });
      ASSERT_EQ(scanned, absl::OkStatus());
    }
    for (FaultyTier* tier : rig_.tiers()) {
      const absl::Status scanned = tier->Enumerate([&](const ParkSummary& summary) {
        const auto found = listed.find(summary.key);
        if (found == listed.end()) {
          EXPECT_FALSE(seen.contains(summary.key.conversation)) << "a park nobody knows";
          EXPECT_TRUE(hidden.contains(summary.key.conversation)) << "a park without an owner";
        } else {
          EXPECT_EQ(found->second.erase(tier->kind()), 1u);
        }
      });
      ASSERT_EQ(scanned, absl::OkStatus());
    }
    for (const auto& [key, tiers] : listed) EXPECT_TRUE(tiers.empty()) << "a tier lacks a park";
    ExpectAttributesHaveParks();
  }

  // In pages: of two that hold the same pages, parked at the same time, either may own them, and
  // go on in its own way from there.
  std::vector<std::uint32_t> MatchOfEach(const std::vector<std::vector<Token>>& texts) {
    std::vector<std::uint32_t> pages;
    for (const std::vector<Token>& text : texts) {
      pages.push_back(rig_.Look(text).matched_tokens / kPageTokens);
    }
    return pages;
  }

  // One more restore than the read buffers have room for: none of them was kept.
  void ExpectAllBuffersComeBack() {
    const auto engine = rig_.MakeEngine();
    engine->Append(Tokens(seed_ + 1000, 4096));  // 8 MiB through 1 MiB
    const ParkOutcome parked = rig_.Park(*engine);
    const std::vector<Token> prompt = Fork(engine->tokens(), 4096, 2, 5);
    const absl::StatusOr<SavedSession> saved =
        cache().SaveSession(parked.conversation, 4096, "s0", kPatienceMs);
    EXPECT_EQ(saved.status(), absl::OkStatus());
    const absl::StatusOr<SavedSession> session = cache().FindSession("s0");
    EXPECT_TRUE(session.ok() && session->tokens == engine->tokens()) << session.status();
    if (GetParam().ram && GetParam().disk) {
      // From the disk, through the pool.
      EXPECT_EQ(cache().SetBudget(TierKind::kRam, 0), absl::OkStatus());
    }
    std::unique_ptr<Restore> restore = cache().Lookup(Request(prompt));
    EXPECT_EQ(RestoreAll(*restore, *engine, prompt), 4096u);
  }

  void ExpectNothingIsLeft() {
    EXPECT_TRUE(live_.WaitForNone(absl::Seconds(60))) << live_.live() << " lookups live on";
    rig_.Settle();
    for (const ConversationInfo& info : cache().List(100000, ConversationId())) {
      if (!info.pinned) continue;
      EXPECT_EQ(cache().Pin(info.id, false, ""), absl::OkStatus());
    }
    for (const TierInfo& tier : cache().Tiers()) {
      EXPECT_EQ(cache().SetBudget(tier.kind, 0), absl::OkStatus());
      EXPECT_EQ(tier.pinned_bytes, 0u);
    }
    EXPECT_TRUE(cache().List(100000, ConversationId()).empty()) << "a pin of a restore was kept";
    EXPECT_EQ(cache().Queue().spill_queue_bytes, 0u);
    EXPECT_EQ(cache().Queue().capture_bytes, 0u);
    for (FaultyTier* tier : rig_.tiers()) {
      const Scan scan = SettledScanOf(*tier, [](const Scan& now) { return now.parks == 0; });
      EXPECT_EQ(scan.parks, 0u) << TierName(tier->kind());
    }
    ExpectAttributesHaveParks();
  }

  void ExpectNoDamage() {
    const RecordedEvents events = rig_.sink().events();
    EXPECT_TRUE(events.corrupt.empty());
    for (const auto& [tier, what] : events.errors) {
      // A budget that shrinks between the question for room and the store.
      const bool room = what.find("no room for a park") != std::string::npos ||
                        what.find("RAM budget: ") != std::string::npos;
      EXPECT_TRUE(room) << TierName(tier) << ": " << what;
    }
  }

  void ExpectCleanFolder(std::uint64_t extents_at_most) {
    const absl::StatusOr<VerifyReport> report =
        VerifyDiskTier(rig_.folder(), false, nullptr, rig_.options().disk_key);
    ASSERT_TRUE(report.ok()) << report.status();
    for (const std::string& finding : report->findings) ADD_FAILURE() << finding;
    EXPECT_EQ(report->damaged_segments + report->damaged_rows + report->orphan_files, 0u);
    EXPECT_LE(report->extents, extents_at_most);
  }

  const std::uint64_t seed_;
  LiveOperations live_;
  FaultyFiles files_;
  Rig rig_;
  Texts texts_;
  Turns turns_;
  std::atomic<int> exact_{0};
  std::array<std::atomic<int>, kGivingUp + kManaging> passes_ = {};
};

TEST_P(CacheThreads, SixteenThreadsSeeExactRowsOrAMissAndLeaveNothing) {
  static_assert(kServing + kGivingUp + kManaging == 16);
  RunAll(static_cast<int>(FromEnvironment("PARKADE_STEPS", 200)));
  ASSERT_FALSE(HasFailure());
  files_.ClearFaults();
  EXPECT_GT(exact_, 50) << "no restore met a park: this tests nothing";
  EXPECT_TRUE(live_.WaitForNone(absl::Seconds(60))) << live_.live() << " lookups live on";
  for (const TierInfo& tier : cache().Tiers()) {
    EXPECT_EQ(cache().SetBudget(tier.kind, 1ull << 30), absl::OkStatus());
  }
  rig_.Settle();
  ExpectTiersEqualTheCatalogue();
  if (GetParam().disk) {
    // One made from the disk's rows finds all that the index that grew under way finds. That one
    // may miss pages which two conversations hold each by itself, after the one that it names has
    // gone.
    if (GetParam().ram) {
      EXPECT_EQ(cache().SetBudget(TierKind::kRam, 0), absl::OkStatus());
    }
    rig_.Settle();
    const std::vector<std::vector<Token>> texts = texts_.All();
    const std::vector<std::uint32_t> before = MatchOfEach(texts);
    rig_.Close();
    ExpectCleanFolder(UINT64_MAX);
    rig_.Open();
    const std::vector<std::uint32_t> after = MatchOfEach(texts);
    std::size_t missed = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_GE(after[i], before[i]) << i;
      missed += after[i] > before[i] ? 1 : 0;
    }
    EXPECT_LE(missed, texts.size() / 4);
    ExpectTiersEqualTheCatalogue();
  }
  ExpectAllBuffersComeBack();
  ExpectNothingIsLeft();
  ExpectNoDamage();
  if (!GetParam().disk) return;
  rig_.Close();
  ExpectCleanFolder(0);
}

INSTANTIATE_TEST_SUITE_P(All, CacheThreads,
                         ::testing::Values(Storm{"Ram", FullModel, true, false, false},
                                           Storm{"RamDisk", MixedModel, true, true, false},
                                           Storm{"Disk", FullModel, false, true, false},
                                           Storm{"RamSealedDisk", WindowModel, true, true, true}),
                         [](const ::testing::TestParamInfo<Storm>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace parkade::test
