// parkade.h: opening, closing, management. Composes the tiers, as the server's main does.

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/capi/border.h"
#include "src/capi/handles.h"
#include "src/format/page_hash.h"
#include "src/server/key_file.h"
#include "src/server/password_file.h"
#include "tiers/disk/disk_tier.h"
#include "tiers/ram/ram_tier.h"
#include "tiers/remote/remote_tier.h"

namespace parkade::capi {
namespace {

constexpr std::uint64_t kMib = 1ull << 20;
constexpr std::uint64_t kMostMib = 1ull << 30;  // 1 PiB
constexpr std::uint32_t kListPiece = 256;

absl::StatusOr<std::unique_ptr<SharedTier>> OpenRemote(const char* address,
                                                       const SharedSealKey& key) {
  absl::StatusOr<remote::RemoteUrl> url = remote::ParseRemoteUrl(address);
  if (!url.ok()) return url.status();
  if (!url->password_file.empty()) {
    absl::StatusOr<std::string> password = ReadPasswordFile(url->password_file);
    if (!password.ok()) return password.status();
    url->password = *std::move(password);
    url->password_file.clear();
  }
  RemoteTierOptions options;
  options.url = *std::move(url);
  options.redis.connect_timeout = options.deadline;
  options.codec = CodecChoice::kAuto;
  options.key = key;
  return OpenRemoteTier(options);
}

absl::StatusOr<std::vector<std::unique_ptr<Tier>>> OpenTiers(const parkade_cache_options& options,
                                                             const SharedSealKey& key) {
  std::vector<std::unique_ptr<Tier>> tiers;
  if (options.ram_mib > 0) {
    RamTierOptions ram;
    ram.budget_bytes = options.ram_mib * kMib;
    ram.min_free_bytes = options.ram_min_free_mib * kMib;
    tiers.push_back(MakeRamTier(ram));
  }
  if (*OrEmpty(options.disk_directory) != '\0') {
    DiskTierOptions disk;
    disk.directory = options.disk_directory;
    disk.budget_bytes = options.disk_mib * kMib;
    disk.min_free_bytes = options.disk_min_free_mib * kMib;
    disk.key = key;
    absl::StatusOr<std::unique_ptr<Tier>> tier = OpenDiskTier(disk);
    if (!tier.ok()) return tier.status();
    tiers.push_back(*std::move(tier));
  }
  if (tiers.empty()) {
    return absl::InvalidArgumentError("ram_mib or disk_directory: one of them must be set");
  }
  if (*OrEmpty(options.remote_url) != '\0') {
    absl::StatusOr<std::unique_ptr<SharedTier>> remote = OpenRemote(options.remote_url, key);
    if (!remote.ok()) {
      return absl::Status(remote.status().code(), std::string("remote_url: ")
                                                      .append(remote.status().message().data(),
                                                              remote.status().message().size()));
    }
    tiers.push_back(*std::move(remote));
  }
  return tiers;
}

absl::Status Open(const parkade_cache_options* given, parkade_cache** cache) {
  if (cache == nullptr) return NullArgument("cache");
  const absl::StatusOr<parkade_cache_options> options = ReadStruct(given, "options");
  if (!options.ok()) return options.status();
  for (const std::uint64_t mib : {options->ram_mib, options->ram_min_free_mib, options->disk_mib,
                                  options->disk_min_free_mib}) {
    if (mib > kMostMib) return absl::InvalidArgumentError("more than 1 PiB: sizes are in MiB");
  }
  const absl::StatusOr<SharedSealKey> key = ReadKeyFile(OrEmpty(options->key_file));
  if (!key.ok()) return key.status();
  absl::StatusOr<std::vector<std::unique_ptr<Tier>>> tiers = OpenTiers(*options, *key);
  if (!tiers.ok()) return tiers.status();
  CacheOptions set;
  set.ram_budget_bytes = options->ram_mib * kMib;
  set.ram_min_free_bytes = options->ram_min_free_mib * kMib;
  set.min_tokens = options->min_tokens;
  set.min_gain_tokens = options->min_gain_tokens;
  set.page_hash_key = PageHashKey(*key);
  auto body = std::make_shared<CacheBody>(options->log, options->log_user);
  absl::StatusOr<std::unique_ptr<ConversationCache>> opened =
      ConversationCache::Open(set, *std::move(tiers), &body->events());
  if (!opened.ok()) return opened.status();
  body->Set(*std::move(opened));
  *cache = new parkade_cache{std::move(body)};
  return absl::OkStatus();
}

absl::StatusOr<ConversationCache*> CacheOf(const parkade_cache* cache) {
  if (cache == nullptr) return NullArgument("cache");
  return cache->body->cache();
}

absl::StatusOr<ConversationId> IdFrom(const char* id) {
  if (id == nullptr) return NullArgument("id");
  const std::optional<Digest128> parsed = DigestFromHex(id);
  if (parsed.has_value()) return *parsed;
  return absl::InvalidArgumentError("a conversation's id is 32 hexadecimal digits");
}

bool Visit(const ConversationInfo& info,
           bool (*visit)(void* user, const parkade_conversation* conversation), void* user) {
  parkade_conversation out = {};
  out.struct_size = sizeof(out);
  WriteId(info.id, out.id);
  out.name = info.name.c_str();
  out.tokens = info.tokens;
  out.durable_tokens = info.durable_tokens;
  out.bytes = info.bytes;
  out.pinned = info.pinned;
  for (const TierKind tier : info.tiers) out.in_tier[static_cast<int>(SourceOf(tier))] = true;
  out.last_used_unix_ms = info.last_used_unix_ms;
  out.hits = info.hits;
  return visit(user, &out);
}

absl::Status List(const ConversationCache& cache, std::uint32_t limit,
                  bool (*visit)(void* user, const parkade_conversation* conversation), void* user) {
  if (visit == nullptr) return NullArgument("visit");
  std::uint64_t left = limit == 0 ? UINT64_MAX : limit;
  ConversationId last;
  while (left > 0) {
    const auto piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, kListPiece));
    const std::vector<ConversationInfo> list = cache.List(piece, last);
    for (const ConversationInfo& info : list) {
      if (!Visit(info, visit, user)) return absl::OkStatus();
    }
    if (list.size() < piece) break;
    last = list.back().id;
    left -= piece;
  }
  return absl::OkStatus();
}

