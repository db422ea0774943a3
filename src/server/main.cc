// parkade-server: llama-server with conversations that are kept. Composes, and does nothing else.

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parkade/conversation_cache.h"
#include "src/engine/llama/llama_weights.h"
#include "src/engine/llama/log_sink.h"
#include "src/engine/llama/run_server.h"
#include "src/engine/llama/session.h"
#include "src/engine/llama/web.h"
#include "src/format/page_hash.h"
#include "src/metrics/metrics.h"
#include "src/server/flags.h"
#include "src/server/key_file.h"
#include "src/server/password_file.h"
#include "src/server/router.h"
#include "tiers/disk/disk_tier.h"
#include "tiers/ram/ram_tier.h"
#include "tiers/remote/remote_tier.h"

namespace {

constexpr int kExitUsage = 2;

int Fail(const absl::Status& status) {
  fprintf(stderr, "error: %.*s\n", static_cast<int>(status.message().size()),
          status.message().data());
  return kExitUsage;
}

// Content digests are remembered beside the downloads, not in a tier: they belong to files.
std::string DigestMemoFile() {
  const std::string folder = parkade::CacheFolder();
  return folder.empty() || !parkade::MakeFolder(folder).ok() ? "" : folder + "/digests.json";
}

absl::StatusOr<parkade::remote::RemoteUrl> ReadRemoteAddress(const std::string& address) {
  const auto wrong = [](const absl::Status& status) {
    return absl::InvalidArgumentError("--conversation-cache-remote: " +
                                      std::string(status.message()));
  };
  absl::StatusOr<parkade::remote::RemoteUrl> url = parkade::remote::ParseRemoteUrl(address);
  if (!url.ok()) return wrong(url.status());
  if (url->password_file.empty()) return url;
  absl::StatusOr<std::string> password = parkade::ReadPasswordFile(url->password_file);
  if (!password.ok()) return wrong(password.status());
  url->password = *std::move(password);
  url->password_file.clear();
  return url;
}

// What stands behind the hooks. Nothing is opened before Open.
class Backing {
 public:
  Backing(const parkade::ParsedFlags& flags, bool child)
      : flags_(flags),
        child_(child),
        metrics_({PARKADE_VERSION, parkade::LlamaVersion(), PARKADE_ROCKSDB_VERSION, ""}, {&log_}) {
    parkade::SetWeb({nullptr, [this] { return metrics_.Scrape(); }});
  }
  ~Backing() {
    parkade::SetSession(nullptr);
    metrics_.SetSnapshot(nullptr);
  }

  absl::Status Open(const std::string& model_path);

 private:
  absl::StatusOr<std::vector<std::unique_ptr<parkade::Tier>>> OpenTiers(
      const std::string& model_path, const std::string& digest_memo_file);
  absl::Status AddDisk(const std::string& model_path, const std::string& digest_memo_file,
                       std::vector<std::unique_ptr<parkade::Tier>>* tiers);
  absl::StatusOr<std::unique_ptr<parkade::Tier>> OpenDisk(const std::string& directory) const;
  absl::StatusOr<std::unique_ptr<parkade::SharedTier>> OpenRemote() const;
  // The folder of this model below the router's.
  absl::StatusOr<std::string> ChildDirectory(const std::string& model_path,
                                             const std::string& digest_memo_file);
  parkade::SessionOptions SessionOptionsFor(parkade::ConversationCache* cache,
                                            const std::string& digest_memo_file);

