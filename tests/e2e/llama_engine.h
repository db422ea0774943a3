// Tiny models, contexts and images for the tests that talk to llama.cpp directly. The models are
// those of tests/support/make_models.py; their folder is PARKADE_TEST_MODELS.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "llama.h"
#include "parkade/image.h"
#include "src/engine/llama/llama_memory_view.h"
#include "src/engine/llama/llama_sequence.h"

namespace parkade {

inline std::string ModelsFolder() {
  const char* folder = std::getenv("PARKADE_TEST_MODELS");
#ifdef PARKADE_TEST_MODELS_FOLDER
  if (folder == nullptr) folder = PARKADE_TEST_MODELS_FOLDER;
#endif
  return folder == nullptr ? "." : folder;
}

inline void QuietBackends() {
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
}

// Loaded once for the whole program.
inline llama_model* Model(const std::string& kind) {
  static std::map<std::string, llama_model*> models;
  llama_model*& model = models[kind];
  if (model == nullptr) {
    QuietBackends();
    llama_model_params params = llama_model_default_params();
    model = llama_model_load_from_file((ModelsFolder() + "/" + kind + ".gguf").c_str(), params);
  }
  return model;
}

struct ContextOptions {
  std::uint32_t cells = 2048;
  std::uint32_t sequences = 1;
  bool unified = true;
  bool swa_full = false;
  bool flash_attention = true;
  ggml_type type = GGML_TYPE_F16;
  std::uint32_t rollback_states = 0;  // recurrent snapshots, for speculation
  float rope_freq_base = 0;           // the model's
  float yarn_ext_factor = -1;
  LlamaCopiers::Factory copiers = nullptr;  // llama.cpp's devices' own
  std::function<void(const std::string& line)> tell = nullptr;
};

// A context with its view; decodes made-up tokens that are a function of (position, salt).
class Engine {
 public:
  Engine(const std::string& kind, const ContextOptions& options) : Engine(Model(kind), options) {}
  // `model` must outlive this.
  Engine(llama_model* model, const ContextOptions& options) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = options.cells;
    params.n_batch = 256;
    params.n_ubatch = 256;
    params.n_seq_max = options.sequences;
    params.kv_unified = options.unified;
    params.swa_full = options.swa_full;
    params.n_threads = 1;
    params.n_threads_batch = 1;
    params.n_rs_seq = options.rollback_states;
    params.rope_freq_base = options.rope_freq_base;
    params.yarn_ext_factor = options.yarn_ext_factor;
    params.type_k = options.type;
    params.type_v = options.type;
    params.flash_attn_type =
        options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    vocabulary_ = llama_vocab_n_tokens(llama_model_get_vocab(model));
    context_ = llama_init_from_model(model, params);
    auto view =
        LlamaMemoryView::Create(context_, {options.swa_full, options.copiers, options.tell});
    status_ = view.status();
    if (view.ok()) view_ = *std::move(view);
  }
  ~Engine() {
    view_.reset();
    llama_free(context_);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int Decode(std::int32_t sequence, std::uint32_t begin, std::uint32_t end, int salt = 0) {
    for (std::uint32_t at = begin; at < end;) {
      const auto count = static_cast<int>(std::min<std::uint32_t>(100, end - at));
      llama_batch batch = llama_batch_init(count, 0, 1);
      batch.n_tokens = count;
      for (int i = 0; i < count; ++i) {
        const int position = static_cast<int>(at) + i;
        batch.token[i] = 260 + (position * 7919 + (position / 13) * 31 + salt * 101) % 300;
        batch.pos[i] = position;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = sequence;
        batch.logits[i] = i + 1 == count;
      }
      const int result = llama_decode(context_, batch);
      llama_batch_free(batch);
      if (result != 0) return result;
      at += static_cast<std::uint32_t>(count);
    }
    return 0;
  }
  std::vector<float> Logits() const {
    const float* logits = llama_get_logits_ith(context_, -1);
    return {logits, logits + vocabulary_};
  }
  std::int32_t LastPosition(std::int32_t sequence) const {
    return llama_memory_seq_pos_max(llama_get_memory(context_), sequence);
  }
  LlamaSequence Sequence(std::int32_t sequence) const {
    return LlamaSequence(view_, sequence, Places());
  }
  // Of text: which one is nobody's business here. Null where positions are simple.
  std::shared_ptr<const TokenPlaces> Places() const {
    if (!view_->wide()) return nullptr;
    return std::make_shared<const TokenPlaces>(std::vector<llama_token>(4096, 1));
  }

  llama_context* context() const { return context_; }
  const absl::Status& status() const { return status_; }
  const LlamaMemoryView& view() const { return *view_; }
  const std::shared_ptr<const LlamaMemoryView>& shared_view() const { return view_; }

 private:
  llama_context* context_ = nullptr;
  std::shared_ptr<const LlamaMemoryView> view_;
  absl::Status status_;
  int vocabulary_ = 0;
};

inline float Distance(const std::vector<float>& left, const std::vector<float>& right) {
  float most = left.size() == right.size() ? 0.0f : INFINITY;
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    const float distance = std::fabs(left[i] - right[i]);
    most = distance > most || std::isnan(distance) ? distance : most;
  }
  return most;
}

struct StoredExtent {
  ExtentInfo info;
  std::vector<char> raw;
};

// What a tier would hold.
struct Image {
  StageMap stages;
  std::uint32_t tokens = 0;
  std::uint32_t window_begin = 0;
  std::vector<StoredExtent> extents;
};