parkade_stats StatsOf(const ConversationCache& cache, const EventCounts::Counts& counts) {
  static_assert(kSources == PARKADE_SOURCES);
  parkade_stats stats = {};
  stats.lookups = counts.lookups;
  stats.prompt_tokens = counts.prompt_tokens;
  std::copy_n(counts.hit_tokens, kSources, stats.hit_tokens);
  stats.miss_tokens = counts.miss_tokens;
  stats.restored_bytes = counts.restored_bytes;
  stats.parked_bytes = counts.parked_bytes;
  stats.skipped_tokens = counts.skipped_tokens;
  for (const TierInfo& tier : cache.Tiers()) {
    const int source = static_cast<int>(SourceOf(tier.kind));
    stats.used_bytes[source] = tier.usage.used_bytes;
    // Others decide what a remote holds.
    const bool none = tier.usage.budget_bytes == kNoBudgetBytes;
    stats.budget_bytes[source] = none ? 0 : tier.usage.budget_bytes;
  }
  const QueueInfo queue = cache.Queue();
  stats.queue_bytes = queue.spill_queue_bytes;
  stats.index_bytes = queue.index_bytes;
  stats.page_locked_bytes = queue.host_memory_bytes;
  return stats;
}

absl::Status Drain(ConversationCache& cache, std::int64_t deadline_ms) {
  if (deadline_ms < 0) return absl::InvalidArgumentError("deadline_ms is negative");
  const EventCounts::OnThisThread told;
  cache.Drain(deadline_ms);
  if (told.dropped_from_queue) {
    return absl::DeadlineExceededError("not all that was parked was stored in time; it is dropped");
  }
  if (cache.Queue().spill_queue_bytes == 0) return absl::OkStatus();
  return absl::DeadlineExceededError("the last of what was parked is still being written");
}

}  // namespace
}  // namespace parkade::capi

