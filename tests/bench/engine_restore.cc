// The real engine's twin of `sequential`: a long prompt's state, every layer whole, restored into
// llama.cpp's own memory by a new process, or from the RAM tier of the same one, against memcpy.

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/bench/disk_cache.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"
#include "tests/bench/server_process.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kPromptTokens = 27000;
constexpr double kRamPromptTokens = 10000;
constexpr std::uint32_t kQuestionTokens = 24;
constexpr absl::Duration kSettle = absl::Seconds(1);

struct Restored {
  double seconds = 0;
  double bytes = 0;
};

// The last lookup, if it took all of `tokens` from `tier`.
absl::StatusOr<Restored> LastRestore(ServerProcess& server, std::uint32_t tokens,
                                     const std::string& tier) {
  const absl::StatusOr<nlohmann::json> answer = server.GetJson("/conversations/lookups?limit=1");
  if (!answer.ok()) return answer.status();
  const auto lookups = answer->find("lookups");
  if (lookups == answer->end() || lookups->size() != 1) {
    return absl::InternalError("no lookup on record");
  }
  const nlohmann::json& last = lookups->front();
  const auto hits = last.find("hit_tokens");
  const bool whole = hits != last.end() && hits->value(tier, 0u) == tokens;
  if (!whole || last.value("restored_bytes", 0.0) <= 0) {
    return absl::InternalError(absl::StrCat("not restored whole: ", last.dump()));
  }
  return Restored{last.value("restore_seconds", 0.0), last.value("restored_bytes", 0.0)};
}

// The document again, with a question that was not asked before: what restoring it took.
absl::StatusOr<Restored> AskAgain(ServerProcess& server, const std::vector<Token>& document,
                                  std::uint64_t seed, const std::string& tier) {
  CompletionRequest request{document, 1};
  const std::vector<Token> question = RandomText(kQuestionTokens, seed);
  request.prompt.insert(request.prompt.end(), question.begin(), question.end());
  const absl::StatusOr<Completion> warm = server.Complete(request);
  if (!warm.ok()) return warm.status();
  return LastRestore(server, static_cast<std::uint32_t>(document.size()), tier);
}

// One directory, a new process each time.
struct Subject {
  std::string log;
  std::vector<std::string> arguments;
  std::vector<Token> document;
  std::uint64_t seed = 0;
  double restored_bytes = 0;

  absl::Status Park() const {
    auto server = ServerProcess::Start(log, true, arguments);
    if (!server.ok()) return server.status();
    const absl::StatusOr<Completion> cold = (*server)->Complete({document, 1});
    if (!cold.ok()) return cold.status();
    return (*server)->WaitDurable(static_cast<std::uint32_t>(document.size()));
  }

  absl::StatusOr<double> Restore() {
    auto server = ServerProcess::Start(log, true, arguments);
    if (!server.ok()) return server.status();
    const absl::StatusOr<Restored> restored = AskAgain(**server, document, ++seed, "disk");
    if (!restored.ok()) return restored.status();
    restored_bytes = restored->bytes;
    return restored->seconds;
  }
};

// One process; another chat takes the slot before each restore.
struct RamSubject {
  std::unique_ptr<ServerProcess> server;
  std::vector<Token> document;
  std::uint64_t seed = 0;
  double restored_bytes = 0;

  absl::StatusOr<double> Restore() {
    const absl::StatusOr<Completion> other = server->Complete({RandomText(200, ++seed), 1});
    if (!other.ok()) return other.status();
    const absl::StatusOr<Restored> restored = AskAgain(*server, document, ++seed, "ram");
    if (!restored.ok()) return restored.status();
    restored_bytes = restored->bytes;
    return restored->seconds;
  }
};

}  // namespace

absl::StatusOr<Outcome> RunEngineRam(const BenchOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const auto count = static_cast<std::uint32_t>(std::max(1000.0, kRamPromptTokens * options.scale));
  auto server = ServerProcess::Start(
      folder->path() + "/server.log", true,
      {"--ctx-size", absl::StrCat(count + 1024), "--parallel", "1", "--swa-full",
       "--conversation-cache-mib", "2048", "--conversation-cache-min-free-mib", "0"});
  if (!server.ok()) return server.status();
  RamSubject subject{*std::move(server), RandomText(count, options.seed), options.seed};
  const absl::StatusOr<Completion> cold = subject.server->Complete({subject.document, 1});
  if (!cold.ok()) return cold.status();
  if (absl::Status s = subject.Restore().status(); !s.ok()) return s;
  TouchedMemory from(static_cast<std::size_t>(subject.restored_bytes));
  TouchedMemory to(from.size());
  auto medians = MedianSeconds(
      {{"restore", [&] { return subject.Restore(); }},
       {"memcpy", [&]() -> absl::StatusOr<double> { return TimeColdCopy(to, from); }}},
      kRounds, options.seed);
  if (!medians.ok()) return medians.status();
  const double mib = static_cast<double>(from.size()) / kMib;
  Outcome outcome;
  outcome.notes.push_back(absl::StrFormat("%d tokens, %.0f MiB, from the RAM tier", count, mib));
  outcome.Add("ram_restore_vs_memcpy", (*medians)["memcpy"] / (*medians)["restore"]);
  outcome.Add("ram_restore_mib_per_s", mib / (*medians)["restore"]);
  outcome.Add("memcpy_mib_per_s", mib / (*medians)["memcpy"]);
  outcome.AtLeast("ram_restore_vs_memcpy", 0.6);
  return outcome;
}

absl::StatusOr<Outcome> RunEngine(const BenchOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const auto count = static_cast<std::uint32_t>(std::max(1000.0, kPromptTokens * options.scale));
  Subject subject;
  subject.log = folder->path() + "/server.log";
  subject.arguments = {"--ctx-size",
                       absl::StrCat(count + 1024),
                       "--swa-full",
                       "--conversation-cache-mib",
                       "0",
                       "--conversation-cache-disk",
                       folder->path() + "/tier"};
  subject.document = RandomText(count, options.seed);
  subject.seed = options.seed;
  if (absl::Status s = subject.Park(); !s.ok()) return s;
  // Says how many bytes the reference has to copy.
  if (absl::Status s = subject.Restore().status(); !s.ok()) return s;
  TouchedMemory from(static_cast<std::size_t>(subject.restored_bytes));
  TouchedMemory to(from.size());
  auto medians = MedianSeconds({{"restore", [&] { return subject.Restore(); }},
                                {"memcpy",
                                 [&]() -> absl::StatusOr<double> {
                                   // The server that was killed just now is still giving back its
                                   // memory, and the buffers
                                   // have not been touched for so long that the first copy pays for
                                   // their pages.
                                   absl::SleepFor(kSettle);
                                   TimeColdCopy(to, from);
                                   return TimeColdCopy(to, from);
                                 }}},
                               kRounds, options.seed);
  if (!medians.ok()) return medians.status();
  const double mib = static_cast<double>(from.size()) / kMib;
  Outcome outcome;
  outcome.notes.push_back(absl::StrFormat("%d tokens, %.0f MiB, one process a round", count, mib));
  outcome.Add("warm_restore_vs_memcpy", (*medians)["memcpy"] / (*medians)["restore"]);
  outcome.Add("warm_restore_mib_per_s", mib / (*medians)["restore"]);
  outcome.Add("memcpy_mib_per_s", mib / (*medians)["memcpy"]);
  outcome.AtLeast("warm_restore_vs_memcpy", 0.3);
  return outcome;
}

}  // namespace parkade::bench
