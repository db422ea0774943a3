// What dashboards and people ask of a server that keeps many conversations, against the same
// server's /health and against a server that keeps few.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/files.h"
#include "tests/bench/many_chats.h"
#include "tests/bench/measure.h"
#include "tests/bench/server_process.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

constexpr double kConversations = 10000;
constexpr std::uint32_t kFew = 10;
constexpr std::uint32_t kTokens = 1280;
constexpr std::uint32_t kParks = 4;       // of a conversation
constexpr std::uint32_t kRequests = 300;  // of each kind, at full scale
constexpr std::uint32_t kPage = 100;

// A server over a directory of made-up conversations. Nothing of them is ever restored.
absl::StatusOr<std::unique_ptr<ServerProcess>> StartOver(std::uint32_t conversations,
                                                         const std::string& folder,
                                                         std::uint64_t seed) {
  const std::string directory = absl::StrCat(folder, "/", conversations, "-chats");
  const ManyChats chats(conversations, kTokens, kParks, seed);
  if (absl::Status s = chats.WriteDirectory(directory, ManyChats::Segments::kEmpty); !s.ok())
    return s;
  return ServerProcess::Start(
      directory + ".log", true,
      {"--ctx-size", "1024", "--conversation-cache-disk", directory,
       "--conversation-cache-disk-gib", "65536", "--conversation-cache-disk-min-free-mib", "64"});
}

// The ids of all conversations, page by page.
absl::StatusOr<std::vector<std::string>> ListAll(ServerProcess& server) {
  std::vector<std::string> ids;
  while (true) {
    const absl::StatusOr<nlohmann::json> page = server.GetJson(absl::StrCat(
        "/conversations?limit=1000", ids.empty() ? "" : absl::StrCat("&after=", ids.back())));
    if (!page.ok()) return page.status();
    const nlohmann::json listed = page->value("conversations", nlohmann::json::array());
    for (const nlohmann::json& each : listed) ids.push_back(each.value("id", ""));
    if (listed.size() < 1000) return ids;
  }
}

struct Question {
  std::string name;
  std::function<absl::StatusOr<std::string>()> ask;
  std::function<absl::Status()> prepare = nullptr;  // before each, not timed
};

// All questions in turns, in an order that is shuffled anew each time. Seconds by name.
absl::StatusOr<std::map<std::string, std::vector<double>>> AskInTurns(
    const std::vector<Question>& questions, std::uint32_t rounds, std::uint64_t seed) {
  std::map<std::string, std::vector<double>> seconds;
  std::mt19937_64 random(seed);
  std::vector<const Question*> order;
  for (const Question& question : questions) order.push_back(&question);
  for (std::uint32_t i = 0; i < rounds; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    for (const Question* question : order) {
      const absl::Status prepared =
          question->prepare == nullptr ? absl::OkStatus() : question->prepare();
      if (!prepared.ok()) return prepared;
      const double begin = NowSeconds();
      const absl::StatusOr<std::string> answer = question->ask();
      seconds[question->name].push_back(NowSeconds() - begin);
      if (!answer.ok()) return answer.status();
      if (answer->empty()) return absl::InternalError(question->name + " answers nothing");
    }
  }
  return seconds;
}

}  // namespace

absl::StatusOr<Outcome> RunApi(const BenchOptions& options) {
  const auto conversations =
      static_cast<std::uint32_t>(std::max(200.0, kConversations * options.scale));
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  auto few = StartOver(kFew, folder->path(), options.seed);
  if (!few.ok()) return few.status();
  auto many = StartOver(conversations, folder->path(), options.seed);
  if (!many.ok()) return many.status();
  const double begin = NowSeconds();
  const absl::StatusOr<std::vector<std::string>> ids = ListAll(**many);
  const double list_all_s = NowSeconds() - begin;
  if (!ids.ok()) return ids.status();
  if (ids->size() != conversations) {
    return absl::InternalError(absl::StrCat(ids->size(), " conversations are listed"));
  }
  std::mt19937_64 random(options.seed);
  const auto text = [](ServerProcess* server, std::string path) {
    return [server, path = std::move(path)] { return server->GetText(path); };
  };
  // Of the first half: those at the end are taken away one by one.
  const auto list = [&] {
    const std::string& after = (*ids)[random() % ids->size() / 2];
    return (*many)->GetText(absl::StrCat("/conversations?limit=", kPage, "&after=", after));
  };
  std::size_t left = ids->size();
  const auto change = [&] { return (*many)->Delete("/conversations/" + (*ids)[--left]); };
  const std::vector<Question> questions = {
      {"health", text(many->get(), "/health")},
      {"metrics", text(many->get(), "/metrics")},
      {"few_metrics", text(few->get(), "/metrics")},
      {"list", list},
      // The order of eviction has to be found anew.
      {"list_after_change", list, change},
      {"show",
       [&] { return (*many)->GetText("/conversations/" + (*ids)[random() % ids->size() / 2]); }},
  };
  const std::uint32_t requests = std::min(kRequests, conversations / 4);
  const auto asked = AskInTurns(questions, requests, options.seed);
  if (!asked.ok()) return asked.status();
  const absl::StatusOr<std::string> few_metrics = (*few)->GetText("/metrics");
  const absl::StatusOr<std::string> many_metrics = (*many)->GetText("/metrics");
  if (!few_metrics.ok() || !many_metrics.ok()) return absl::UnavailableError("no /metrics");

  Outcome outcome;
  outcome.notes.push_back(absl::StrFormat("%d conversations of %d parks against %d; %d requests",
                                          conversations, kParks, kFew, requests));
  for (const char* name : {"health", "metrics", "list", "list_after_change", "show"}) {
    outcome.Add(absl::StrCat(name, "_p50_ms"), 1e3 * Percentile(asked->at(name), 0.5));
    outcome.Add(absl::StrCat(name, "_p99_ms"), 1e3 * Percentile(asked->at(name), 0.99));
  }
  const double health = Median(asked->at("health"));
  outcome.Add("metrics_vs_health", Median(asked->at("metrics")) / health);
  outcome.Add("list_vs_health", Median(asked->at("list")) / health);
  outcome.Add("metrics_vs_few_chats",
              Median(asked->at("metrics")) / Median(asked->at("few_metrics")));
  outcome.Add("metrics_bytes_vs_few_chats",
              static_cast<double>(many_metrics->size()) / static_cast<double>(few_metrics->size()));
  outcome.Add("list_all_s", list_all_s);
  outcome.AtMost("metrics_p99_ms", 5);
  outcome.AtMost("list_p99_ms", 20);
  outcome.AtMost("list_after_change_p99_ms", 20);
  // A scrape's cost does not depend on what is kept; a half more is what two processes differ by on
  // a busy machine.
  outcome.AtMost("metrics_vs_few_chats", 1.5);
  outcome.AtMost("metrics_bytes_vs_few_chats", 1.05);
  return outcome;
}

}  // namespace parkade::bench
