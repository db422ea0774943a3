// A context's rows through a copier that copies nothing until it is waited for, as a card's may.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ggml-cpu.h"
#include "src/engine/llama/drafted_sequence.h"
#include "src/engine/llama/llama_host_memory.h"
#include "src/format/heap_buffer.h"
#include "tests/e2e/llama_engine.h"
#include "tests/support/late_copier.h"

namespace parkade {
namespace {

using test::LateCopier;
using test::LateCopies;

constexpr std::uint32_t kTokens = 533;
constexpr std::uint32_t kMore = 37;
// Rows that lie in other cells are summed in another order.
constexpr float kNear = 0.05f;

ContextOptions Options() {
  ContextOptions options;
  options.sequences = 3;
  options.cells = 3 * 1024;
  return options;
}

ContextOptions LateOptions(LateCopies* copies) {
  ContextOptions options = Options();
  options.copiers = [copies](const ggml_tensor*) -> absl::StatusOr<std::unique_ptr<StageCopier>> {
    return std::make_unique<LateCopier>("late", copies);
  };
  return options;
}

std::uint64_t BytesOf(const Image& image) {
  std::uint64_t bytes = 0;
  for (const StoredExtent& extent : image.extents) bytes += extent.raw.size();
  return bytes;
}

ExtentBytes Shared(const std::vector<char>& raw) {
  auto buffer = std::make_shared<HeapBuffer>(raw.size());
  std::copy(raw.begin(), raw.end(), buffer->data());
  return buffer;
}

class Copiers : public testing::TestWithParam<std::string> {
 protected:
  // What a plain engine holds, and says after kMore more tokens.
  void SetUp() override {
    Engine source(GetParam(), Options());
    ASSERT_TRUE(source.status().ok()) << source.status();
    ASSERT_EQ(source.Decode(0, 0, kTokens), 0);
    absl::StatusOr<Image> image = Capture(source.Sequence(0), kTokens);
    ASSERT_TRUE(image.ok()) << image.status();
    image_ = *std::move(image);
    layout_ = source.view().layout();
    ASSERT_EQ(source.Decode(0, kTokens, kTokens + kMore, 5), 0);
    answer_ = source.Logits();
  }

