// Session: what must be equal for reuse. Contents are digested on a thread of their own.

#include <chrono>
#include <cstdio>
#include <utility>

#include "common.h"
#include "src/engine/llama/llama_identity.h"
#include "src/engine/llama/llama_weights.h"
#include "src/engine/llama/session.h"

namespace parkade {
namespace {

std::int64_t NowUnixNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Adapters in use with their scales; adapters of scale 0 change nothing.
std::string AdapterKey(const std::vector<common_adapter_lora_info>& lora) {
  std::string key;
  char scale[32];
  for (const common_adapter_lora_info& adapter : lora) {
    if (adapter.scale == 0.0f) continue;
    snprintf(scale, sizeof(scale), "*%a", adapter.scale);
    key += adapter.path + scale + "\n";
  }
  return key;
}

}  // namespace

std::string Session::AdapterSet(const std::vector<common_adapter_lora_info>& lora) const {
  return AdapterKey(lora);
}

// The content digest of a file (and its shards) as text; empty when it can't be read.
std::string Session::ContentDigest(const std::string& path, bool progress) {
  WeightsDigestOptions options;
  options.model_path = path;
  options.memo_path = options_.digest_memo_file;
  options.cancel = &stop_digest_;
  options.now_unix_ns = NowUnixNs;
  int told = 0;
  if (progress) {
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      const int tenth = total == 0 ? 10 : static_cast<int>(done * 10 / total);
      // Small files are done before anybody reads a line.
      if (tenth <= told || total < (4ull << 30)) return;
      told = tenth;
      Log(LogLevel::kInfo, "digest of the weights: " + std::to_string(tenth * 10) +
                               " % (conversations are kept from the end of it on)");
    };
  }
  const absl::StatusOr<WeightsDigest> digest = ComputeWeightsDigest(options);
  if (digest.ok()) return ToHex(digest->digest);
  if (!absl::IsCancelled(digest.status())) {
    const auto message = digest.status().message();
    Log(LogLevel::kWarning, "the conversation cache is off, a file can't be digested: " +
                                std::string(message.data(), message.size()));
  }
  return "";
}

void Session::ComputeIdentity() {
  const common_params& params = *loaded_.params;
  Contents contents;
  contents.weights = ContentDigest(params.model.path, true);
  bool whole = !contents.weights.empty();
  for (const common_adapter_lora_info& adapter : params.lora_adapters) {
    const std::string digest = ContentDigest(adapter.path, false);
    whole = whole && !digest.empty();
    contents.adapters[adapter.path] = digest;
  }
  char number[64];
  for (const common_control_vector_load_info& vector : params.control_vectors) {
    const std::string digest = ContentDigest(vector.fname, false);
    whole = whole && !digest.empty();
    snprintf(number, sizeof(number), "*%a ", vector.strength);
    contents.control_vectors += digest + number;
  }
  if (!params.control_vectors.empty()) {
    snprintf(number, sizeof(number), "layers %d-%d", params.control_vector_layer_start,
             params.control_vector_layer_end);
    contents.control_vectors += number;
  }
  if (!params.mmproj.path.empty()) {
    const std::string digest = ContentDigest(params.mmproj.path, false);
    whole = whole && !digest.empty();
    snprintf(number, sizeof(number), " images %d-%d tokens", params.image_min_tokens,
             params.image_max_tokens);
    contents.projector = digest + number;
  }
  if (!whole || stop_digest_) return;
  {
    absl::MutexLock lock(&mu_);
    contents_ = std::move(contents);
    contents_known_ = true;
  }
  // Registers the usual adapter set here, where a disk may be waited for.
  IdentityFor(params.lora_adapters);
  {
    absl::MutexLock lock(&mu_);
    identity_ready_ = true;
  }
  Log(LogLevel::kInfo, "the weights are known: from now on conversations are looked up and parked");
  loaded_.wake();
}

std::optional<Digest128> Session::IdentityFor(const std::vector<common_adapter_lora_info>& lora) {
  const std::string key = AdapterKey(lora);
  LlamaIdentityExtras extras;
  {
    absl::MutexLock lock(&mu_);
    if (!contents_known_) return std::nullopt;
    auto known = identities_.find(key);
    if (known != identities_.end()) return known->second;
    extras.weights = contents_.weights;
    extras.control_vectors = contents_.control_vectors;
    extras.projector = contents_.projector;
    char scale[32];
    for (const common_adapter_lora_info& adapter : lora) {
      if (adapter.scale == 0.0f) continue;
      auto digest = contents_.adapters.find(adapter.path);
      // An adapter that was not there at start-up: fail closed.
      if (digest == contents_.adapters.end()) return std::nullopt;
      snprintf(scale, sizeof(scale), "*%a ", adapter.scale);
      extras.adapters += digest->second + scale;
    }
  }
  Identity identity;
  BuildIdentityFields(*view_, extras, &identity);
  const absl::StatusOr<Digest128> digest =
      options_.cache->RegisterIdentity(identity, view_->layout());
  if (!digest.ok()) {
    const auto message = digest.status().message();
    Log(LogLevel::kWarning, "identity refused: " + std::string(message.data(), message.size()));
    return std::nullopt;
  }
  absl::MutexLock lock(&mu_);
  identities_[key] = *digest;
  return *digest;
}

}  // namespace parkade
