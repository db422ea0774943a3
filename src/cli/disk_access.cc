#include "src/cli/disk_access.h"

#include <sys/stat.h>

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "parkade/conversation_cache.h"
#include "src/server/api.h"
#include "tiers/disk/disk_tier.h"
#include "tiers/disk/names.h"

namespace parkade {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kNoBudget = std::numeric_limits<std::uint64_t>::max();
constexpr double kGib = 1u << 30;

// Nothing is restored or parked: the buffers are never used.
CacheOptions LookingOptions() {
  CacheOptions options;
  options.ram_budget_bytes = 0;
  options.capture_buffer_bytes = kExtentBytes;
  options.read_buffer_bytes = kExtentBytes;
  options.index_bytes = kNoBudget;
  options.reader_threads = 0;
  return options;
}

struct OpenedCache {
  EventSink sink;
  std::unique_ptr<ConversationCache> cache;  // goes before the sink
};

ApiResponse Answer(ConversationCache& cache, const HttpRequest& request) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(request.path, absl::MaxSplits('?', 1));
  QueryParameters query;
  for (const absl::string_view word : absl::StrSplit(parts.second, '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> field = absl::StrSplit(word, absl::MaxSplits('=', 1));
    query[field.first] = field.second;
  }
  return Handle(cache, request.method, parts.first, query, request.body);
}

// There is no server that could be said to answer.
absl::Status Refusal(const ApiResponse& response) {
  const Json json = Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  const Json error = json.is_object() ? json.value("error", Json::object()) : Json::object();
  return absl::UnknownError(error.value("message", "status " + std::to_string(response.status)));
}

std::string WithoutBudgets(const std::string& body) {
  Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("tiers") || !json.contains("conversations")) return body;
  for (Json& tier : json["tiers"]) tier["budget_bytes"] = nullptr;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

bool HoldsTier(const std::string& directory) {
  struct stat info;
  // Either may have been lost.
  for (const std::string_view name : {disk::kVersionName, disk::kSegmentsName}) {
    if (::lstat(absl::StrCat(directory, "/", std::string(name)).c_str(), &info) == 0) return true;
  }
  return false;
}

absl::StatusOr<std::unique_ptr<Tier>> OpenExistingTier(const std::string& directory,
                                                       const SharedSealKey& key) {
  struct stat info;
  if (::lstat(directory.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat(directory, " does not exist"));
  }
  if (S_ISDIR(info.st_mode) && !HoldsTier(directory)) {
    return absl::NotFoundError(absl::StrCat(directory, " holds no disk tier"));
  }
  DiskTierOptions options;
  options.directory = directory;
  options.budget_bytes = kNoBudget;
  options.min_free_bytes = 0;
  options.key = key;
  return OpenDiskTier(options);
}

absl::StatusOr<std::unique_ptr<Tier>> OpenTierForImport(const std::string& directory,
                                                        double budget_gib,
                                                        std::uint64_t min_free_mib,
                                                        const SharedSealKey& key) {
  DiskTierOptions options;
  options.directory = directory;
  options.budget_bytes = budget_gib > 0 ? static_cast<std::uint64_t>(budget_gib * kGib) : kNoBudget;
  options.min_free_bytes = min_free_mib << 20;
  options.key = key;
  return OpenDiskTier(options);
}

absl::StatusOr<HttpCall> OpenDiskApi(const std::string& directory, const SharedSealKey& key) {
  absl::StatusOr<std::unique_ptr<Tier>> tier = OpenExistingTier(directory, key);
  if (!tier.ok()) return tier.status();
  auto opened = std::make_shared<OpenedCache>();
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(*std::move(tier));
  absl::StatusOr<std::unique_ptr<ConversationCache>> cache =
      ConversationCache::Open(LookingOptions(), std::move(tiers), &opened->sink);
  if (!cache.ok()) return cache.status();
  opened->cache = *std::move(cache);
  return HttpCall([opened](const HttpRequest& request) -> absl::StatusOr<HttpReply> {
    const ApiResponse response = Answer(*opened->cache, request);
    if (response.status >= 400) return Refusal(response);
    return HttpReply{response.status, WithoutBudgets(response.body)};
  });
}

}  // namespace parkade
