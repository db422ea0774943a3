// The price of the cache for requests it can't help: parkade-server with its tiers against the same
// program without any, request by request in turns.

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/disk_cache.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"
#include "tests/bench/server_process.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr int kPairs = 12;
// Student's t for a 95 % interval of kPairs values.
constexpr double kStudent = 2.201;
constexpr double kPromptTokens = 2000;
constexpr double kAnswerTokens = 64;
constexpr Token kFirstOrdinaryToken = 1000;

struct Ratio {
  double median = 0;
  double low = 0;   // of the 95 % interval of the mean
  double high = 0;  // the same
};

Ratio Compare(const std::vector<double>& with, const std::vector<double>& without) {
  std::vector<double> logs;
  for (std::size_t i = 0; i < with.size(); ++i) logs.push_back(std::log(with[i] / without[i]));
  double mean = 0;
  for (const double value : logs) mean += value / static_cast<double>(logs.size());
  double squares = 0;
  for (const double value : logs) squares += (value - mean) * (value - mean);
  const double count = static_cast<double>(logs.size());
  const double half = kStudent * std::sqrt(squares / (count - 1) / count);
  return {std::exp(Median(logs)), std::exp(mean - half), std::exp(mean + half)};
}

// Seconds that the server says it spent looking up and capturing.
absl::StatusOr<double> HookSeconds(ServerProcess& server) {
  const absl::StatusOr<std::string> text = server.GetText("/metrics");
  if (!text.ok()) return text.status();
  double seconds = 0;
  int found = 0;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    for (const char* name : {"parkade_lookup_seconds_sum ", "parkade_park_seconds_sum "}) {
      double value = 0;
      if (line.rfind(name, 0) != 0 ||
          !absl::SimpleAtod(line.substr(std::string(name).size()), &value)) {
        continue;
      }
      seconds += value;
      ++found;
    }
  }
  if (found != 2) return absl::InternalError("/metrics does not say what lookups and parks took");
  return seconds;
}

struct Side {
  std::unique_ptr<ServerProcess> server;
  std::vector<double> first_token;
  std::vector<double> decode;
  double total = 0;
  std::vector<std::vector<Token>> answers;

  absl::Status Ask(const CompletionRequest& request) {
    absl::StatusOr<Completion> done = server->Complete(request);
    if (!done.ok()) return done.status();
    if (done->reused_tokens > 1) return absl::InternalError("a new prompt was reused");
    first_token.push_back(done->first_token_s);
    decode.push_back(done->decode_token_s);
    total += done->total_s;
    answers.push_back(std::move(done->answer));
    return absl::OkStatus();
  }
};

absl::StatusOr<double> ContextTokens(ServerProcess& server) {
  const absl::StatusOr<nlohmann::json> props = server.GetJson("/props");
  if (!props.ok()) return props.status();
  const auto settings = props->find("default_generation_settings");
  if (settings == props->end()) return absl::InternalError("/props names no settings");
  return settings->value("n_ctx", 0.0);
}

}  // namespace

absl::StatusOr<Outcome> RunOverhead(const BenchOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const auto count = static_cast<std::uint32_t>(std::max(256.0, kPromptTokens * options.scale));
  const std::vector<std::string> base = {"--ctx-size", absl::StrCat(count + 512)};
  std::vector<std::string> with_cache = base;
  with_cache.insert(with_cache.end(), {"--conversation-cache-disk", folder->path() + "/tier"});
  std::vector<std::string> without_cache = base;
  without_cache.insert(without_cache.end(), {"--conversation-cache-mib", "0"});
  Side with, without;
  auto started = ServerProcess::Start(folder->path() + "/with.log", true, with_cache);
  if (!started.ok()) return started.status();
  with.server = *std::move(started);
  started = ServerProcess::Start(folder->path() + "/without.log", false, without_cache);
  if (!started.ok()) return started.status();
  without.server = *std::move(started);
  const absl::StatusOr<double> context = ContextTokens(*with.server);
  if (!context.ok()) return context.status();
  const absl::StatusOr<double> reference_context = ContextTokens(*without.server);
  if (!reference_context.ok()) return reference_context.status();

  std::mt19937_64 random(options.seed);
  const absl::StatusOr<double> hooks_before = HookSeconds(*with.server);
  if (!hooks_before.ok()) return hooks_before.status();
  CompletionRequest request;
  request.answer_tokens = static_cast<int>(std::max(16.0, kAnswerTokens * options.scale));
  for (int pair = 0; pair < kPairs; ++pair) {
    request.prompt = RandomTokens(count, random());
    for (Token& token : request.prompt) token += kFirstOrdinaryToken;
    Side* order[] = {&with, &without};
    if (random() % 2 == 1) std::swap(order[0], order[1]);
    for (Side* side : order) {
      if (absl::Status s = side->Ask(request); !s.ok()) return s;
    }
  }
  const absl::StatusOr<double> hooks = HookSeconds(*with.server);
  if (!hooks.ok()) return hooks.status();
  const Ratio first_token = Compare(with.first_token, without.first_token);
  const Ratio decode = Compare(with.decode, without.decode);

  Outcome outcome;
  outcome.notes.push_back(
      absl::StrFormat("%d pairs, %d tokens in, %d out; *_low and *_high: 95 %% interval", kPairs,
                      count, request.answer_tokens));
  outcome.Add("ttft_ratio", first_token.median);
  outcome.Add("ttft_ratio_low", first_token.low);
  outcome.Add("ttft_ratio_high", first_token.high);
  outcome.Add("decode_ratio", decode.median);
  outcome.Add("decode_ratio_low", decode.low);
  outcome.Add("decode_ratio_high", decode.high);
  outcome.Add("hooks_share", (*hooks - *hooks_before) / with.total);
  outcome.Add("equal_answers_share", with.answers == without.answers ? 1 : 0);
  outcome.Add("context_ratio", *context / *reference_context);
  outcome.Add("extra_resident_mib", (static_cast<double>(with.server->resident_bytes()) -
                                     static_cast<double>(without.server->resident_bytes())) /
                                        kMib);
  outcome.AtMost("ttft_ratio_low", 1.02);
  outcome.AtMost("decode_ratio_low", 1.02);
  outcome.AtMost("hooks_share", 0.01);
  outcome.AtLeast("equal_answers_share", 1);
  outcome.AtLeast("context_ratio", 1);
  return outcome;
}

}  // namespace parkade::bench