inline absl::Status CaptureGroup(LlamaSequence& sequence, RowGroup group, TokenRange range,
                                 Image* image) {
  for (const ExtentInfo& info :
       CutIntoExtents(sequence.layout(), sequence.stages(), group, range)) {
    std::vector<char> raw(info.raw_bytes);
    absl::Status status = sequence.Export(info, raw.data());
    if (!status.ok()) return status;
    image->extents.push_back({info, std::move(raw)});
  }
  return absl::OkStatus();
}

inline absl::StatusOr<Image> Capture(LlamaSequence sequence, std::uint32_t tokens) {
  Image image;
  image.tokens = tokens;
  image.stages = sequence.stages();
  absl::Status status = sequence.BeginCapture(tokens);
  if (!status.ok()) return status;
  image.window_begin = sequence.WindowBegin();
  status = CaptureGroup(sequence, RowGroup::kFull, {0, tokens}, &image);
  if (status.ok()) {
    status = CaptureGroup(sequence, RowGroup::kWindow, {image.window_begin, tokens}, &image);
  }
  if (status.ok()) {
    status = CaptureGroup(sequence, RowGroup::kState, {tokens, tokens + 1}, &image);
  }
  // Also after an error: what was begun writes into the image.
  status.Update(sequence.FinishExports());
  sequence.EndCapture();
  if (!status.ok()) return status;
  return image;
}

inline absl::Status Restore(LlamaSequence sequence, const Image& image, std::uint32_t keep,
                            bool backwards = false) {
  absl::Status status = sequence.BeginImport(image.tokens, image.window_begin);
  for (std::size_t i = 0; i < image.extents.size() && status.ok(); ++i) {
    const StoredExtent& extent = image.extents[backwards ? image.extents.size() - 1 - i : i];
    status = sequence.Import(image.stages, extent.info, extent.raw);
  }
  return status.ok() ? sequence.FinishImport(keep) : status;
}

// The gap-free rows of one plane that an image holds.
struct RowsOfPlane {
  std::uint32_t first = 0;
  std::vector<char> bytes;
};

inline std::vector<RowsOfPlane> RowsByPlane(const StateLayout& layout, const Image& image) {
  std::vector<RowsOfPlane> planes(layout.planes.size());
  for (std::size_t p = 0; p < planes.size(); ++p) {
    const RowGroup group = layout.planes[p].group;
    planes[p].first = group == RowGroup::kState    ? image.tokens
                      : group == RowGroup::kWindow ? image.window_begin
                                                   : 0;
    const std::uint32_t rows = group == RowGroup::kState ? 1 : image.tokens - planes[p].first;
    planes[p].bytes.resize(rows * layout.planes[p].row_bytes);
  }
  for (const StoredExtent& extent : image.extents) {
    for (const PlaneSlice& slice :
         SlicesOf(layout, image.stages.stages[extent.info.stage], extent.info)) {
      RowsOfPlane& plane = planes[slice.plane];
      const std::uint64_t at =
          (extent.info.first - plane.first) * layout.planes[slice.plane].row_bytes +
          slice.plane_offset;
      std::copy_n(extent.raw.begin() + static_cast<std::ptrdiff_t>(slice.extent_offset),
                  slice.bytes, plane.bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return planes;
}

// The same rows, cut for another stage map.
inline Image Recut(const StateLayout& layout, const Image& image, const StageMap& stages) {
  const std::vector<RowsOfPlane> planes = RowsByPlane(layout, image);
  Image result{stages, image.tokens, image.window_begin, {}};
  const std::pair<RowGroup, TokenRange> groups[] = {
      {RowGroup::kFull, {0, image.tokens}},
      {RowGroup::kWindow, {image.window_begin, image.tokens}},
      {RowGroup::kState, {image.tokens, image.tokens + 1}}};
  for (const auto& [group, range] : groups) {
    for (const ExtentInfo& info : CutIntoExtents(layout, stages, group, range)) {
      StoredExtent extent{info, std::vector<char>(info.raw_bytes)};
      for (const PlaneSlice& slice : SlicesOf(layout, stages.stages[info.stage], info)) {
        const RowsOfPlane& plane = planes[slice.plane];
        const std::uint64_t at =
            (info.first - plane.first) * layout.planes[slice.plane].row_bytes + slice.plane_offset;
        std::copy_n(plane.bytes.begin() + static_cast<std::ptrdiff_t>(at), slice.bytes,
                    extent.raw.begin() + static_cast<std::ptrdiff_t>(slice.extent_offset));
      }
      result.extents.push_back(std::move(extent));
    }
  }
  return result;
}

// Every row that both images hold is the same, and neither image is empty.
inline void ExpectSameRows(const StateLayout& layout, const Image& left, const Image& right) {
  const std::vector<RowsOfPlane> a = RowsByPlane(layout, left);
  const std::vector<RowsOfPlane> b = RowsByPlane(layout, right);
  for (std::size_t p = 0; p < a.size(); ++p) {
    const std::size_t common = std::min(a[p].bytes.size(), b[p].bytes.size());
    ASSERT_GT(common, 0u);
    EXPECT_TRUE(std::equal(a[p].bytes.rbegin(),
                           a[p].bytes.rbegin() + static_cast<std::ptrdiff_t>(common),
                           b[p].bytes.rbegin()))
        << "plane " << p << ", layer " << layout.planes[p].layer;
  }
}

}  // namespace parkade