  Image image_;
  StateLayout layout_;
  std::vector<float> answer_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, Copiers,
                         testing::Values("dense", "window", "recurrent", "hybrid", "hybrid_window"),
                         [](const auto& info) { return info.param; });

TEST_P(Copiers, WhatIsCapturedLateIsTheSame) {
  LateCopies copies;
  Engine engine(GetParam(), LateOptions(&copies));
  ASSERT_EQ(engine.Decode(0, 0, kTokens), 0);
  absl::StatusOr<Image> image = Capture(engine.Sequence(0), kTokens);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(copies.copiers, 1);
  EXPECT_EQ(copies.waiting, 0u);
  EXPECT_EQ(copies.out_bytes, BytesOf(image_));
  ExpectSameRows(layout_, *image, image_);
}

// Others go on between the slices, which end with PauseImport.
TEST_P(Copiers, WhatIsImportedLateGoesOnTheSame) {
  LateCopies copies;
  Engine engine(GetParam(), LateOptions(&copies));
  ASSERT_EQ(engine.Decode(1, 0, 50, 3), 0);
  LlamaSequence sequence = engine.Sequence(2);
  ASSERT_EQ(sequence.BeginImport(image_.tokens, image_.window_begin), absl::OkStatus());
  std::uint32_t others = 50;
  std::vector<std::weak_ptr<const ExtentBuffer>> owners;
  for (std::size_t i = 0; i < image_.extents.size(); ++i) {
    ExtentBytes raw = Shared(image_.extents[i].raw);
    owners.push_back(raw);
    ASSERT_EQ(sequence.ImportShared(image_.stages, image_.extents[i].info, raw), absl::OkStatus());
    raw.reset();
    EXPECT_FALSE(owners.back().expired());
    if (i % 3 != 2) continue;
    ASSERT_EQ(sequence.PauseImport(), absl::OkStatus());
    EXPECT_EQ(copies.waiting, 0u);
    EXPECT_TRUE(owners.back().expired());
    ASSERT_EQ(engine.Decode(1, others, others + 20, 3), 0);
    others += 20;
  }
  ASSERT_EQ(sequence.FinishImport(kTokens), absl::OkStatus());
  EXPECT_EQ(copies.waiting, 0u);
  for (const auto& owner : owners) EXPECT_TRUE(owner.expired());
  EXPECT_GT(copies.in_bytes, 0u);
  EXPECT_LE(copies.in_bytes, BytesOf(image_));
  ASSERT_EQ(engine.Decode(2, kTokens, kTokens + kMore, 5), 0);
  EXPECT_LE(Distance(engine.Logits(), answer_), kNear);
}

// Bytes that are the caller's may go when Import returns.
TEST_P(Copiers, PlainImportWaits) {
  LateCopies copies;
  Engine engine(GetParam(), LateOptions(&copies));
  LlamaSequence sequence = engine.Sequence(0);
  ASSERT_EQ(sequence.BeginImport(image_.tokens, image_.window_begin), absl::OkStatus());
  for (const StoredExtent& extent : image_.extents) {
    std::vector<char> raw = extent.raw;
    ASSERT_EQ(sequence.Import(image_.stages, extent.info, raw), absl::OkStatus());
    EXPECT_EQ(copies.waiting, 0u);
    std::fill(raw.begin(), raw.end(), '\x5a');
  }
  ASSERT_EQ(sequence.FinishImport(kTokens), absl::OkStatus());
  ASSERT_EQ(engine.Decode(0, kTokens, kTokens + kMore, 5), 0);
  EXPECT_LE(Distance(engine.Logits(), answer_), kNear);
}

TEST_P(Copiers, AnErrorOfTheDeviceEndsInAnEmptySequence) {
  LateCopies copies;
  Engine engine(GetParam(), LateOptions(&copies));
  const absl::Status broken = absl::UnavailableError("the card is gone");
  for (const int where : {0, 1, 2, 3}) {
    SCOPED_TRACE(where);
    LlamaSequence sequence = engine.Sequence(0);
    ASSERT_EQ(sequence.BeginImport(image_.tokens, image_.window_begin), absl::OkStatus());
    if (where == 0) copies.refuse = broken;
    absl::Status status =
        sequence.ImportShared(image_.stages, image_.extents[0].info, Shared(image_.extents[0].raw));
    if (where == 1) {
      copies.next_wait = broken;
      status = sequence.PauseImport();
    } else if (where == 2) {
      copies.next_wait = broken;
      status = sequence.FinishImport(kTokens);
    } else if (where == 3) {
      copies.next_wait = broken;
      status = sequence.Import(image_.stages, image_.extents[0].info, image_.extents[0].raw);
    }
    copies.refuse = absl::OkStatus();
    EXPECT_EQ(status, broken);
    EXPECT_EQ(copies.waiting, 0u);
    EXPECT_EQ(engine.LastPosition(0), -1);
  }
  // A capture fails as a whole.
  ASSERT_EQ(engine.Decode(0, 0, kTokens), 0);
  copies.next_wait = broken;
  EXPECT_EQ(Capture(engine.Sequence(0), kTokens).status(), broken);
  copies.refuse = broken;
  EXPECT_EQ(Capture(engine.Sequence(0), kTokens).status(), broken);
}

// A device without a copier, or whose copier can't be made: llama.cpp's own calls copy.
TEST_P(Copiers, WithoutACopierRowsAreCopiedOneRunAtATime) {
  for (const bool fails : {false, true}) {
    std::vector<std::string> told;
    ContextOptions options = Options();
    options.copiers = [fails](const ggml_tensor*) -> absl::StatusOr<std::unique_ptr<StageCopier>> {
      if (fails) return absl::ResourceExhaustedError("no memory");
      return nullptr;
    };
    options.tell = [&](const std::string& line) { told.push_back(line); };
    Engine engine(GetParam(), options);
    ASSERT_EQ(Restore(engine.Sequence(0), image_, kTokens), absl::OkStatus());
    absl::StatusOr<Image> again = Capture(engine.Sequence(0), kTokens);
    ASSERT_TRUE(again.ok()) << again.status();
    ExpectSameRows(layout_, *again, image_);
    ASSERT_EQ(engine.Decode(0, kTokens, kTokens + kMore, 5), 0);
    EXPECT_LE(Distance(engine.Logits(), answer_), kNear);
    if (fails) {
      ASSERT_EQ(told.size(), 1u);
      EXPECT_EQ(told[0], "rows on CPU are copied one run at a time: no memory");
    } else {
      EXPECT_TRUE(told.empty());
    }
  }
}

// Draft and model have a context each; here both are the same one's kind.
TEST(DraftCopiers, BothModelsRowsGoLate) {
  LateCopies copies;
  LateCopies of_draft;
  Engine source("dense", Options());
  Engine source_draft("dense", Options());
  ASSERT_EQ(source.Decode(0, 0, kTokens), 0);
  ASSERT_EQ(source_draft.Decode(0, 0, kTokens, 8), 0);
  Engine engine("dense", LateOptions(&copies));
  Engine draft("dense", LateOptions(&of_draft));
  const auto plain = DraftModel::Create(source_draft.shared_view(), "d");
  const auto late = DraftModel::Create(draft.shared_view(), "d");
  ASSERT_TRUE(plain.ok() && late.ok());
  DraftedSequence from(source.shared_view(), *plain, 0);
  ASSERT_EQ(from.BeginCapture(kTokens), absl::OkStatus());
  DraftedSequence into(engine.shared_view(), *late, 0);
  ASSERT_EQ(into.BeginImport(kTokens, 0), absl::OkStatus());
  const StageMap stages = from.stages();
  ASSERT_EQ(stages.stages.size(), 2u);
  std::uint64_t bytes = 0;
  for (const ExtentInfo& info :
       CutIntoExtents(from.layout(), stages, RowGroup::kFull, {0, kTokens})) {
    auto buffer = std::make_shared<HeapBuffer>(info.raw_bytes);
    ASSERT_EQ(from.Export(info, buffer->data()), absl::OkStatus());
    ASSERT_EQ(from.FinishExports(), absl::OkStatus());
    ASSERT_EQ(into.ImportShared(stages, info, buffer), absl::OkStatus());
    bytes += info.raw_bytes;
  }
  from.EndCapture();
  EXPECT_GT(copies.waiting, 0u);
  EXPECT_GT(of_draft.waiting, 0u);
  ASSERT_EQ(into.PauseImport(), absl::OkStatus());
  EXPECT_EQ(copies.waiting + of_draft.waiting, 0u);
  EXPECT_EQ(copies.in_bytes + of_draft.in_bytes, bytes);
  ASSERT_EQ(into.FinishImport(kTokens), absl::OkStatus());
  for (Engine* pair : {&source, &engine}) ASSERT_EQ(pair->Decode(0, kTokens, kTokens + kMore), 0);
  EXPECT_EQ(Distance(source.Logits(), engine.Logits()), 0);
  for (Engine* pair : {&source_draft, &draft}) {
    ASSERT_EQ(pair->Decode(0, kTokens, kTokens + kMore), 0);
  }
  EXPECT_EQ(Distance(source_draft.Logits(), draft.Logits()), 0);
}

TEST(LlamaHostMemory, IsWhatTheBufferTypeGives) {
  QuietBackends();
  LlamaHostMemory memory(ggml_backend_cpu_buffer_type(), {0, -1});
  EXPECT_EQ(memory.name(), "page-locked memory (CPU)");
  const std::size_t bytes = 4u << 20;
  absl::StatusOr<char*> one = memory.Take(bytes);
  absl::StatusOr<char*> two = memory.Take(bytes);
  ASSERT_TRUE(one.ok() && two.ok());
  for (char* slab : {*one, *two}) {
    slab[0] = 'x';
    slab[bytes - 1] = 'y';
  }
  memory.Give(*one, bytes);
  // The other one goes with the object.
}

// On a processor alone nothing is page-locked.
TEST(LlamaHostMemory, AContextOnTheProcessorHasNone) {
  Engine engine("dense", Options());
  EXPECT_EQ(HostMemoryOf(engine.view()), nullptr);
}

}  // namespace
}  // namespace parkade
