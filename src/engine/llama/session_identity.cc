// Session: what must be equal for reuse. Contents are digested on a thread of their own.

#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "common.h"
#include "src/engine/llama/llama_identity.h"
#include "src/engine/llama/llama_weights.h"
#include "src/engine/llama/prompt_tokens.h"
#include "src/engine/llama/session.h"

namespace parkade {
namespace {

// Of adapter sets with their scales; most servers have one or a handful.
constexpr std::size_t kKnownIdentities = 64;

std::int64_t NowUnixNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Tells whether a file is still the one that was loaded; "?" when it can't be looked at.
std::string StampOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "?";
  char text[160];
  snprintf(text, sizeof(text), "%llu %llu %lld %lld.%ld %lld.%ld\n",
           static_cast<unsigned long long>(info.st_dev),
           static_cast<unsigned long long>(info.st_ino), static_cast<long long>(info.st_size),
           static_cast<long long>(info.st_mtim.tv_sec), info.st_mtim.tv_nsec,
           static_cast<long long>(info.st_ctim.tv_sec), info.st_ctim.tv_nsec);
  return text;
}

// Of all files that the identity names; empty when one of them can't be looked at.
std::string FileStamps(const common_params& params) {
  std::vector<std::string> paths = WeightShards(params.model.path);
  for (const common_adapter_lora_info& adapter : params.lora_adapters) {
    paths.push_back(adapter.path);
  }
  for (const common_control_vector_load_info& vector : params.control_vectors) {
    paths.push_back(vector.fname);
  }
  if (!params.mmproj.path.empty()) paths.push_back(params.mmproj.path);
  const std::string& draft = params.speculative.draft.mparams.path;
  if (!draft.empty()) paths.push_back(draft);
  std::string stamps;
  for (const std::string& path : paths) stamps += path + " " + StampOf(path);
  return stamps.find('?') == std::string::npos ? stamps : "";
}

// Values of the model's file that were replaced on the command line: they change what is computed.
std::string Overrides(const std::vector<llama_model_kv_override>& overrides) {
  std::string text;
  char value[192];
  for (const llama_model_kv_override& entry : overrides) {
    if (entry.key[0] == 0) break;  // the list's end
    switch (entry.tag) {
      case LLAMA_KV_OVERRIDE_TYPE_INT:
        snprintf(value, sizeof(value), "int %lld", static_cast<long long>(entry.val_i64));
        break;
      case LLAMA_KV_OVERRIDE_TYPE_FLOAT:
        snprintf(value, sizeof(value), "float %a", entry.val_f64);
        break;
      case LLAMA_KV_OVERRIDE_TYPE_BOOL:
        snprintf(value, sizeof(value), "bool %d", entry.val_bool ? 1 : 0);
        break;
      case LLAMA_KV_OVERRIDE_TYPE_STR:
        snprintf(value, sizeof(value), "str %.127s", entry.val_str);
        break;
    }
    text += std::string(entry.key) + " " + value + "; ";
  }
  return text;
}

}  // namespace

// After every load. What was known of the files stays known while they are the same, so that the
// request that ends an idle sleep finds its conversation.
void Session::StartIdentity() {
  context_identity_ = Identity();
  BuildIdentityFields(*view_, LlamaIdentityExtras(), &context_identity_);
  const common_params& params = *loaded_.params;
  const std::string stamps = FileStamps(params);
  const bool same = !stamps.empty() && stamps == file_stamps_;
  file_stamps_ = stamps;
  {
    absl::MutexLock lock(&mu_);
    if (same && identity_ready_) return;
    contents_known_ = false;
    identity_ready_ = false;
    identities_.clear();
    usual_identity_ = std::nullopt;
  }
  digest_thread_ = std::thread([this, params] { ComputeIdentity(params); });
}

