// What a Redis that stands still costs parkade-server's requests: the first one waits for it, at
// most the deadline, and those after it not at all. Against the same program without a remote tier,
// request by request in turns.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"
#include "tests/bench/server_process.h"
#include "tests/bench/workload.h"
#include "tests/support/redis_server.h"

namespace parkade::bench {
namespace {

using nlohmann::json;

// Two processes of one program differ by a few per cent for as long as they live: each pair has two
// new ones.
constexpr double kPairs = 10;
constexpr int kRequests = 3;  // of each process of a pair, after the one that waits
constexpr std::uint32_t kPromptTokens = 256;
constexpr int kDeadlineMs = 500;
// Tokens that mean nothing of their own to any model, the small ones of tests among them.
constexpr Token kFirstToken = 300;
constexpr std::uint64_t kTokens = 250;
// A look-up without the store takes milliseconds; one that waits for it, all of the deadline.
constexpr double kWaitedSeconds = 0.5e-3 * kDeadlineMs;
constexpr absl::Duration kPublishLimit = absl::Seconds(60);

struct Seconds {
  std::vector<double> without, with, ratios;
  std::vector<double>
      first_extra;            // to the first token of each pair's first request, beyond others
  std::vector<double> waits;  // of look-ups that waited, of all pairs
};

absl::StatusOr<double> FirstToken(ServerProcess& server, std::mt19937_64& random) {
  CompletionRequest request;
  request.answer_tokens = 2;
  for (std::uint32_t i = 0; i < kPromptTokens; ++i) {
    request.prompt.push_back(kFirstToken + static_cast<Token>(random() % kTokens));
  }
  const absl::StatusOr<Completion> done = server.Complete(request);
  if (!done.ok()) return done.status();
  // Servers put a token of their own before each prompt.
  if (done->reused_tokens > 1) return absl::InternalError("a new prompt was reused");
  return done->first_token_s;
}

// All that the server has parked stands in the remote tier.
absl::StatusOr<bool> Published(ServerProcess& server) {
  const absl::StatusOr<json> listed = server.GetJson("/conversations");
  if (!listed.ok()) return listed.status();
  const json chats = listed->at("conversations");
  for (const json& chat : chats) {
    const absl::StatusOr<json> shown =
        server.GetJson(absl::StrCat("/conversations/", chat.at("id").get<std::string>()));
    if (!shown.ok()) return shown.status();
    for (const json& park : shown->at("parks")) {
      const std::vector<std::string> tiers = park.at("tiers");
      if (std::find(tiers.begin(), tiers.end(), "remote") == tiers.end()) return false;
    }
  }
  return !chats.empty();
}

absl::Status WaitPublished(ServerProcess& server) {
  absl::Status failed;
  const bool published = test::WaitUntil(
      [&] {
        const absl::StatusOr<bool> now = Published(server);
        failed = now.status();
        return !now.ok() || *now;
      },
      kPublishLimit);
  return published ? failed : absl::DeadlineExceededError("what is parked is not published");
}

// Seconds of those look-ups that waited for the store.
absl::StatusOr<std::vector<double>> Waits(ServerProcess& server) {
  const absl::StatusOr<json> answer = server.GetJson("/conversations/lookups?limit=100");
  if (!answer.ok()) return answer.status();
  std::vector<double> waits;
  for (const json& lookup : answer->at("lookups")) {
    const double seconds = lookup.at("seconds");
    if (seconds > kWaitedSeconds) waits.push_back(seconds);
  }
  return waits;
}

absl::Status RunTurns(ServerProcess& with, ServerProcess& without, test::RedisServer& redis,
                      std::mt19937_64& random, Seconds* all) {
  // A process's first tokens touch its memory; what was published before the pause makes the
  // connection that then stands still.
  for (ServerProcess* server : {&with, &without}) {
    if (absl::Status s = FirstToken(*server, random).status(); !s.ok()) return s;
  }
  if (absl::Status s = WaitPublished(with); !s.ok()) return s;
  redis.Pause();
  const absl::StatusOr<double> waiting = FirstToken(with, random);
  if (!waiting.ok()) return waiting.status();
  std::vector<double> after;
  for (int i = 0; i < kRequests; ++i) {
    double seconds[2] = {0, 0};
    const bool with_first = random() % 2 == 0;
    for (const bool cached : {with_first, !with_first}) {
      const absl::StatusOr<double> one = FirstToken(cached ? with : without, random);
      if (!one.ok()) return one.status();
      seconds[cached] = *one;
    }
    after.push_back(seconds[1]);
    all->without.push_back(seconds[0]);
    all->with.push_back(seconds[1]);
    all->ratios.push_back(seconds[1] / seconds[0]);
  }
  all->first_extra.push_back(*waiting - Median(after));
  const absl::StatusOr<std::vector<double>> waits = Waits(with);
  if (!waits.ok()) return waits.status();
  all->waits.insert(all->waits.end(), waits->begin(), waits->end());
  return absl::OkStatus();
}

absl::Status RunPair(const std::string& folder, bool with_first, std::mt19937_64& random,
                     Seconds* all) {
  test::RedisServer redis;
  // Two threads wait for each other, and for whatever else runs on the machine.
  const std::vector<std::string> plain = {"--threads",
                                          "1",
                                          "--threads-batch",
                                          "1",
                                          "--ctx-size",
                                          absl::StrCat(kPromptTokens + 64),
                                          "--conversation-cache-mib",
                                          "256"};
  std::vector<std::string> remote = plain;
  remote.insert(remote.end(),
                {"--conversation-cache-remote", "redis://" + redis.address(),
                 "--conversation-cache-remote-deadline-ms", absl::StrCat(kDeadlineMs)});
  std::unique_ptr<ServerProcess> with, without;
  // Whoever starts first gets the better memory.
  for (const bool cached : {with_first, !with_first}) {
    auto started = ServerProcess::Start(folder + (cached ? "/with.log" : "/without.log"), true,
                                        cached ? remote : plain);
    if (!started.ok()) return started.status();
    (cached ? with : without) = *std::move(started);
  }
  return RunTurns(*with, *without, redis, random, all);
}

}  // namespace

absl::StatusOr<Outcome> RunRemotePaused(const BenchOptions& options) {
  const std::string missing = test::RedisMissing();
  if (!missing.empty()) return absl::NotFoundError(missing);
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const int pairs = std::max(1, static_cast<int>(std::lround(kPairs * options.scale)));
  std::mt19937_64 random(options.seed);
  Seconds all;
  try {
    for (int pair = 0; pair < pairs; ++pair) {
      const absl::Status status = RunPair(folder->path(), pair % 2 == 0, random, &all);
      if (!status.ok()) return status;
    }
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
  const double deadline_s = 1e-3 * kDeadlineMs;
  Outcome outcome;
  outcome.notes.push_back(absl::StrFormat(
      "%d pairs of processes, %d rounds, %d tokens; the first took %.0f ms without a remote and "
      "%.0f with the paused one (medians)",
      pairs, all.ratios.size(), kPromptTokens, 1e3 * Median(all.without), 1e3 * Median(all.with)));
  outcome.Add("waiting_requests_per_pause", static_cast<double>(all.waits.size()) / pairs);
  outcome.Add("wait_vs_deadline", Median(all.waits) / deadline_s);
  outcome.Add("first_ttft_extra_vs_deadline", Median(all.first_extra) / deadline_s);
  outcome.Add("ttft_ratio", Median(all.ratios));
  outcome.AtMost("waiting_requests_per_pause", 1);
  outcome.AtMost("wait_vs_deadline", 1.02);
  outcome.AtMost("ttft_ratio", 1.02);
  return outcome;
}

}  // namespace parkade::bench
