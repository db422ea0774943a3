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
// Two processes of one program differ by a few per cent for as long as they live, from where their
// memory lies. Pairs of requests to the same two would share that error and an interval made of
// them would be too narrow: each pair has two new processes.
constexpr int kPairs = 16;
// Student's t for a 95 % interval of kPairs values.
constexpr double kStudent = 2.131;
constexpr double kPromptTokens = 2000;
constexpr double kAnswerTokens = 64;
// Read once before the request that counts: a process's first tokens touch its memory.
constexpr std::size_t kFirstTouchTokens = 256;

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
  bool cached = false;
  std::vector<std::string> arguments;
  std::unique_ptr<ServerProcess> server;
  std::vector<double> first_token;
  std::vector<double> decode;
  double total = 0;
  double hooks = 0;
  double resident_bytes = 0;
  double context_tokens = 0;
  std::vector<std::vector<Token>> answers;

  absl::Status Start(const std::string& log_file) {
    auto started = ServerProcess::Start(log_file, cached, arguments);
    if (!started.ok()) return started.status();
    server = *std::move(started);
    const absl::StatusOr<nlohmann::json> props = server->GetJson("/props");
    if (!props.ok()) return props.status();
    const auto settings = props->find("default_generation_settings");
    if (settings == props->end()) return absl::InternalError("/props names no settings");
    context_tokens = settings->value("n_ctx", 0.0);
    return absl::OkStatus();
  }

  absl::StatusOr<Completion> AskAnew(const CompletionRequest& request) {
    absl::StatusOr<Completion> done = server->Complete(request);
    if (!done.ok()) return done;
    if (done->reused_tokens > 1) return absl::InternalError("a new prompt was reused");
    total += done->total_s;
    return done;
  }

  absl::Status Ask(const CompletionRequest& request) {
    absl::StatusOr<Completion> done = AskAnew(request);
    if (!done.ok()) return done.status();
    first_token.push_back(done->first_token_s);
    decode.push_back(done->decode_token_s);
    answers.push_back(std::move(done->answer));
    return absl::OkStatus();
  }

  absl::Status End() {
    resident_bytes = static_cast<double>(server->resident_bytes());
    if (cached) {
      const absl::StatusOr<double> seconds = HookSeconds(*server);
      if (!seconds.ok()) return seconds.status();
      hooks += *seconds;
    }
    server.reset();
    return absl::OkStatus();
  }
};

absl::Status RunPair(const std::string& folder, CompletionRequest ask, std::size_t prompt_tokens,
                     std::mt19937_64& random, Side* first, Side* second) {
  Side* order[] = {first, second};
  for (Side* side : order) {
    const char* log = side->cached ? "/with.log" : "/without.log";
    if (absl::Status s = side->Start(folder + log); !s.ok()) return s;
  }
  CompletionRequest touch = ask;
  touch.prompt = RandomText(std::min(prompt_tokens, kFirstTouchTokens), random());
  for (Side* side : order) {
    if (absl::Status s = side->AskAnew(touch).status(); !s.ok()) return s;
  }
  ask.prompt = RandomText(prompt_tokens, random());
  if (random() % 2 == 1) std::swap(order[0], order[1]);
  for (Side* side : order) {
    if (absl::Status s = side->Ask(ask); !s.ok()) return s;
  }
  for (Side* side : order) {
    if (absl::Status s = side->End(); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status RunPairs(const BenchOptions& options, const std::string& folder,
                      const CompletionRequest& ask, std::size_t prompt_tokens, Side* with,
                      Side* without) {
  std::mt19937_64 random(options.seed);
  for (int pair = 0; pair < kPairs; ++pair) {
    // Whoever starts first gets the better memory.
    Side* first = pair % 2 == 0 ? with : without;
    Side* second = pair % 2 == 0 ? without : with;
    if (absl::Status s = RunPair(folder, ask, prompt_tokens, random, first, second); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Outcome> RunOverhead(const BenchOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const auto count = static_cast<std::uint32_t>(std::max(256.0, kPromptTokens * options.scale));
  Side with, without;
  with.cached = true;
  with.arguments = without.arguments = {"--ctx-size", absl::StrCat(count + 512)};
  with.arguments.insert(with.arguments.end(),
                        {"--conversation-cache-disk", folder->path() + "/tier"});
  without.arguments.insert(without.arguments.end(), {"--conversation-cache-mib", "0"});
  CompletionRequest request;
  request.answer_tokens = static_cast<int>(std::max(16.0, kAnswerTokens * options.scale));
  if (absl::Status s = RunPairs(options, folder->path(), request, count, &with, &without); !s.ok())
    return s;
  const Ratio first_token = Compare(with.first_token, without.first_token);
  const Ratio decode = Compare(with.decode, without.decode);

  Outcome outcome;
  outcome.notes.push_back(absl::StrFormat(
      "%d pairs, new processes for each, %d tokens in, %d out; *_low and *_high: 95 %% interval",
      kPairs, count, request.answer_tokens));
  outcome.Add("ttft_ratio", first_token.median);
  outcome.Add("ttft_ratio_low", first_token.low);
  outcome.Add("ttft_ratio_high", first_token.high);
  outcome.Add("decode_ratio", decode.median);
  outcome.Add("decode_ratio_low", decode.low);
  outcome.Add("decode_ratio_high", decode.high);
  outcome.Add("hooks_share", with.hooks / with.total);
  outcome.Add("equal_answers_share", with.answers == without.answers ? 1 : 0);
  outcome.Add("context_ratio", with.context_tokens / without.context_tokens);
  outcome.Add("extra_resident_mib", (with.resident_bytes - without.resident_bytes) / kMib);
  outcome.AtMost("ttft_ratio_low", 1.02);
  outcome.AtMost("decode_ratio_low", 1.02);
  outcome.AtMost("hooks_share", 0.01);
  outcome.AtLeast("equal_answers_share", 1);
  outcome.AtLeast("context_ratio", 1);
  return outcome;
}

}  // namespace parkade::bench
