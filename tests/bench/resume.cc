// How fast a chat is decoded after it was away: restored from RAM and from disk, against turns
// between which it never left its slot. One chat, one process; the three ways take turns.

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/disk_cache.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"
#include "tests/bench/server_process.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

constexpr double kPromptTokens = 8000;
constexpr double kAnswerTokens = 128;
constexpr std::uint32_t kQuestionTokens = 24;
// Too few to be kept: takes the slot, and leaves nothing behind.
constexpr std::uint32_t kDisplacingTokens = 32;
constexpr int kResumeRounds = 11;
constexpr int kRamMib = 1024;

constexpr std::array<const char*, 3> kWays = {"slot", "ram", "disk"};

class Chat {
 public:
  Chat(ServerProcess* server, CompletionRequest request, std::uint64_t seed)
      : server_(server), request_(std::move(request)), random_(seed) {}

  absl::Status Begin() { return Turn(nullptr).status(); }

  // One more turn, the chat having been where `way` says; returns the seconds a token took.
  absl::StatusOr<double> GoOn(const std::string& way) {
    const std::vector<Token> question = RandomText(kQuestionTokens, random_());
    request_.prompt.insert(request_.prompt.end(), question.begin(), question.end());
    // An earlier turn's writes must not be under way.
    if (absl::Status s = server_->WaitDurable(held_); !s.ok()) return s;
    if (way == "disk") {
      if (absl::Status s = SetRam(0); !s.ok()) return s;
    }
    if (way != "slot") {
      const absl::StatusOr<Completion> other =
          server_->Complete({RandomText(kDisplacingTokens, random_()), 1});
      if (!other.ok()) return other.status();
    }
    if (way == "disk") {
      if (absl::Status s = SetRam(kRamMib); !s.ok()) return s;
    }
    return Turn(way.c_str());
  }

 private:
  absl::Status SetRam(int mib) {
    return server_->PostJson("/conversations/budgets", nlohmann::json{{"ram_mib", mib}}).status();
  }

  absl::StatusOr<double> Turn(const char* way) {
    const absl::StatusOr<Completion> done = server_->Complete(request_);
    if (!done.ok()) return done.status();
    if (way != nullptr) {
      if (absl::Status s = CheckCameFrom(way); !s.ok()) return s;
    }
    held_ = static_cast<std::uint32_t>(request_.prompt.size() + done->answer.size() - 1);
    request_.prompt.insert(request_.prompt.end(), done->answer.begin(), done->answer.end());
    return done->decode_token_s;
  }

  // All that the chat holds was reused, and all of it from there.
  absl::Status CheckCameFrom(const std::string& way) {
    const absl::StatusOr<nlohmann::json> answer =
        server_->GetJson("/conversations/lookups?limit=1");
    if (!answer.ok()) return answer.status();
    const nlohmann::json last = answer->value("lookups", nlohmann::json::array()).at(0);
    if (last.at("hit_tokens") == nlohmann::json{{way, held_}}) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(held_, " tokens were to come from ", way, ": ", last.dump()));
  }

  ServerProcess* const server_;
  CompletionRequest request_;
  std::mt19937_64 random_;
  std::uint32_t held_ = 0;
};

absl::StatusOr<std::array<std::vector<double>, kWays.size()>> RunRounds(Chat& chat,
                                                                        std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::array<std::size_t, kWays.size()> order = {0, 1, 2};
  std::array<std::vector<double>, kWays.size()> seconds;
  for (int round = 0; round < kResumeRounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t way : order) {
      const absl::StatusOr<double> token = chat.GoOn(kWays[way]);
      if (!token.ok()) return token.status();
      seconds[way].push_back(*token);
    }
  }
  return seconds;
}

}  // namespace

absl::StatusOr<Outcome> RunResume(const BenchOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const auto count = static_cast<std::uint32_t>(std::max(1000.0, kPromptTokens * options.scale));
  CompletionRequest request;
  request.prompt = RandomText(count, options.seed);
  request.answer_tokens = static_cast<int>(std::max(32.0, kAnswerTokens * options.scale));
  const auto turns = static_cast<std::uint32_t>(kResumeRounds * kWays.size() + 2);
  const std::uint32_t context =
      count + turns * (kQuestionTokens + static_cast<std::uint32_t>(request.answer_tokens));
  // One thread decodes: two wait for each other, and for whatever else runs on the machine.
  // Of a small window's rows a restore needs a part, and what is read in part is not brought to
  // RAM.
  auto server = ServerProcess::Start(
      folder->path() + "/server.log", true,
      {"--threads", "1", "--threads-batch", "2", "--swa-full", "--ctx-size", absl::StrCat(context),
       "--conversation-cache-mib", absl::StrCat(kRamMib), "--conversation-cache-disk",
       folder->path() + "/tier"});
  if (!server.ok()) return server.status();
  Chat chat(server->get(), request, options.seed + 1);
  if (absl::Status s = chat.Begin(); !s.ok()) return s;
  try {
    const auto seconds = RunRounds(chat, options.seed + 2);
    if (!seconds.ok()) return seconds.status();
    Outcome outcome;
    outcome.notes.push_back(absl::StrFormat(
        "%d tokens and more, %d rounds, %d tokens a turn; a token took %.2f ms in the slot, %.2f "
        "after RAM, %.2f after disk (medians)",
        count, kResumeRounds, request.answer_tokens, Median((*seconds)[0]) * 1e3,
        Median((*seconds)[1]) * 1e3, Median((*seconds)[2]) * 1e3));
    for (std::size_t way = 1; way < kWays.size(); ++way) {
      // Turns of one round are about equally deep and see the same neighbours on the machine.
      std::vector<double> ratios;
      for (std::size_t i = 0; i < (*seconds)[way].size(); ++i) {
        ratios.push_back((*seconds)[0][i] / (*seconds)[way][i]);
      }
      const std::string figure = absl::StrCat("decode_after_", kWays[way], "_vs_stayed");
      outcome.Add(figure, Median(ratios));
      outcome.AtLeast(figure, 0.97);
    }
    return outcome;
  } catch (const nlohmann::json::exception& e) {
    return absl::InternalError(e.what());
  }
}

}  // namespace parkade::bench
