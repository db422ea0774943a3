// One life of a cache over a disk: random traffic with faults, and an end.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/soak/soak_report.h"
#include "tests/support/faulty_files.h"
#include "tests/support/power_cut.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {

// How a life ends.
enum class LifeEnd {
  kClosed,      // drained, as after SIGTERM
  kKilled,      // as by kill -9: nothing is written from some moment on
  kPowerCut,    // and what was not synced is lost
  kLyingSyncs,  // and a part of what was said to be synced
};
inline constexpr int kLifeEnds = 4;

// Counted over all lives.
struct LifeTotals {
  std::array<std::uint64_t, kLifeEnds> ends{};
  std::array<std::uint64_t, kSources> reused_tokens{};
  std::uint64_t lookups = 0, prompt_tokens = 0, restores = 0, parks = 0, evictions = 0;
  std::uint64_t faults_hit = 0, corrupt = 0, tier_errors = 0, skipped_parks = 0;
  std::uint64_t sessions_saved = 0, forgotten = 0;
};

// What has to be there after the end, by its durable tokens.
struct LifeWill {
  // False: somebody said that it was there when it was not, or gave up damaged bytes.
  bool binding = true;
  // Some parks were found damaged: what stood on one of them goes at the latest when a cache opens.
  bool damaged = false;
  std::map<ConversationId, std::uint32_t> durable;
  std::map<std::string, std::vector<Token>> sessions;
  std::set<ConversationId> forgotten;
  std::string log;  // what the life said, for a person who looks for a cause
};

// What goes on over all lives of a directory.
struct LibraryUser {
  std::unique_ptr<Rig> rig;
  std::vector<std::unique_ptr<FakeEngine>> engines;  // slots
  std::vector<std::vector<Token>> texts;             // of the last chats
  std::map<std::string, std::vector<Token>> sessions;
};

// Takes place in the constructor's caller's thread; a second thread looks at everything meanwhile.
class LibraryLife {
 public:
  LibraryLife(LibraryUser* user, LifeEnd end, std::uint64_t seed, LifeTotals* totals);

  // Opens the cache, works and ends; the directory is closed then, and nothing is left that stands
  // between it and the system. What the process held before the end goes to `held`.
  LifeWill Run(ProcessSample* held);

 private:
  std::uint32_t Below(std::uint32_t count);
  bool Chance(std::uint32_t percent) { return Below(100) < percent; }
  bool Cut() const { return cut_.load(); }

  void Open();
  void Step();
  void Turn();
  void Abandon();
  void SaveSession();
  void FindSession();
  void Forget();
  void Pin();
  void ChangeBudgets();
  void ChangeFaults();
  void NoteWill();
  void End();
  void CountEvents();
  void Log(const std::string& line);
  std::uint64_t DiskEvictions() const;
  std::optional<ConversationInfo> AnyConversation();

  LibraryUser& user_;
  const LifeEnd end_;
  std::mt19937_64 random_;
  LifeTotals& totals_;
  std::unique_ptr<FaultyFiles> faulty_;
  std::unique_ptr<PowerCut> power_;
  std::atomic<bool> cut_{false};
  bool faults_on_ = false;
  bool had_faults_ = false;
  bool corrupt_ = false;
  bool bad_reads_ = false;  // at some time
  LifeWill will_;
  absl::Mutex log_mutex_;
  std::string log_ ABSL_GUARDED_BY(log_mutex_);
  std::uint64_t evictions_at_will_ = 0;
};

}  // namespace parkade::test