using parkade::capi::AtBorder;

extern "C" {

uint32_t parkade_api_version(void) { return PARKADE_API_VERSION; }

const char* parkade_version(void) { return PARKADE_VERSION; }

void parkade_cache_options_init(parkade_cache_options* options, size_t struct_size) {
  if (options == nullptr || struct_size < sizeof(parkade_cache_options)) return;
  std::memset(static_cast<void*>(options), 0, struct_size);
  const parkade::CacheOptions defaults;
  options->struct_size = struct_size;
  options->ram_mib = defaults.ram_budget_bytes / parkade::capi::kMib;
  options->ram_min_free_mib = defaults.ram_min_free_bytes / parkade::capi::kMib;
  options->disk_min_free_mib = parkade::DiskTierOptions().min_free_bytes / parkade::capi::kMib;
  options->min_tokens = defaults.min_tokens;
  options->min_gain_tokens = defaults.min_gain_tokens;
}

parkade_status parkade_open(const parkade_cache_options* options, parkade_cache** cache) {
  return AtBorder([&] { return parkade::capi::Open(options, cache); });
}

void parkade_close(parkade_cache* cache) {
  if (cache == nullptr) return;
  (void)AtBorder([&] {
    cache->body->Close();
    return absl::OkStatus();
  });
  delete cache;
}

parkade_status parkade_drain(parkade_cache* cache, int64_t deadline_ms) {
  return AtBorder([&] {
    const auto open = parkade::capi::CacheOf(cache);
    if (!open.ok()) return open.status();
    return parkade::capi::Drain(**open, deadline_ms);
  });
}

parkade_status parkade_note_prompt_read(parkade_cache* cache, uint32_t first_token, uint32_t tokens,
                                        double seconds) {
  return AtBorder([&] {
    const auto open = parkade::capi::CacheOf(cache);
    if (!open.ok()) return open.status();
    if (tokens == 0 || !(seconds > 0)) {
      return absl::InvalidArgumentError("tokens and seconds must be above 0");
    }
    (*open)->NotePromptRead(first_token, tokens, seconds);
    return absl::OkStatus();
  });
}

parkade_status parkade_forget(parkade_cache* cache, const char* id, uint32_t* kept_tokens) {
  return AtBorder([&] {
    const auto open = parkade::capi::CacheOf(cache);
    if (!open.ok()) return open.status();
    const auto conversation = parkade::capi::IdFrom(id);
    if (!conversation.ok()) return conversation.status();
    const absl::StatusOr<std::uint32_t> kept = (*open)->Forget(*conversation);
    if (kept.ok() && kept_tokens != nullptr) *kept_tokens = *kept;
    return kept.status();
  });
}

parkade_status parkade_pin(parkade_cache* cache, const char* id, bool pinned, const char* name) {
  return AtBorder([&] {
    const auto open = parkade::capi::CacheOf(cache);
    if (!open.ok()) return open.status();
    const auto conversation = parkade::capi::IdFrom(id);
    if (!conversation.ok()) return conversation.status();
    std::optional<std::string> wanted;
    if (name != nullptr) wanted = name;
    return (*open)->Pin(*conversation, pinned, wanted);
  });
}

parkade_status parkade_list(parkade_cache* cache, uint32_t limit,
                            bool (*visit)(void* user, const parkade_conversation* conversation),
                            void* user) {
  return AtBorder([&] {
    const auto open = parkade::capi::CacheOf(cache);
    if (!open.ok()) return open.status();
    return parkade::capi::List(**open, limit, visit, user);
  });
}

parkade_status parkade_get_stats(parkade_cache* cache, parkade_stats* stats) {
  return AtBorder([&] {
    const auto open = parkade::capi::CacheOf(cache);
    if (!open.ok()) return open.status();
    absl::Status writable = parkade::capi::CheckOutput(stats, "stats");
    if (!writable.ok()) return writable;
    const auto now = parkade::capi::StatsOf(**open, cache->body->events().counts());
    parkade::capi::WriteStruct(now, stats);
    return absl::OkStatus();
  });
}

}  // extern "C"
