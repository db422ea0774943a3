#include "tests/soak/library_life.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "tests/model/random_prompt.h"

namespace parkade::test {
namespace {

constexpr std::size_t kTexts = 60;
constexpr std::uint32_t kSessions = 4;

FileFault Fails(FileCall call, int error, const char* path, std::uint64_t times) {
  FileFault fault;
  fault.call = call;
  fault.error = error;
  fault.path = path;
  fault.times = times;
  return fault;
}

FileFault Does(FileCall call, FileFault::Kind kind, const char* path, std::uint64_t times) {
  FileFault fault;
  fault.call = call;
  fault.kind = kind;
  fault.path = path;
  fault.times = times;
  fault.delay = absl::Milliseconds(2);
  return fault;
}

// What files do, one of them at a time. Reads of the database's own files go well: damage there is
// what lying syncs leave.
std::vector<FileFault> FileFaults() {
  using Kind = FileFault::Kind;
  std::vector<FileFault> faults = {
      Fails(FileCall::kRead, EIO, "/segments/", 2),
      Does(FileCall::kRead, Kind::kFlip, "/segments/", 2),
      Does(FileCall::kRead, Kind::kShort, "", 50),
      Does(FileCall::kWrite, Kind::kShort, "", 50),
      Does(FileCall::kRead, Kind::kDelay, "/segments/", 30),
      Does(FileCall::kSyncData, Kind::kDelay, "", 30),
      Fails(FileCall::kOpenToRead, EMFILE, "/segments/", 2),
      Fails(FileCall::kOpenToWrite, EMFILE, "/temporary/", 2),
      Fails(FileCall::kAllocate, ENOSPC, "/temporary/", 3),
      Fails(FileCall::kUnlink, EIO, "/segments/", 3),
  };
  for (const int error : {EIO, ENOSPC}) {
    faults.push_back(Fails(FileCall::kWrite, error, "/temporary/", 3));
    faults.push_back(Fails(FileCall::kWrite, error, "/catalogue/", 1));
    faults.push_back(Fails(FileCall::kSyncData, error, "/temporary/", 3));
    faults.push_back(Fails(FileCall::kSyncData, error, "/catalogue/", 1));
    faults.push_back(Fails(FileCall::kRename, error, "/segments/", 3));
    faults.push_back(Fails(FileCall::kSyncFolder, error, "/segments", 3));
  }
  return faults;
}

// Looks at everything, once for every step of the life.
class Onlooker {
 public:
  explicit Onlooker(ConversationCache* cache) : thread_([this, cache] { Run(cache); }) {}
  ~Onlooker() {
    Tell(true);
    thread_.join();
  }
  void Next() { Tell(false); }

 private:
  void Tell(bool end) {
    absl::MutexLock lock(&mu_);
    ++step_;
    ended_ = ended_ || end;
  }
  void Run(ConversationCache* cache) {
    for (std::uint64_t seen = 0; Wait(&seen);) {
      ConversationId after;
      for (auto list = cache->List(10, after); !list.empty(); list = cache->List(10, after)) {
        for (const ConversationInfo& info : list) cache->Get(info.id);
        after = list.back().id;
      }
      for (const LookupRecord& record : cache->Lookups(20)) EXPECT_EQ(CheckSums(record), "");
      cache->Tiers();
      cache->Queue();
    }
  }
  bool Wait(std::uint64_t* seen) {
    absl::MutexLock lock(&mu_);
    auto later = [this, seen]()
                     ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ended_ || step_ > *seen; };
    mu_.Await(absl::Condition(&later));
    *seen = step_;
    return !ended_;
  }

