// Moves sequences between llama.cpp contexts through LlamaSequence and compares what the model says
// next with an uninterrupted run, on tiny random models of every kind of memory.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "llama-memory.h"
#include "parkade/image.h"
#include "src/engine/llama/llama_memory_view.h"
#include "src/engine/llama/llama_sequence.h"
#include "src/engine/llama/llama_state_stream.h"
#include "tests/e2e/llama_engine.h"

namespace parkade {
namespace {

constexpr std::uint32_t kTokens = 533;
constexpr std::uint32_t kMore = 37;
constexpr std::uint32_t kWindow = 64;

struct Kind {
  std::string name;
  bool swa_full = false;
  ggml_type type = GGML_TYPE_F16;
  // With a small window cache new tokens land in other cells, so sums round differently.
  float tolerance = 0;

  ContextOptions Options() const {
    ContextOptions options;
    options.swa_full = swa_full;
    options.type = type;
    return options;
  }
};

// A second sequence that is there before the one under test.
struct Neighbour {
  std::int32_t sequence = -1;  // none
  std::uint32_t tokens = 150;
  int salt = 9;
};

void FillNeighbour(Engine& engine, const Neighbour& neighbour) {
  if (neighbour.sequence < 0) return;
  ASSERT_EQ(engine.Decode(neighbour.sequence, 0, neighbour.tokens, neighbour.salt), 0);
}

// Logits after [0, tokens) and kMore more, never interrupted.
std::vector<float> Uninterrupted(const Kind& kind, const ContextOptions& options,
                                 std::int32_t sequence, const Neighbour& neighbour,
                                 std::uint32_t tokens = kTokens) {
  Engine engine(kind.name, options);
  FillNeighbour(engine, neighbour);
  EXPECT_EQ(engine.Decode(sequence, 0, tokens), 0);
  EXPECT_EQ(engine.Decode(sequence, tokens, tokens + kMore, 5), 0);
  return engine.Logits();
}

Image CaptureFrom(const Kind& kind, const ContextOptions& options, std::int32_t sequence,
                  const Neighbour& neighbour = {}) {
  Engine engine(kind.name, options);
  EXPECT_TRUE(engine.status().ok()) << engine.status();
  FillNeighbour(engine, neighbour);
  EXPECT_EQ(engine.Decode(sequence, 0, kTokens), 0);
  absl::StatusOr<Image> image = Capture(engine.Sequence(sequence), kTokens);
  EXPECT_TRUE(image.ok()) << image.status();
  // Capture leaves the context as it was.
  EXPECT_EQ(engine.Decode(sequence, kTokens, kTokens + kMore, 5), 0);
  EXPECT_EQ(Distance(engine.Logits(), Uninterrupted(kind, options, sequence, neighbour)), 0);
  return image.ok() ? *std::move(image) : Image{};
}

// Restores into a fresh context; what is then in memory is what was stored, byte for byte.
std::unique_ptr<Engine> RestoredEngine(const Kind& kind, const ContextOptions& options,
                                       std::int32_t sequence, const Neighbour& neighbour,
                                       const Image& image, bool backwards = false) {
  auto engine = std::make_unique<Engine>(kind.name, options);
  EXPECT_TRUE(engine->status().ok()) << engine->status();
  FillNeighbour(*engine, neighbour);
  EXPECT_EQ(Restore(engine->Sequence(sequence), image, image.tokens, backwards), absl::OkStatus());
  EXPECT_EQ(engine->LastPosition(sequence), static_cast<int>(image.tokens) - 1);
  absl::StatusOr<Image> again = Capture(engine->Sequence(sequence), image.tokens);
  EXPECT_TRUE(again.ok()) << again.status();
  if (again.ok()) {
    EXPECT_LE(again->window_begin, image.tokens - kWindow - 1);
    ExpectSameRows(engine->view().layout(), image, *again);
  }
  return engine;
}

// Goes on after the restore and returns how far the answer is from the uninterrupted one.
float Continue(Engine& engine, std::int32_t sequence, const std::vector<float>& expected,
               std::uint32_t tokens = kTokens) {
  EXPECT_EQ(engine.Decode(sequence, tokens, tokens + kMore, 5), 0);
  return Distance(engine.Logits(), expected);
}

class EveryKind : public testing::TestWithParam<Kind> {};

std::string KindName(const testing::TestParamInfo<Kind>& info) {
  return info.param.name + (info.param.swa_full ? "_full" : "") +
         (info.param.type == GGML_TYPE_F16 ? "" : "_q8_0");
}

INSTANTIATE_TEST_SUITE_P(Memory, EveryKind,
                         testing::Values(Kind{"dense"}, Kind{"dense", false, GGML_TYPE_Q8_0},
                                         Kind{"mrope"}, Kind{"mrope", false, GGML_TYPE_Q8_0},
                                         Kind{"window", false, GGML_TYPE_F16, 0.05f},
                                         Kind{"window", true}, Kind{"recurrent"}, Kind{"hybrid"},
                                         Kind{"hybrid_window", false, GGML_TYPE_F16, 0.05f},
                                         Kind{"hybrid_window", true}),
                         KindName);

TEST_P(EveryKind, StartUpCheckPassesAndLeavesNothing) {
  Engine engine(GetParam().name, GetParam().Options());
  ASSERT_TRUE(engine.status().ok()) << engine.status();
  EXPECT_EQ(engine.view().CheckLayout(0), absl::OkStatus());
  EXPECT_EQ(engine.LastPosition(0), -1);
  ASSERT_EQ(engine.Decode(0, 0, kTokens), 0);
  const auto expected = Uninterrupted(GetParam(), GetParam().Options(), 0, {});
  EXPECT_EQ(Continue(engine, 0, expected), 0);
  // Not on a sequence that is in use, and that is left alone.
  EXPECT_EQ(engine.view().CheckLayout(0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine.LastPosition(0), static_cast<int>(kTokens + kMore) - 1);
}

TEST_P(EveryKind, LayoutIsCanonical) {
  Engine engine(GetParam().name, GetParam().Options());
  ASSERT_TRUE(engine.status().ok()) << engine.status();
  const StateLayout& layout = engine.view().layout();
  const bool window = GetParam().tolerance > 0;
  EXPECT_EQ(layout.has_group(RowGroup::kWindow), window);
  EXPECT_EQ(layout.window_tokens, window ? kWindow : 0u);
  ASSERT_EQ(engine.view().stages().stages.size(), 1u);
  EXPECT_EQ(engine.view().stages().stages[0].device, "CPU");
  std::vector<std::tuple<RowGroup, int, PlaneKind>> order;
  for (const Plane& plane : layout.planes) {
    EXPECT_GT(plane.row_bytes, 0u);
    order.emplace_back(plane.group, plane.layer, plane.kind);
  }
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(std::adjacent_find(order.begin(), order.end()), order.end());
}

TEST_P(EveryKind, FreshContextGivesTheSameAnswer) {
  const Kind& kind = GetParam();
  const Image image = CaptureFrom(kind, kind.Options(), 0);
  const auto expected = Uninterrupted(kind, kind.Options(), 0, {});
  for (const bool backwards : {false, true}) {
    auto engine = RestoredEngine(kind, kind.Options(), 0, {}, image, backwards);
    EXPECT_LE(Continue(*engine, 0, expected), kind.tolerance);
  }
}

TEST_P(EveryKind, OtherSlotAndNeighbourInOnePool) {
  const Kind& kind = GetParam();
  ContextOptions options = kind.Options();
  options.sequences = 4;
  options.cells = 4096;
  const Neighbour neighbour{0};
  const Image image = CaptureFrom(kind, options, 2, neighbour);
  const auto expected = Uninterrupted(kind, options, 2, neighbour);
  auto engine = RestoredEngine(kind, options, 2, neighbour, image);
  EXPECT_LE(Continue(*engine, 2, expected), kind.tolerance);
  // And the neighbour goes on as if nothing had happened.
  Engine alone(kind.name, options);
  FillNeighbour(alone, neighbour);
  auto other = RestoredEngine(kind, options, 3, neighbour, image);
  ASSERT_EQ(alone.Decode(0, 150, 200, 9), 0);
  ASSERT_EQ(other->Decode(0, 150, 200, 9), 0);
  EXPECT_LE(Distance(alone.Logits(), other->Logits()), kind.tolerance);
}

TEST_P(EveryKind, SeparateStreams) {
  const Kind& kind = GetParam();
  ContextOptions options = kind.Options();
  options.sequences = 3;
  options.unified = false;
  options.cells = 3 * 2048;
  const Neighbour neighbour{0};
  const Image image = CaptureFrom(kind, options, 1, neighbour);
  const auto expected = Uninterrupted(kind, options, 1, neighbour);
  EXPECT_LE(Continue(*RestoredEngine(kind, options, 1, neighbour, image), 1, expected),
            kind.tolerance);
  EXPECT_LE(Continue(*RestoredEngine(kind, options, 2, neighbour, image), 2, expected),
            kind.tolerance);
  // From separate streams into one pool, and with another number of slots.
  EXPECT_LE(Continue(*RestoredEngine(kind, kind.Options(), 0, {}, image), 0, expected),
            kind.tolerance);
}

TEST_P(EveryKind, CaptureRefusesWhatMemoryDoesNotHold) {
  Engine engine(GetParam().name, GetParam().Options());
  ASSERT_TRUE(engine.status().ok());
  LlamaSequence sequence = engine.Sequence(0);
  EXPECT_EQ(sequence.BeginCapture(1).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(engine.Decode(0, 0, 100), 0);
  for (const std::uint32_t wrong : {0u, 99u, 101u}) {
    EXPECT_EQ(sequence.BeginCapture(wrong).code(), absl::StatusCode::kFailedPrecondition) << wrong;
  }
  const RowGroup group = engine.view().layout().has_group(RowGroup::kFull)     ? RowGroup::kFull
                         : engine.view().layout().has_group(RowGroup::kWindow) ? RowGroup::kWindow
                                                                               : RowGroup::kState;
  const std::uint32_t first = group == RowGroup::kState ? 100 : 90;
  const TokenRange range{first, first + (group == RowGroup::kState ? 1 : 10)};
  const auto extents = CutIntoExtents(sequence.layout(), sequence.stages(), group, range);
  std::vector<char> raw(kExtentBytes);
  // No capture is running, then one is; rows outside it stay refused.
  EXPECT_FALSE(sequence.Export(extents[0], raw.data()).ok());
  ASSERT_EQ(sequence.BeginCapture(100), absl::OkStatus());
  EXPECT_EQ(sequence.Export(extents[0], raw.data()), absl::OkStatus());
  ExtentInfo beyond = extents[0];
  beyond.first += 1;
  EXPECT_EQ(sequence.Export(beyond, raw.data()).code(), absl::StatusCode::kInvalidArgument);
  ExtentInfo foreign = extents[0];
  foreign.raw_bytes -= 1;
  EXPECT_EQ(sequence.Export(foreign, raw.data()).code(), absl::StatusCode::kInvalidArgument);
  sequence.EndCapture();
  EXPECT_FALSE(sequence.Export(extents[0], raw.data()).ok());
}

TEST_P(EveryKind, IncompleteImportLeavesNothing) {
  const Kind& kind = GetParam();
  Image image = CaptureFrom(kind, kind.Options(), 0);
  Engine engine(kind.name, kind.Options());
  for (std::size_t missing : {std::size_t{0}, image.extents.size() - 1}) {
    Image holed = image;
    holed.extents.erase(holed.extents.begin() + static_cast<std::ptrdiff_t>(missing));
    EXPECT_EQ(Restore(engine.Sequence(0), holed, kTokens).code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(engine.LastPosition(0), -1);
  }
  // An extent of another layout is refused before a byte of it is used.
  LlamaSequence sequence = engine.Sequence(0);
  ASSERT_EQ(sequence.BeginImport(kTokens, image.window_begin), absl::OkStatus());
  StoredExtent foreign = image.extents[0];
  foreign.raw.pop_back();
  EXPECT_EQ(sequence.Import(image.stages, foreign.info, foreign.raw).code(),
            absl::StatusCode::kDataLoss);
  foreign.info.raw_bytes -= 1;
  EXPECT_EQ(sequence.Import(image.stages, foreign.info, foreign.raw).code(),
            absl::StatusCode::kDataLoss);
  sequence.Clear();
  EXPECT_EQ(engine.LastPosition(0), -1);
  // And the context is as good as new.
  EXPECT_EQ(Restore(engine.Sequence(0), image, kTokens), absl::OkStatus());
  EXPECT_LE(Continue(engine, 0, Uninterrupted(kind, kind.Options(), 0, {})), kind.tolerance);
}

TEST_P(EveryKind, BoundaryOtherThanTheImage) {
  const Kind& kind = GetParam();
  const Image image = CaptureFrom(kind, kind.Options(), 0);
  Engine engine(kind.name, kind.Options());
  ASSERT_TRUE(engine.status().ok());
  const StateLayout& layout = engine.view().layout();
  const bool exact = layout.has_group(RowGroup::kWindow) || layout.has_group(RowGroup::kState);
  constexpr std::uint32_t kKept = 300;  // a batch's end: rows are rounded by batch
  if (exact) {
    EXPECT_EQ(Restore(engine.Sequence(0), image, kKept).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(engine.LastPosition(0), -1);
    return;
  }
  EXPECT_EQ(Restore(engine.Sequence(0), image, kTokens + 1).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.LastPosition(0), -1);
  ASSERT_EQ(Restore(engine.Sequence(0), image, kKept), absl::OkStatus());
  EXPECT_EQ(engine.LastPosition(0), static_cast<int>(kKept) - 1);
  EXPECT_LE(Continue(engine, 0, Uninterrupted(kind, kind.Options(), 0, {}, kKept), kKept), 0);
  // Rows up to the boundary are enough; later ones may be missing.
  Image shorter = image;
  std::erase_if(shorter.extents,
                [](const StoredExtent& extent) { return extent.info.first >= kKept; });
  ASSERT_LT(shorter.extents.size(), image.extents.size());
  ASSERT_EQ(Restore(engine.Sequence(0), shorter, kKept), absl::OkStatus());
  EXPECT_EQ(engine.LastPosition(0), static_cast<int>(kKept) - 1);
}

TEST_P(EveryKind, NoRoomIsAnEmptySequence) {
  const Kind& kind = GetParam();
  const Image image = CaptureFrom(kind, kind.Options(), 0);
  ContextOptions options = kind.Options();
  options.sequences = 2;
  options.cells = 768;
  Engine engine(kind.name, options);
  ASSERT_EQ(engine.Decode(1, 0, 250, 9), 0);
  const absl::Status status = Restore(engine.Sequence(0), image, kTokens);
  if (!engine.view().layout().has_group(RowGroup::kFull)) {
    // State always fits, and of window rows as many are placed as there is room for.
    EXPECT_EQ(status, absl::OkStatus());
    absl::StatusOr<Image> again = Capture(engine.Sequence(0), kTokens);
    ASSERT_TRUE(again.ok()) << again.status();
    ExpectSameRows(engine.view().layout(), image, *again);
    if (engine.view().layout().has_group(RowGroup::kWindow)) {
      EXPECT_GT(again->window_begin, image.window_begin);
    }
    return;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(engine.LastPosition(0), -1);
  EXPECT_EQ(engine.LastPosition(1), 249);
  // Nothing leaked: the rest of the pool can still be filled.
  EXPECT_EQ(engine.Decode(0, 0, 768 - 250), 0);
}

TEST_P(EveryKind, RefusedStreamReleasesItsCells) {
  Engine engine(GetParam().name, GetParam().Options());
  ASSERT_TRUE(engine.status().ok());
  for (const MemorySection& section : engine.view().sections()) {
    const bool kv = section.kind == MemorySection::Kind::kKv;
    const TokenRange range = kv ? TokenRange{0, 200} : TokenRange{200, 201};
    for (int damage = 0; damage < 3; ++damage) {
      MemorySection wrong = section;
      if (damage == 0) wrong.layers += 1;
      if (damage == 1) wrong.planes.back().row_bytes += 2;
      if (damage == 2) wrong.planes.pop_back();
      EXPECT_EQ(PlaceRows(wrong, 0, range, engine.Places().get()).status().code(),
                absl::StatusCode::kResourceExhausted)
          << damage;
      EXPECT_EQ(section.memory->seq_pos_max(0), -1) << damage;
    }
    if (!kv) continue;
    const std::uint32_t all = UsableCells(section, 0);
    EXPECT_TRUE(PlaceRows(section, 0, {0, all}, engine.Places().get()).ok());
    EXPECT_EQ(UsableCells(section, 0),
              section.mask_tokens == 0 ? 0 : all - section.mask_tokens + 1);
    engine.view().ClearSequence(0);
  }
}

TEST_P(EveryKind, StoredUnderAnotherSplit) {
  const Kind& kind = GetParam();
  const Image image = CaptureFrom(kind, kind.Options(), 0);
  Engine engine(kind.name, kind.Options());
  ASSERT_TRUE(engine.status().ok());
  const std::vector<std::uint16_t>& layers = engine.view().stages().stages[0].layers;
  StageMap split{{{"first", {layers.begin(), layers.begin() + 1}},
                  {"second", {layers.begin() + 1, layers.end() - 1}},
                  {"third", {layers.end() - 1, layers.end()}}}};
  const Image recut = Recut(engine.view().layout(), image, split);
  auto restored = RestoredEngine(kind, kind.Options(), 0, {}, recut);
  EXPECT_LE(Continue(*restored, 0, Uninterrupted(kind, kind.Options(), 0, {})), kind.tolerance);
}

// What is restored is not what only looks like it: rows of zeros change the answer.
TEST_P(EveryKind, EveryPlaneMatters) {
  const Kind& kind = GetParam();
  const Image image = CaptureFrom(kind, kind.Options(), 0);
  // The first token after the restore: a convolution forgets after a few.
  Engine uninterrupted(kind.name, kind.Options());
  ASSERT_EQ(uninterrupted.Decode(0, 0, kTokens), 0);
  ASSERT_EQ(uninterrupted.Decode(0, kTokens, kTokens + 1, 5), 0);
  Engine engine(kind.name, kind.Options());
  ASSERT_TRUE(engine.status().ok());
  const StateLayout& layout = engine.view().layout();
  for (std::size_t p = 0; p < layout.planes.size(); ++p) {
    Image damaged = image;
    for (StoredExtent& extent : damaged.extents) {
      for (const PlaneSlice& slice :
           SlicesOf(layout, damaged.stages.stages[extent.info.stage], extent.info)) {
        if (slice.plane != p) continue;
        std::fill_n(extent.raw.begin() + static_cast<std::ptrdiff_t>(slice.extent_offset),
                    slice.bytes, '\0');
      }
    }
    ASSERT_EQ(Restore(engine.Sequence(0), damaged, kTokens), absl::OkStatus());
    ASSERT_EQ(engine.Decode(0, kTokens, kTokens + 1, 5), 0);
    EXPECT_GT(Distance(engine.Logits(), uninterrupted.Logits()), 0.1f) << "plane " << p;
  }
}

class WindowKind : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Memory, WindowKind, testing::Values("window", "hybrid_window"),
                         [](const auto& info) { return info.param; });

TEST_P(WindowKind, RowsThatDoNotReachBackAreRefused) {
  const Kind kind{GetParam(), false, GGML_TYPE_F16, 0.05f};
  Image image = CaptureFrom(kind, kind.Options(), 0);
  EXPECT_LE(image.window_begin, kTokens - kWindow - 1);
  Engine engine(kind.name, kind.Options());
  image.window_begin = kTokens - kWindow;  // one row too few
  EXPECT_EQ(Restore(engine.Sequence(0), image, kTokens).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine.LastPosition(0), -1);
  image.window_begin = kTokens - kWindow - 1;  // exactly enough
  ASSERT_EQ(Restore(engine.Sequence(0), image, kTokens), absl::OkStatus());
  EXPECT_LE(Continue(engine, 0, Uninterrupted(kind, kind.Options(), 0, {})), kind.tolerance);
  // A gap inside the promised run is a missing row.
  image.window_begin = 200;
  std::erase_if(image.extents, [](const StoredExtent& extent) {
    return extent.info.group == RowGroup::kWindow && extent.info.first + extent.info.rows < kTokens;
  });
  EXPECT_EQ(Restore(engine.Sequence(0), image, kTokens).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(engine.LastPosition(0), -1);
}

TEST_P(WindowKind, RowsBeyondTheWindowAreFoundWhileTheyLive) {
  Engine engine(GetParam(), Kind{}.Options());
  LlamaSequence sequence = engine.Sequence(0);
  std::uint32_t tokens = 0;
  for (const std::uint32_t step : {50u, 200u, 250u, 400u}) {
    ASSERT_EQ(engine.Decode(0, tokens, tokens + step), 0);
    tokens += step;
    ASSERT_EQ(sequence.BeginCapture(tokens), absl::OkStatus());
    const std::uint32_t begin = sequence.WindowBegin();
    // The window cache has 512 cells here (64 + a batch of 256, rounded up).
    if (tokens <= 500) {
      EXPECT_EQ(begin, 0u) << tokens;
    } else {
      EXPECT_GT(begin, 0u);
      EXPECT_LE(begin, tokens - kWindow - 1);
    }
    sequence.EndCapture();
  }
}

// Sequence copies are pending until the next batch in separate streams; rows are there all the
// same.
TEST_P(EveryKind, CopiedSequence) {
  const Kind& kind = GetParam();
  for (const bool unified : {true, false}) {
    ContextOptions options = kind.Options();
    options.sequences = 2;
    options.unified = unified;
    options.cells = 4096;
    Engine engine(kind.name, options);
    ASSERT_TRUE(engine.status().ok());
    ASSERT_EQ(engine.Decode(0, 0, kTokens), 0);
    const absl::StatusOr<Image> original = Capture(engine.Sequence(0), kTokens);
    ASSERT_TRUE(original.ok()) << original.status();
    llama_memory_seq_cp(llama_get_memory(engine.context()), 0, 1, -1, -1);
    const absl::StatusOr<Image> copy = Capture(engine.Sequence(1), kTokens);
    ASSERT_TRUE(copy.ok()) << copy.status();
    ExpectSameRows(engine.view().layout(), *original, *copy);
    // A restore over a pending copy keeps what was restored, and the original is left alone.
    llama_memory_seq_cp(llama_get_memory(engine.context()), 0, 1, -1, -1);
    Engine elsewhere(kind.name, options);
    ASSERT_EQ(elsewhere.Decode(1, 0, 300, 77), 0);
    const absl::StatusOr<Image> other = Capture(elsewhere.Sequence(1), 300);
    ASSERT_TRUE(other.ok()) << other.status();
    ASSERT_EQ(Restore(engine.Sequence(1), *other, 300), absl::OkStatus());
    ASSERT_EQ(engine.Decode(0, kTokens, kTokens + 1, 5), 0);
    const absl::StatusOr<Image> restored = Capture(engine.Sequence(1), 300);
    ASSERT_TRUE(restored.ok()) << restored.status();
    ExpectSameRows(engine.view().layout(), *other, *restored);
    EXPECT_EQ(engine.LastPosition(0), static_cast<int>(kTokens));
  }
}

// After a rejected draft the state is in a snapshot; that is the one that must be captured.
TEST(Rollback, CapturesTheStateRolledBackTo) {
  const Kind kind{"hybrid"};
  ContextOptions options = kind.Options();
  options.rollback_states = 4;
  Engine engine(kind.name, options);
  ASSERT_EQ(llama_n_rs_seq(engine.context()), 4u);
  ASSERT_EQ(engine.Decode(0, 0, kTokens), 0);
  ASSERT_TRUE(llama_memory_seq_rm(llama_get_memory(engine.context()), 0, kTokens - 3, -1));
  const absl::StatusOr<Image> image = Capture(engine.Sequence(0), kTokens - 3);
  ASSERT_EQ(image.status(), absl::OkStatus());
  ASSERT_EQ(engine.Decode(0, kTokens - 3, kTokens + kMore, 5), 0);
  for (const std::uint32_t states : {0u, 4u}) {
    options.rollback_states = states;
    Engine target(kind.name, options);
    ASSERT_EQ(target.status(), absl::OkStatus());
    ASSERT_EQ(Restore(target.Sequence(0), *image, image->tokens), absl::OkStatus());
    ASSERT_EQ(target.Decode(0, kTokens - 3, kTokens + kMore, 5), 0);
    EXPECT_EQ(Distance(engine.Logits(), target.Logits()), 0) << states;
  }
}

TEST(Refused, FlashAttentionOff) {
  ContextOptions options;
  options.flash_attention = false;
  for (const std::string kind : {"dense", "window", "hybrid"}) {
    Engine engine(kind, options);
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kUnimplemented) << kind;
    EXPECT_NE(engine.status().message().find("flash attention"), std::string::npos);
  }
  // Recurrent memory has no values to transpose.
  EXPECT_EQ(Engine("recurrent", options).status(), absl::OkStatus());
}

// Even a full-size window cache gives away rows that a window has left behind when another sequence
// comes to them before it comes to free cells. A sequence that lost rows must not be parked.
TEST(Refused, RowsLostToAnotherSequence) {
  const Kind kind{"window", true};
  ContextOptions options = kind.Options();
  options.sequences = 3;
  Engine engine(kind.name, options);
  ASSERT_EQ(engine.Decode(0, 0, 300, 9), 0);
  ASSERT_EQ(engine.Decode(1, 0, 600), 0);
  LlamaSequence sequence = engine.Sequence(1);
  EXPECT_EQ(sequence.BeginCapture(600), absl::OkStatus());
  engine.Sequence(0).Clear();
  ASSERT_EQ(engine.Decode(2, 0, 400, 7), 0);
  EXPECT_EQ(engine.LastPosition(1), 599);
  EXPECT_EQ(sequence.BeginCapture(600).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace parkade
