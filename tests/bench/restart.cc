// A long prompt, kill -9, the conversation goes on in a new process.

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/bench/disk_cache.h"
#include "tests/bench/files.h"
#include "tests/bench/server_process.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

constexpr double kPromptTokens = 25000;
constexpr double kStagesTokens = 12000;
constexpr int kAnswerTokens = 32;
constexpr std::uint32_t kQuestionTokens = 24;

struct Case {
  double prompt_tokens = 0;
  double goal = 0;  // times that the rewarmed first token comes sooner than the cold one
  std::vector<std::string> arguments;
};

absl::StatusOr<Outcome> Restart(const BenchOptions& options, const std::string& folder,
                                const Case& what) {
  const auto count =
      static_cast<std::uint32_t>(std::max(1000.0, what.prompt_tokens * options.scale));
  std::vector<std::string> arguments = {"--ctx-size", absl::StrFormat("%d", count + 1024),
                                        "--conversation-cache-disk", folder + "/tier"};
  arguments.insert(arguments.end(), what.arguments.begin(), what.arguments.end());
  CompletionRequest request;
  request.prompt = RandomText(count, options.seed);
  request.answer_tokens = kAnswerTokens;

  auto server = ServerProcess::Start(folder + "/first.log", true, arguments);
  if (!server.ok()) return server.status();
  const absl::StatusOr<Completion> cold = (*server)->Complete(request);
  if (!cold.ok()) return cold.status();
  // The last token of an answer is sampled but not yet computed, so nobody can keep it.
  const auto earlier = static_cast<std::uint32_t>(count + cold->answer.size() - 1);
  if (absl::Status s = (*server)->WaitDurable(earlier); !s.ok()) return s;
  (*server)->Kill();

  server = ServerProcess::Start(folder + "/second.log", true, arguments);
  if (!server.ok()) return server.status();
  request.prompt.insert(request.prompt.end(), cold->answer.begin(), cold->answer.end());
  const std::vector<Token> question = RandomText(kQuestionTokens, options.seed + 1);
  request.prompt.insert(request.prompt.end(), question.begin(), question.end());
  const absl::StatusOr<Completion> rewarmed = (*server)->Complete(request);
  if (!rewarmed.ok()) return rewarmed.status();

  Outcome outcome;
  outcome.notes.push_back(absl::StrFormat("%d tokens; first token after %.3f s and %.3f s", count,
                                          cold->first_token_s, rewarmed->first_token_s));
  outcome.Add("cold_vs_rewarmed_ttft", cold->first_token_s / rewarmed->first_token_s);
  outcome.Add("reused_share", static_cast<double>(rewarmed->reused_tokens) / earlier);
  outcome.AtLeast("cold_vs_rewarmed_ttft", what.goal);
  outcome.AtLeast("reused_share", 0.99);
  return outcome;
}

}  // namespace

absl::StatusOr<Outcome> RunRestart(const BenchOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  return Restart(options, folder->path(), {kPromptTokens, 100, {}});
}

absl::StatusOr<Outcome> RunStages(const BenchOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  auto first = RpcDevice::Start(folder->path() + "/device0.log");
  if (!first.ok()) return first.status();
  auto second = RpcDevice::Start(folder->path() + "/device1.log");
  if (!second.ok()) return second.status();
  return Restart(options, folder->path(),
                 {kStagesTokens,
                  40,
                  {"--rpc", (*first)->address() + "," + (*second)->address(), "-ngl", "99",
                   "--split-mode", "layer", "--tensor-split", "1,1"}});
}

}  // namespace parkade::bench
