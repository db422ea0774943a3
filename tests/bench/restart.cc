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
constexpr int kAnswerTokens = 32;
constexpr std::uint32_t kQuestionTokens = 24;
// Below are tokens with a meaning of their own.
constexpr Token kFirstOrdinaryToken = 1000;

std::vector<Token> Prompt(std::size_t count, std::uint64_t seed) {
  std::vector<Token> tokens = RandomTokens(count, seed);
  for (Token& token : tokens) token += kFirstOrdinaryToken;
  return tokens;
}

}  // namespace

absl::StatusOr<Outcome> RunRestart(const BenchOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const auto count = static_cast<std::uint32_t>(std::max(1000.0, kPromptTokens * options.scale));
  const std::vector<std::string> arguments = {"--ctx-size", absl::StrFormat("%d", count + 1024),
                                              "--conversation-cache-disk",
                                              folder->path() + "/tier"};
  CompletionRequest request;
  request.prompt = Prompt(count, options.seed);
  request.answer_tokens = kAnswerTokens;

  auto server = ServerProcess::Start(folder->path() + "/first.log", true, arguments);
  if (!server.ok()) return server.status();
  const absl::StatusOr<Completion> cold = (*server)->Complete(request);
  if (!cold.ok()) return cold.status();
  // The last token of an answer is sampled but not yet computed, so nobody can keep it.
  const auto earlier = static_cast<std::uint32_t>(count + cold->answer.size() - 1);
  if (absl::Status s = (*server)->WaitDurable(earlier); !s.ok()) return s;
  (*server)->Kill();

  server = ServerProcess::Start(folder->path() + "/second.log", true, arguments);
  if (!server.ok()) return server.status();
  request.prompt.insert(request.prompt.end(), cold->answer.begin(), cold->answer.end());
  const std::vector<Token> question = Prompt(kQuestionTokens, options.seed + 1);
  request.prompt.insert(request.prompt.end(), question.begin(), question.end());
  const absl::StatusOr<Completion> rewarmed = (*server)->Complete(request);
  if (!rewarmed.ok()) return rewarmed.status();

  Outcome outcome;
  outcome.notes.push_back(absl::StrFormat("%d tokens; first token after %.3f s and %.3f s", count,
                                          cold->first_token_s, rewarmed->first_token_s));
  outcome.Add("cold_vs_rewarmed_ttft", cold->first_token_s / rewarmed->first_token_s);
  outcome.Add("reused_share", static_cast<double>(rewarmed->reused_tokens) / earlier);
  outcome.AtLeast("cold_vs_rewarmed_ttft", 100);
  outcome.AtLeast("reused_share", 0.99);
  return outcome;
}

}  // namespace parkade::bench