  const parkade::ParsedFlags flags_;
  const bool child_;
  parkade::SharedSealKey key_;  // null: nothing is encrypted
  parkade::LogSink log_;
  parkade::Metrics metrics_;
  std::unique_ptr<parkade::ConversationCache> cache_;
  std::unique_ptr<parkade::Session> session_;
};

absl::StatusOr<std::string> Backing::ChildDirectory(const std::string& model_path,
                                                    const std::string& digest_memo_file) {
  parkade::WeightsDigestOptions options;
  options.model_path = model_path;
  options.memo_path = digest_memo_file;
  options.now_unix_ns = [] {
    return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  int told = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    const int tenth = total == 0 ? 10 : static_cast<int>(done * 10 / total);
    // Small files are done before anybody reads a line.
    if (tenth <= told || total < (4ull << 30)) return;
    told = tenth;
    log_.Log(parkade::LogLevel::kInfo, "digest of the weights, which names the folder on disk: " +
                                           std::to_string(tenth * 10) + " %");
  };
  const absl::StatusOr<parkade::WeightsDigest> digest = parkade::ComputeWeightsDigest(options);
  if (!digest.ok()) return digest.status();
  return flags_.disk.directory + "/" + parkade::ToHex(digest->digest);
}

absl::StatusOr<std::unique_ptr<parkade::Tier>> Backing::OpenDisk(
    const std::string& directory) const {
  parkade::DiskTierOptions disk;
  disk.directory = directory;
  disk.budget_bytes = flags_.disk.budget_bytes;
  disk.min_free_bytes = flags_.disk.min_free_bytes;
  disk.codec = flags_.disk.codec;
  disk.key = key_;
  return parkade::OpenDiskTier(disk);
}

absl::StatusOr<std::vector<std::unique_ptr<parkade::Tier>>> Backing::OpenTiers(
    const std::string& model_path, const std::string& digest_memo_file) {
  std::vector<std::unique_ptr<parkade::Tier>> tiers;
  if (flags_.cache.ram_budget_bytes > 0) {
    parkade::RamTierOptions ram;
    ram.budget_bytes = flags_.cache.ram_budget_bytes;
    ram.min_free_bytes = flags_.cache.ram_min_free_bytes;
    tiers.push_back(parkade::MakeRamTier(ram));
  }
  if (absl::Status disk = AddDisk(model_path, digest_memo_file, &tiers); !disk.ok()) return disk;
  if (flags_.remote.address.empty()) return tiers;
  absl::StatusOr<std::unique_ptr<parkade::SharedTier>> remote = OpenRemote();
  if (!remote.ok()) return remote.status();
  tiers.push_back(*std::move(remote));
  return tiers;
}

absl::StatusOr<std::unique_ptr<parkade::SharedTier>> Backing::OpenRemote() const {
  absl::StatusOr<parkade::remote::RemoteUrl> url = ReadRemoteAddress(flags_.remote.address);
  if (!url.ok()) return url.status();
  parkade::RemoteTierOptions remote;
  remote.url = *std::move(url);
  remote.ttl = absl::Seconds(flags_.remote.ttl_s);
  remote.deadline = absl::Milliseconds(flags_.remote.deadline_ms);
  remote.redis.connect_timeout = remote.deadline;
  remote.codec = flags_.disk.codec;
  remote.key = key_;
  return parkade::OpenRemoteTier(remote);
}

absl::Status Backing::AddDisk(const std::string& model_path, const std::string& digest_memo_file,
                              std::vector<std::unique_ptr<parkade::Tier>>* tiers) {
  if (flags_.disk.directory.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> directory = flags_.disk.directory;
  if (child_) directory = ChildDirectory(model_path, digest_memo_file);
  if (!directory.ok()) return directory.status();
  absl::StatusOr<std::unique_ptr<parkade::Tier>> tier = OpenDisk(*directory);
  if (tier.ok()) {
    tiers->push_back(*std::move(tier));
  } else if (child_ && absl::IsFailedPrecondition(tier.status())) {
    // A router may serve the same weights under two names; both have to answer.
    log_.Log(parkade::LogLevel::kWarning,
             "conversations of this model are not kept on disk: " +
                 std::string(tier.status().message().data(), tier.status().message().size()));
  } else {
    return tier.status();
  }
  return absl::OkStatus();
}

parkade::SessionOptions Backing::SessionOptionsFor(parkade::ConversationCache* cache,
                                                   const std::string& digest_memo_file) {
  parkade::SessionOptions options;
  options.cache = cache;
  options.sink = &log_;
  // A router's flags are for all its models; some may be encoders.
  options.required = flags_.any_given && !child_;
  options.digest_memo_file = digest_memo_file;
  options.on_model = [this](const std::string& model) { metrics_.SetModel(model); };
  options.on_stages = [this](int stages) { metrics_.DeclareStages(stages); };
  options.on_prompt_read = [this](std::uint32_t first, std::uint32_t tokens, double seconds) {
    metrics_.OnPromptRead(first, tokens, seconds);
    if (cache_ != nullptr) cache_->NotePromptRead(first, tokens, seconds);
  };
  options.on_first_token = [this](std::optional<parkade::Source> lowest, double seconds) {
    metrics_.OnFirstToken(lowest, seconds);
  };
  return options;
}

absl::Status Backing::Open(const std::string& model_path) {
  const std::string digest_memo_file = DigestMemoFile();
  absl::StatusOr<parkade::SharedSealKey> key = parkade::ReadKeyFile(flags_.disk.key_file);
  if (!key.ok()) return key.status();
  key_ = *std::move(key);
  auto tiers = OpenTiers(model_path, digest_memo_file);
  if (!tiers.ok()) return tiers.status();
  const bool off = tiers->empty();
  parkade::CacheOptions options = flags_.cache;
  options.page_hash_key = parkade::PageHashKey(key_);
  auto cache = parkade::ConversationCache::Open(options, *std::move(tiers), &metrics_);
  if (!cache.ok()) return cache.status();
  cache_ = *std::move(cache);
  metrics_.SetSnapshot([this] {
    return parkade::MetricsSnapshot{cache_->Tiers(), cache_->Queue()};
  });
  session_ = std::make_unique<parkade::Session>(
      SessionOptionsFor(off ? nullptr : cache_.get(), digest_memo_file));
  parkade::SetSession(session_.get());
  parkade::SetWeb({cache_.get(), [this] { return metrics_.Scrape(); }});
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const bool child = parkade::StartedByRouter();
  const absl::StatusOr<parkade::ParsedFlags> flags =
      child ? parkade::ParseChildFlags(argc, argv) : parkade::ParseFlags(argc, argv);
  if (!flags.ok()) return Fail(flags.status());
  for (const std::string& notice : flags->notices) fprintf(stderr, "%s\n", notice.c_str());
  if (flags->help_wanted) fputs(parkade::FlagsHelp().c_str(), stdout);

  // Static: its file goes also when llama-server ends the process with exit().
  static std::optional<parkade::RouterOptions> for_children;
  if (!child) for_children.emplace(parkade::CacheFolder());
  Backing backing(*flags, child);
  parkade::ServerCallbacks callbacks;
  callbacks.on_router = [&] {
    parkade::SetWeb({nullptr, nullptr, "in router mode the server of each model answers this"});
    const std::string& directory = flags->disk.directory;
    absl::Status usable =
        directory.empty() ? absl::OkStatus() : parkade::CheckRouterDirectory(directory);
    if (usable.ok()) usable = parkade::ReadKeyFile(flags->disk.key_file).status();
    if (usable.ok() && !flags->remote.address.empty()) {
      usable = ReadRemoteAddress(flags->remote.address).status();
    }
    return usable.ok() && for_children ? for_children->Write(*flags) : usable;
  };
  callbacks.before_load = [&](const std::string& model_path) { return backing.Open(model_path); };
  return parkade::RunLlamaServer(flags->rest, std::move(callbacks));
}