// Adapters in use with their scales; adapters of scale 0 change nothing.
std::string Session::AdapterSet(const std::vector<common_adapter_lora_info>& lora) {
  std::string set;
  char scale[32];
  for (const common_adapter_lora_info& adapter : lora) {
    if (adapter.scale == 0.0f) continue;
    snprintf(scale, sizeof(scale), "*%a", adapter.scale);
    set += adapter.path + scale + "\n";
  }
  return set;
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

void Session::ComputeIdentity(const common_params& params) {
  Contents contents;
  contents.overrides = Overrides(params.kv_overrides);
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
  // Without it the draft's rows are not kept, and all else is.
  const std::string& draft = params.speculative.draft.mparams.path;
  if (!draft.empty()) contents.draft_weights = ContentDigest(draft, false);
  if (!whole || stop_digest_) return;
  {
    absl::MutexLock lock(&mu_);
    contents_ = std::move(contents);
    contents_known_ = true;
  }
  const std::optional<Digest128> usual = IdentityFor(params.lora_adapters);
  {
    absl::MutexLock lock(&mu_);
    usual_identity_ = usual;
    identity_ready_ = true;
  }
  Log(LogLevel::kInfo, "the weights are known: from now on conversations are looked up and parked");
  loaded_.wake();
}

void Session::PrepareDraft() {
  draft_view_ = nullptr;
  draft_ = nullptr;
  if (loaded_.ctx_dft == nullptr) return;
  auto refuse = [this](const std::string& why) {
    draft_view_ = nullptr;
    Log(LogLevel::kInfo, "the draft model's rows are not kept: " + why);
  };
  for (const common_speculative_type type : loaded_.params->speculative.types) {
    // Other kinds go on from more than their rows.
    const bool rows_alone = type == COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE ||
                            type == COMMON_SPECULATIVE_TYPE_NONE ||
                            type >= COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE;
    if (!rows_alone) return refuse("this kind of speculation keeps more than them");
  }
  LlamaViewOptions options;
  options.swa_full = loaded_.params->swa_full;
  auto view = LlamaMemoryView::Create(loaded_.ctx_dft, options);
  absl::Status status = view.status();
  if (status.ok()) status = (*view)->CheckLayout(0);
  if (status.ok()) status = DraftModel::Create(*view, "draft").status();
  if (!status.ok()) {
    return refuse(std::string(status.message().data(), status.message().size()));
  }
  draft_view_ = *std::move(view);
}

std::shared_ptr<const DraftModel> Session::Draft() {
  if (draft_ != nullptr || draft_view_ == nullptr) return draft_;
  LlamaIdentityExtras extras;
  {
    absl::MutexLock lock(&mu_);
    if (!contents_known_ || contents_.draft_weights.empty()) return nullptr;
    extras.weights = contents_.draft_weights;
  }
  Identity identity;
  BuildIdentityFields(*draft_view_, extras, &identity);
  auto draft = DraftModel::Create(draft_view_, "draft " + ToHex(identity.digest()));
  if (draft.ok()) draft_ = *std::move(draft);
  return draft_;
}

void Session::AddDraft(LookupRequest* request) {
  const std::shared_ptr<const DraftModel> draft = Draft();
  if (draft == nullptr) return;
  request->draft = draft->stage();
  request->draft_layout = draft->layout();
}

std::unique_ptr<EngineSequence> Session::SequenceOf(int slot, const server_tokens& tokens) {
  std::shared_ptr<const TokenPlaces> places;
  if (view_->wide()) places = std::make_shared<const TokenPlaces>(PlacesOf(tokens));
  std::shared_ptr<const DraftModel> draft = Draft();
  // A draft does not read images as the model does.
  if (draft == nullptr || HasMedia(tokens)) {
    return std::make_unique<LlamaSequence>(view_, slot, std::move(places));
  }
  return std::make_unique<DraftedSequence>(view_, std::move(draft), slot, std::move(places));
}

// Requests may bring any number of adapter scales, so few identities are remembered, here and in
// the cache: it is told of them every time, which is cheap.
std::optional<Digest128> Session::IdentityFor(const std::vector<common_adapter_lora_info>& lora) {
  const std::string key = AdapterSet(lora);
  Identity identity = context_identity_;
  {
    absl::MutexLock lock(&mu_);
    if (!contents_known_) return std::nullopt;
    auto known = identities_.find(key);
    if (known == identities_.end()) {
      std::string adapters;
      char scale[32];
      for (const common_adapter_lora_info& adapter : lora) {
        if (adapter.scale == 0.0f) continue;
        auto digest = contents_.adapters.find(adapter.path);
        // An adapter that was not there at start-up: fail closed.
        if (digest == contents_.adapters.end()) return std::nullopt;
        snprintf(scale, sizeof(scale), "*%a ", adapter.scale);
        adapters += digest->second + scale;
      }
      identity.Set("weights", contents_.weights);
      identity.Set("control_vectors", contents_.control_vectors);
      identity.Set("projector", contents_.projector);
      if (!contents_.overrides.empty()) identity.Set("overrides", contents_.overrides);
      identity.Set("adapters", adapters);
      if (identities_.size() >= kKnownIdentities) identities_.clear();
      known = identities_.emplace(key, std::move(identity)).first;
    }
    identity = known->second;
  }
  const absl::StatusOr<Digest128> digest =
      options_.cache->RegisterIdentity(identity, view_->layout());
  if (digest.ok()) return *digest;
  const auto message = digest.status().message();
  Log(LogLevel::kWarning, "identity refused: " + std::string(message.data(), message.size()));
  return std::nullopt;
}

}  // namespace parkade
