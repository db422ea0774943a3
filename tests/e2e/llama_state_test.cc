// Moves sequences between llama.cpp contexts through LlamaSequence and compares what the model says
// next with an uninterrupted run, on tiny random models of every kind of memory
// (tests/support/make_models.py; the folder is PARKADE_TEST_MODELS).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "llama.h"
#include "parkade/image.h"
#include "src/engine/llama/llama_memory_view.h"
#include "src/engine/llama/llama_sequence.h"

namespace parkade {
namespace {

std::string ModelsFolder() {
  const char* folder = std::getenv("PARKADE_TEST_MODELS");
#ifdef PARKADE_TEST_MODELS_FOLDER
  if (folder == nullptr) folder = PARKADE_TEST_MODELS_FOLDER;
#endif
  return folder == nullptr ? "." : folder;
}

// Loaded once for the whole program.
llama_model* Model(const std::string& kind) {
  static std::map<std::string, llama_model*> models;
  llama_model*& model = models[kind];
  if (model == nullptr) {
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
          if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
    llama_backend_init();
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
};

// A context with its view; decodes made-up tokens that are a function of (position, salt).
class Engine {
 public:
  Engine(const std::string& kind, const ContextOptions& options) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = options.cells;
    params.n_batch = 256;
    params.n_ubatch = 256;
    params.n_seq_max = options.sequences;
    params.kv_unified = options.unified;
    params.swa_full = options.swa_full;
    params.n_threads = 2;
    params.n_threads_batch = 2;
    params.type_k = options.type;
    params.type_v = options.type;
    params.flash_attn_type =
        options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    vocabulary_ = llama_vocab_n_tokens(llama_model_get_vocab(Model(kind)));
    context_ = llama_init_from_model(Model(kind), params);
    auto view = LlamaMemoryView::Create(context_, {options.swa_full});
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
  LlamaSequence Sequence(std::int32_t sequence) const { return LlamaSequence(view_, sequence); }

  llama_context* context() const { return context_; }
  const absl::Status& status() const { return status_; }
  const LlamaMemoryView& view() const { return *view_; }

 private:
  llama_context* context_ = nullptr;
  std::shared_ptr<const LlamaMemoryView> view_;
  absl::Status status_;
  int vocabulary_ = 0;
};

float Distance(const std::vector<float>& left, const std::vector<float>& right) {
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

absl::Status CaptureGroup(LlamaSequence& sequence, RowGroup group, TokenRange range, Image* image) {
  for (const ExtentInfo& info :
       CutIntoExtents(sequence.layout(), sequence.stages(), group, range)) {
    std::vector<char> raw(info.raw_bytes);
    absl::Status status = sequence.Export(info, raw.data());
    if (!status.ok()) return status;
    image->extents.push_back({info, std::move(raw)});
  }
  return absl::OkStatus();
}

absl::StatusOr<Image> Capture(LlamaSequence sequence, std::uint32_t tokens) {
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
  sequence.EndCapture();
  if (!status.ok()) return status;
  return image;
}

absl::Status Restore(LlamaSequence sequence, const Image& image, std::uint32_t keep,
                     bool backwards = false) {
  absl::Status status = sequence.BeginImport(image.tokens, image.window_begin);
  for (std::size_t i = 0; i < image.extents.size() && status.ok(); ++i) {
    const StoredExtent& extent = image.extents[backwards ? image.extents.size() - 1 - i : i];
    status = sequence.Import(image.stages, extent.info, extent.raw);
  }
  return status.ok() ? sequence.FinishImport(keep) : status;
}

constexpr std::uint32_t kTokens = 533;
constexpr std::uint32_t kMore = 37;

// Logits after [0, kTokens) + kMore more, never interrupted. `others` first fills other sequences.
std::vector<float> Uninterrupted(const std::string& kind, const ContextOptions& options,
                                 std::int32_t sequence, bool others, std::uint32_t tokens) {
  Engine engine(kind, options);
  if (others) {
    EXPECT_EQ(engine.Decode(sequence == 0 ? 1 : 0, 0, 150, 9), 0);
  }
  EXPECT_EQ(engine.Decode(sequence, 0, tokens), 0);
  EXPECT_EQ(engine.Decode(sequence, tokens, tokens + kMore, 5), 0);
  return engine.Logits();
}

Image CaptureFrom(const std::string& kind, const ContextOptions& options, std::int32_t sequence) {
  Engine engine(kind, options);
  EXPECT_TRUE(engine.status().ok()) << engine.status();
  EXPECT_EQ(engine.Decode(sequence, 0, kTokens), 0);
  absl::StatusOr<Image> image = Capture(engine.Sequence(sequence), kTokens);
  EXPECT_TRUE(image.ok()) << image.status();
  // Capture leaves the context as it was.
  EXPECT_EQ(engine.Decode(sequence, kTokens, kTokens + kMore, 5), 0);
  EXPECT_EQ(Distance(engine.Logits(), Uninterrupted(kind, options, sequence, false, kTokens)), 0);
  return image.ok() ? *std::move(image) : Image{};
}

struct Kind {
  std::string name;
  bool swa_full = false;
  ggml_type type = GGML_TYPE_F16;
  // With a small window cache new tokens land in other cells, so sums round differently.
  float tolerance = 0;
};

class EveryKind : public testing::TestWithParam<Kind> {
 protected:
  ContextOptions Options() const {
    ContextOptions options;
    options.swa_full = GetParam().swa_full;
    options.type = GetParam().type;
    return options;
  }
  // Restores `image` into a fresh context and goes on; compares with an uninterrupted run there.
  void ExpectSameAnswer(const Image& image, const ContextOptions& options, std::int32_t sequence,
                        bool others, bool backwards = false) {
    const std::string& kind = GetParam().name;
    Engine engine(kind, options);
    ASSERT_TRUE(engine.status().ok()) << engine.status();
    if (others) {
      ASSERT_EQ(engine.Decode(sequence == 0 ? 1 : 0, 0, 150, 9), 0);
    }
    const absl::Status status = Restore(engine.Sequence(sequence), image, image.tokens, backwards);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(engine.LastPosition(sequence), static_cast<int>(image.tokens) - 1);
    ASSERT_EQ(engine.Decode(sequence, image.tokens, image.tokens + kMore, 5), 0);
    const float distance =
        Distance(engine.Logits(), Uninterrupted(kind, options, sequence, others, image.tokens));
    RecordProperty("distance", std::to_string(distance));
    EXPECT_LE(distance, GetParam().tolerance);
  }
};

INSTANTIATE_TEST_SUITE_P(Memory, EveryKind,
                         testing::Values(Kind{"dense"}, Kind{"dense", false, GGML_TYPE_Q8_0},
                                         Kind{"window", false, GGML_TYPE_F16, 0.02f},
                                         Kind{"window", true}, Kind{"recurrent"}, Kind{"hybrid"},
                                         Kind{"hybrid_window", false, GGML_TYPE_F16, 0.02f},
                                         Kind{"hybrid_window", true}),
                         [](const testing::TestParamInfo<Kind>& info) {
                           return info.param.name + (info.param.swa_full ? "_full" : "") +
                                  (info.param.type == GGML_TYPE_F16 ? "" : "_q8_0");
                         });

TEST_P(EveryKind, StartUpCheckPassesAndLeavesNothing) {
  Engine engine(GetParam().name, Options());
  ASSERT_TRUE(engine.status().ok()) << engine.status();
  EXPECT_EQ(engine.view().CheckLayout(0), absl::OkStatus());
  EXPECT_EQ(engine.LastPosition(0), -1);
  // Nothing is left behind that changes an answer.
  ASSERT_EQ(engine.Decode(0, 0, kTokens), 0);
  ASSERT_EQ(engine.Decode(0, kTokens, kTokens + kMore, 5), 0);
  EXPECT_EQ(Distance(engine.Logits(), Uninterrupted(GetParam().name, Options(), 0, false, kTokens)),
            0);
  EXPECT_EQ(engine.view().CheckLayout(0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine.LastPosition(0), static_cast<int>(kTokens + kMore) - 1);
}

TEST_P(EveryKind, FreshContextGivesTheSameAnswer) {
  const Image image = CaptureFrom(GetParam().name, Options(), 0);
  ExpectSameAnswer(image, Options(), 0, false);
  ExpectSameAnswer(image, Options(), 0, false, /*backwards=*/true);
}

TEST_P(EveryKind, OtherSlotsAndOtherSequences) {
  const Image image = CaptureFrom(GetParam().name, Options(), 0);
  ContextOptions options = Options();
  options.sequences = 4;
  options.cells = 4096;
  ExpectSameAnswer(image, options, 2, false);
  ExpectSameAnswer(image, options, 2, true);
  options.unified = false;
  options.cells = 8192;
  ExpectSameAnswer(image, options, 3, false);
  ExpectSameAnswer(image, options, 3, true);
}

TEST_P(EveryKind, FromSeparateStreamsIntoOnePool) {
  ContextOptions options = Options();
  options.sequences = 3;
  options.unified = false;
  options.cells = 3 * 2048;
  const Image image = CaptureFrom(GetParam().name, options, 1);
  ExpectSameAnswer(image, Options(), 0, false);
}

}  // namespace
}  // namespace parkade