  absl::Mutex mu_;
  std::uint64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace

LibraryLife::LibraryLife(LibraryUser* user, LifeEnd end, std::uint64_t seed, LifeTotals* totals)
    : user_(*user), end_(end), random_(seed), totals_(*totals) {}

std::uint32_t LibraryLife::Below(std::uint32_t count) {
  return std::uniform_int_distribution<std::uint32_t>(0, count - 1)(random_);
}

void LibraryLife::Open() {
  Rig& rig = *user_.rig;
  if (end_ == LifeEnd::kPowerCut || end_ == LifeEnd::kLyingSyncs) {
    PowerCut::Options options;
    options.attic = rig.folder() + ".attic";
    std::filesystem::remove_all(options.attic);
    std::filesystem::create_directories(options.attic);
    options.seed = random_();
    options.lies = end_ == LifeEnd::kLyingSyncs ? 20 : 0;
    options.gone = [this] { cut_ = true; };
    power_ = std::make_unique<PowerCut>(std::move(options));
    rig.options().disk_files = power_.get();
  } else {
    faulty_ = std::make_unique<FaultyFiles>(true);
    rig.options().disk_files = faulty_.get();
  }
  rig.Open();
  // For a person who looks for a cause: what the disk was asked, in this order.
  rig.durable().SetObserver([this](const CallSubject& call) {
    if (call.keys.empty() || (call.call != TierCall::kStore && call.call != TierCall::kRemove &&
                              call.call != TierCall::kForget)) {
      return;
    }
    std::string line = call.call == TierCall::kStore ? "store" : "remove";
    if (call.call == TierCall::kForget) line = "forget";
    for (const ParkKey& key : call.keys) {
      line += " " + ToHex(key.conversation).substr(0, 8) + "/" + std::to_string(key.park);
    }
    Log(line);
  });
  if (power_ != nullptr) power_->CutIn(1 + Below(3000));
}

LifeWill LibraryLife::Run(ProcessSample* held) {
  will_.binding = end_ != LifeEnd::kLyingSyncs;
  will_.sessions = user_.sessions;
  Open();
  {
    Onlooker onlooker(&user_.rig->cache());
    const std::uint32_t steps = 20 + Below(180);
    for (std::uint32_t step = 0; step < steps && !Cut() && !::testing::Test::HasFailure(); ++step) {
      Step();
      NoteWill();
      onlooker.Next();
    }
    *held = SampleProcess();
  }
  End();
  return std::move(will_);
}

void LibraryLife::Step() {
  const std::uint32_t what = Below(100);
  Log("step " + std::to_string(what) + ", " + user_.rig->durable().usage().state);
  if (what < 62) return Turn();
  if (what < 70) return Abandon();
  if (what < 74) return SaveSession();
  if (what < 77) return FindSession();
  if (what < 80) return Forget();
  if (what < 83) return Pin();
  if (what < 86) return ChangeBudgets();
  if (what < 88) return user_.rig->cache().Drain(Below(20));
  if (what < 93) return user_.rig->Settle();
  ChangeFaults();
}

void LibraryLife::Turn() {
  FakeEngine& engine = *user_.engines[Below(static_cast<std::uint32_t>(user_.engines.size()))];
  const std::vector<Token> prompt = RandomPrompt(random_, user_.texts);
  const auto ends =
      std::mismatch(engine.tokens().begin(), engine.tokens().end(), prompt.begin(), prompt.end());
  auto held = static_cast<std::uint32_t>(ends.first - engine.tokens().begin());
  held = std::min(held, static_cast<std::uint32_t>(prompt.size()) - 1);
  user_.rig->Run(engine, prompt, Chance(30) ? 0 : held);
  if (Chance(10)) return;
  user_.rig->ParkOnce(engine, Chance(80));
  user_.texts.push_back(engine.tokens());
  if (user_.texts.size() > kTexts) user_.texts.erase(user_.texts.begin());
}

void LibraryLife::Abandon() {
  Rig& rig = *user_.rig;
  FakeEngine& engine = *user_.engines.front();
  std::unique_ptr<Restore> first =
      rig.cache().Lookup(rig.Request(RandomPrompt(random_, user_.texts)));
  std::unique_ptr<Restore> second =
      rig.cache().Lookup(rig.Request(RandomPrompt(random_, user_.texts)));
  if (Chance(30)) return;
  first->WaitReady(30000);
  if (Chance(30) || !first->WillRestore()) return;
  first->Step(engine, 0);
  engine.Clear();
}

void LibraryLife::SaveSession() {
  if (faults_on_) return;  // it would wait
  FakeEngine& engine = *user_.engines.back();
  if (engine.tokens().size() < kPageTokens) return;
  const ParkOutcome outcome = user_.rig->ParkOnce(engine);
  if (outcome.conversation.IsZero() || !outcome.complete) return;
  const std::string name = "session " + std::to_string(Below(kSessions));
  // Until it is known which of the two there is.
  will_.sessions.erase(name);
  const absl::StatusOr<SavedSession> saved = user_.rig->cache().SaveSession(
      outcome.conversation, outcome.captured_tokens, name, /*deadline_ms=*/5000);
  const std::vector<Token> tokens(engine.tokens().begin(),
                                  engine.tokens().begin() + outcome.captured_tokens);
  if (!saved.ok() || !saved->durable || Cut()) {
    user_.sessions.erase(name);
    return;
  }
  ++totals_.sessions_saved;
  will_.sessions[name] = user_.sessions[name] = tokens;
}

void LibraryLife::FindSession() {
  const std::string name = "session " + std::to_string(Below(kSessions));
  const auto known = user_.sessions.find(name);
  const absl::StatusOr<SavedSession> found = user_.rig->cache().FindSession(name);
  if (known == user_.sessions.end() || !found.ok()) return;
  EXPECT_EQ(found->tokens, known->second);
}

std::optional<ConversationInfo> LibraryLife::AnyConversation() {
  const std::vector<ConversationInfo> list = user_.rig->cache().List(10000, ConversationId());
  if (list.empty()) return std::nullopt;
  return list[Below(static_cast<std::uint32_t>(list.size()))];
}

void LibraryLife::Forget() {
  const std::optional<ConversationInfo> some = AnyConversation();
  if (!some.has_value()) return;
  user_.sessions.erase(some->name);
  will_.sessions.erase(some->name);
  will_.durable.erase(some->id);
  const absl::StatusOr<std::uint32_t> kept = user_.rig->cache().Forget(some->id);
  EXPECT_FALSE(user_.rig->cache().Get(some->id).has_value());
  if (!kept.ok() || had_faults_ || Cut()) return;
  will_.forgotten.insert(some->id);
  ++totals_.forgotten;
}

void LibraryLife::Pin() {
  const std::optional<ConversationInfo> some = AnyConversation();
  if (!some.has_value() || !some->name.empty()) return;
  // More often off than on: pins hold room.
  (void)user_.rig->cache().Pin(some->id, !some->pinned && Chance(40), std::nullopt);
}

void LibraryLife::ChangeBudgets() {
  Rig& rig = *user_.rig;
  const std::uint64_t ram = rig.options().cache.ram_budget_bytes;
  const std::uint64_t disk = rig.options().durable_budget_bytes;
  (void)rig.cache().SetBudget(TierKind::kRam, Chance(50) ? 0 : ram);
  EXPECT_TRUE(rig.cache().SetBudget(TierKind::kDisk, disk / 4 * (2 + Below(3))).ok());
  if (Chance(30)) return;
  (void)rig.cache().SetBudget(TierKind::kRam, ram);
  EXPECT_TRUE(rig.cache().SetBudget(TierKind::kDisk, disk).ok());
}

void LibraryLife::ChangeFaults() {
  if (Chance(30)) {
    Fault flip;
    flip.kind = Fault::Kind::kFlip;
    flip.times = 1;
    flip.at = random_();
    user_.rig->ram().ClearFaults();
    user_.rig->ram().AddFault(flip);
    return;
  }
  if (faulty_ == nullptr) return;
  faulty_->ClearFaults();
  faulty_->SetDisk(user_.rig->folder(), 1ull << 40, 0);
  faults_on_ = !faults_on_ && Chance(80);
  Log("no faults");
  if (!faults_on_) return;
  had_faults_ = true;
  const std::vector<FileFault> faults = FileFaults();
  const std::uint32_t which = Below(static_cast<std::uint32_t>(faults.size()) + 3);
  if (which < faults.size()) {
    FileFault fault = faults[which];
    fault.skip = Below(20);
    fault.at = random_();
    faulty_->AddFault(fault);
    bad_reads_ = bad_reads_ ||
                 (fault.call == FileCall::kRead &&
                  (fault.kind == FileFault::Kind::kFail || fault.kind == FileFault::Kind::kFlip));
    Log("fault of call " + std::to_string(static_cast<int>(fault.call)) + ", kind " +
        std::to_string(static_cast<int>(fault.kind)) + ", errno " + std::to_string(fault.error) +
        ", " + fault.path);
  } else if (which == faults.size()) {
    faulty_->SetDisk(user_.rig->folder(), 0, 0);  // others have it all
    Log("a full disk");
  } else {
    faulty_->FailChanges(which == faults.size() + 1 ? EROFS : ENOSPC);
    Log("no changes");
  }
}

void LibraryLife::Log(const std::string& line) {
  absl::MutexLock lock(&log_mutex_);
  log_ += line + "\n";
}

std::uint64_t LibraryLife::DiskEvictions() const {
  std::uint64_t count = 0;
  user_.rig->sink().WaitUntil([&count](const RecordedEvents& events) {
    count = 0;
    for (const auto& eviction : events.evictions) count += eviction.tier == TierKind::kDisk ? 1 : 0;
    return true;
  });
  return count;
}

// What a listing says is durable has to be there, unless it is evicted from now on.
void LibraryLife::NoteWill() {
  const std::uint64_t evictions = DiskEvictions();
  std::map<ConversationId, std::uint32_t> durable;
  for (const ConversationInfo& info : user_.rig->cache().List(10000, ConversationId())) {
    // A fork that has no durable park of its own is no more than what its parent has.
    if (info.durable_tokens > info.forked_at) durable[info.id] = info.durable_tokens;
  }
  if (Cut()) return;  // it may have gone while this was asked
  will_.durable = std::move(durable);
  evictions_at_will_ = evictions;
}

void LibraryLife::End() {
  Rig& rig = *user_.rig;
  rig.ram().ClearFaults();
  if (power_ != nullptr) {
    power_->Cut();
  } else if (end_ == LifeEnd::kKilled) {
    if (Chance(50)) faulty_->ClearFaults();
    faulty_->FailChanges(EIO);
  } else {
    faulty_->ClearFaults();
    faulty_->SetDisk(rig.folder(), 1ull << 40, 0);
  }
  rig.Close();
  CountEvents();
  if (DiskEvictions() != evictions_at_will_) will_.durable.clear();
  // Bytes that could not be read were given up, and what stood on them.
  will_.damaged = corrupt_ || bad_reads_;
  if (corrupt_ || bad_reads_) will_.sessions.clear();
  // Nobody hears of it when a catalogue is rebuilt meanwhile.
  if (bad_reads_) will_.durable.clear();
  rig.sink().Reset();
  rig.options().disk_files = nullptr;
  if (faulty_ != nullptr) totals_.faults_hit += faulty_->faults_hit();
  faulty_.reset();
  power_.reset();
  std::filesystem::remove_all(rig.folder() + ".attic");
  ++totals_.ends[static_cast<std::size_t>(end_)];
}

void LibraryLife::CountEvents() {
  const RecordedEvents events = user_.rig->sink().events();
  for (const LookupRecord& record : events.lookups) {
    ++totals_.lookups;
    totals_.prompt_tokens += record.prompt_tokens;
    for (std::size_t i = 0; i < kSources; ++i) totals_.reused_tokens[i] += record.hit_tokens[i];
  }
  totals_.restores += events.restores.size();
  totals_.parks += events.parks.size();
  totals_.evictions += events.evictions.size();
  totals_.corrupt += events.corrupt.size();
  corrupt_ = !events.corrupt.empty();
  totals_.tier_errors += events.errors.size();
  totals_.skipped_parks += events.skips.size();
  for (const auto& line : events.log) Log(line.text);
  for (const auto& [tier, what] : events.errors) Log(what);
  absl::MutexLock lock(&log_mutex_);
  will_.log = std::move(log_);
}

}  // namespace parkade::test
