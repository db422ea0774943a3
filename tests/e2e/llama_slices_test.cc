// Other sequences are decoded between the slices of an import, as other slots are.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/llama_engine.h"

namespace parkade {
namespace {

constexpr std::uint32_t kTokens = 300;
constexpr std::uint32_t kOthers = 50;
constexpr std::uint32_t kMore = 20;
constexpr int kBetween = 60;
constexpr float kNear = 0.05f;
constexpr std::int32_t kRestored = 2;

struct Memory {
  std::string kind;
  // One pool for all sequences: rows are placed elsewhere when they come later, and sums round
  // differently.
  bool unified = false;
};

ContextOptions Options(bool unified) {
  ContextOptions options;
  options.sequences = 4;
  options.unified = unified;
  options.cells = 4 * 1024;
  return options;
}

// One token of each sequence in one batch: llama.cpp moves their states next to each other, and
// with them those that are in the way.
void DecodeTogether(Engine& engine, const std::vector<std::int32_t>& sequences, int position) {
  llama_batch batch = llama_batch_init(static_cast<int>(sequences.size()), 0, 1);
  batch.n_tokens = static_cast<int>(sequences.size());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    batch.token[i] = 300 + static_cast<int>(i);
    batch.pos[i] = position;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = sequences[i];
    batch.logits[i] = 1;
  }
  EXPECT_EQ(llama_decode(engine.context(), batch), 0);
  llama_batch_free(batch);
}

class Slices : public testing::TestWithParam<Memory> {};

INSTANTIATE_TEST_SUITE_P(Kinds, Slices,
                         testing::Values(Memory{"dense"}, Memory{"window"}, Memory{"recurrent"},
                                         Memory{"hybrid"}, Memory{"hybrid_window"},
                                         Memory{"dense", true}, Memory{"window", true},
                                         Memory{"hybrid", true}, Memory{"hybrid_window", true}),
                         [](const auto& info) {
                           return info.param.kind + (info.param.unified ? "_unified" : "");
                         });

// Enough that in one pool their rows come round to what a window has left behind.
int GoOn(Engine& engine, int position) {
  for (int i = 0; i < kBetween; ++i) {
    DecodeTogether(engine, {1, 0}, position++);
    DecodeTogether(engine, {0, 1}, position++);
  }
  return position;
}

// What all sequences say next; `sliced`: the others go on in the middle of the import.
std::vector<std::vector<float>> Answers(const Memory& memory, const Image& image, bool sliced) {
  Engine engine(memory.kind, Options(memory.unified));
  EXPECT_EQ(engine.Decode(0, 0, kOthers, 3), 0);
  LlamaSequence sequence = engine.Sequence(kRestored);
  if (sliced) {
    EXPECT_EQ(sequence.BeginImport(image.tokens, image.window_begin), absl::OkStatus());
  }
  EXPECT_EQ(engine.Decode(1, 0, kOthers, 4), 0);
  int position = kOthers;
  RowGroup before = RowGroup::kFull;
  for (const StoredExtent& extent : image.extents) {
    // What is imported wrongly after it lies where the others have just written.
    if (&extent == image.extents.data() || extent.info.group != before) {
      position = GoOn(engine, position);
    }
    before = extent.info.group;
    if (sliced) {
      EXPECT_EQ(sequence.Import(image.stages, extent.info, extent.raw), absl::OkStatus());
    }
  }
  if (sliced) {
    EXPECT_EQ(sequence.FinishImport(image.tokens), absl::OkStatus());
  } else {
    EXPECT_EQ(Restore(engine.Sequence(kRestored), image, image.tokens), absl::OkStatus());
  }
  std::vector<std::vector<float>> answers;
  EXPECT_EQ(engine.Decode(kRestored, kTokens, kTokens + kMore, 5), 0);
  answers.push_back(engine.Logits());
  const auto others = static_cast<std::uint32_t>(position);
  for (const std::int32_t other : {0, 1}) {
    EXPECT_EQ(engine.Decode(other, others, others + kMore, 6), 0);
    answers.push_back(engine.Logits());
  }
  return answers;
}

TEST_P(Slices, OthersAreDecodedBetween) {
  Engine source(GetParam().kind, Options(GetParam().unified));
  ASSERT_EQ(source.Decode(0, 0, kTokens), 0);
  const absl::StatusOr<Image> image = Capture(source.Sequence(0), kTokens);
  ASSERT_TRUE(image.ok()) << image.status();
  ASSERT_EQ(source.Decode(0, kTokens, kTokens + kMore, 5), 0);
  const std::vector<std::vector<float>> whole = Answers(GetParam(), *image, false);
  const std::vector<std::vector<float>> sliced = Answers(GetParam(), *image, true);
  EXPECT_LE(Distance(whole[0], source.Logits()), kNear);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_LE(Distance(whole[i], sliced[i]), GetParam().unified ? kNear : 0) << i;
  }
}

}  // namespace
}  // namespace parkade
