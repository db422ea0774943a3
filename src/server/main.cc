// parkade-server: llama-server with conversations that are kept. Composes, and does nothing else.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parkade/conversation_cache.h"
#include "src/engine/llama/log_sink.h"
#include "src/engine/llama/run_server.h"
#include "src/engine/llama/session.h"
#include "src/engine/llama/web.h"
#include "src/metrics/metrics.h"
#include "src/server/flags.h"
#include "tiers/disk/disk_tier.h"
#include "tiers/ram/ram_tier.h"

namespace {

constexpr int kExitUsage = 2;

int Fail(const absl::Status& status) {
  fprintf(stderr, "error: %.*s\n", static_cast<int>(status.message().size()),
          status.message().data());
  return kExitUsage;
}

// Content digests are remembered beside the downloads, not in a tier: they belong to files.
std::string DigestMemoFile() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache != '\0') return std::string(cache) + "/parkade/digests.json";
  if (home != nullptr && *home != '\0') return std::string(home) + "/.cache/parkade/digests.json";
  return "";
}

absl::StatusOr<std::vector<std::unique_ptr<parkade::Tier>>> OpenTiers(
    const parkade::ParsedFlags& flags) {
  std::vector<std::unique_ptr<parkade::Tier>> tiers;
  if (flags.cache.ram_budget_bytes > 0) {
    parkade::RamTierOptions ram;
    ram.budget_bytes = flags.cache.ram_budget_bytes;
    ram.min_free_bytes = flags.cache.ram_min_free_bytes;
    tiers.push_back(parkade::MakeRamTier(ram));
  }
  if (!flags.disk.directory.empty()) {
    parkade::DiskTierOptions disk;
    disk.directory = flags.disk.directory;
    disk.budget_bytes = flags.disk.budget_bytes;
    disk.min_free_bytes = flags.disk.min_free_bytes;
    disk.codec = flags.disk.codec;
    absl::StatusOr<std::unique_ptr<parkade::Tier>> tier = parkade::OpenDiskTier(disk);
    if (!tier.ok()) return tier.status();
    tiers.push_back(*std::move(tier));
  }
  return tiers;
}

}  // namespace

int main(int argc, char** argv) {
  absl::StatusOr<parkade::ParsedFlags> flags = parkade::ParseFlags(argc, argv);
  if (!flags.ok()) return Fail(flags.status());
  for (const std::string& notice : flags->notices) fprintf(stderr, "%s\n", notice.c_str());
  if (flags->help_wanted) {
    fputs(parkade::FlagsHelp().c_str(), stdout);
    return parkade::RunLlamaServer(flags->rest);
  }
  auto tiers = OpenTiers(*flags);
  if (!tiers.ok()) return Fail(tiers.status());
  const bool off = tiers->empty();

  parkade::LogSink log;
  parkade::BuildInfo build{PARKADE_VERSION, parkade::LlamaVersion(), PARKADE_ROCKSDB_VERSION, ""};
  parkade::Metrics metrics(build, {&log});
  auto cache = parkade::ConversationCache::Open(flags->cache, *std::move(tiers), &metrics);
  if (!cache.ok()) return Fail(cache.status());
  metrics.SetSnapshot([&] {
    return parkade::MetricsSnapshot{(*cache)->Tiers(), (*cache)->Queue()};
  });

  parkade::SessionOptions options;
  options.cache = off ? nullptr : cache->get();
  options.sink = &log;
  options.required = flags->any_given;
  options.digest_memo_file = DigestMemoFile();
  options.on_model = [&](const std::string& model) { metrics.SetModel(model); };
  options.on_stages = [&](int stages) { metrics.DeclareStages(stages); };
  options.on_prompt_read = [&](std::uint32_t first, std::uint32_t tokens, double seconds) {
    metrics.OnPromptRead(first, tokens, seconds);
  };
  options.on_first_token = [&](std::optional<parkade::Source> lowest, double seconds) {
    metrics.OnFirstToken(lowest, seconds);
  };
  parkade::Session session(std::move(options));
  parkade::SetSession(&session);
  parkade::SetWeb({cache->get(), [&] { return metrics.Scrape(); }});

  const int status = parkade::RunLlamaServer(flags->rest);
  parkade::SetSession(nullptr);
  metrics.SetSnapshot(nullptr);
  return status;
}
