// A sequence over planes, where copies are made late: nothing may be taken for done before it was
// waited for, and nothing let go before.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "src/capi/plane_sequence.h"
#include "src/format/byte_ranges.h"
#include "tests/support/late_copier.h"
#include "tests/unit/capi_engine.h"

namespace parkade::test {
namespace {

using capi::PlaneSequence;

class HeldBytes : public ExtentBuffer {
 public:
  explicit HeldBytes(std::vector<char>* bytes) : ExtentBuffer(bytes->data(), bytes->size()) {}
};

// Two layers, a full one and one that sees 10 tokens, on a late device each.
class SequenceTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kRows = 64;
  static constexpr std::uint64_t kRowBytes = 8;

  SequenceTest() {
    layout_.planes = {{RowGroup::kFull, PlaneKind::kKey, 0, 1, kRowBytes},
                      {RowGroup::kWindow, PlaneKind::kKey, 1, 1, kRowBytes}};
    layout_.window_tokens = 10;
    stages_.stages = {{"a", {0}}, {"b", {1}}};
    std::vector<std::shared_ptr<StageCopier>> copiers;
    for (const char* name : {"a", "b"}) {
      auto copier = std::make_unique<LateCopier>(name);
      copiers_.push_back(copier.get());
      copiers.push_back(std::move(copier));
    }
    auto made = PlaneSequence::Create(layout_, stages_, std::move(copiers));
    EXPECT_TRUE(made.ok()) << made.status();
    sequence_ = *std::move(made);
    EXPECT_TRUE(sequence_->SetPlanes({Rows(&full_, kRows), Rows(&window_, 16)}).ok());
  }

  static PlaneRows Rows(std::vector<char>* memory, std::uint32_t rows) {
    memory->assign(rows * kRowBytes, '\xee');
    PlaneRows plane;
    plane.base = memory->data();
    plane.rows = rows;
    plane.row_bytes = plane.row_stride = kRowBytes;
    return plane;
  }

  ExtentInfo Extent(RowGroup group, std::uint32_t first, std::uint32_t rows) const {
    const auto cut = CutIntoExtents(layout_, stages_, group, {first, first + rows});
    EXPECT_EQ(cut.size(), 1u);
    return cut.front();
  }

  static std::vector<char> Bytes(std::uint32_t first, std::uint32_t rows) {
    std::vector<char> bytes(rows * kRowBytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(first + i / kRowBytes);
    }
    return bytes;
  }

  absl::Status ImportAll(RowGroup group, std::uint32_t first, std::uint32_t rows) {
    const std::vector<char> bytes = Bytes(first, rows);
    return sequence_->Import(stages_, Extent(group, first, rows), bytes);
  }

  StateLayout layout_;
  StageMap stages_;
  std::vector<LateCopier*> copiers_;
  std::vector<char> full_;
  std::vector<char> window_;
  std::unique_ptr<PlaneSequence> sequence_;
};

TEST_F(SequenceTest, ExportsAreThereAfterFinishExports) {
  for (std::size_t i = 0; i < full_.size(); ++i) full_[i] = static_cast<char>(i / kRowBytes);
  ASSERT_TRUE(sequence_->SetHeld(40, 30).ok());
  ASSERT_TRUE(sequence_->BeginCapture(40).ok());
  EXPECT_EQ(sequence_->WindowBegin(), 30u);
  std::vector<char> out(10 * kRowBytes, 'x');
  ASSERT_TRUE(sequence_->Export(Extent(RowGroup::kFull, 5, 10), out.data()).ok());
  EXPECT_EQ(copiers_[0]->waiting(), 1u);
  EXPECT_EQ(std::count(out.begin(), out.end(), 'x'), 80);
  ASSERT_TRUE(sequence_->FinishExports().ok());
  EXPECT_EQ(out, Bytes(5, 10));
  // Rows that the engine did not say it has.
  EXPECT_TRUE(
      absl::IsInvalidArgument(sequence_->Export(Extent(RowGroup::kWindow, 29, 2), out.data())));
  EXPECT_TRUE(
      absl::IsInvalidArgument(sequence_->Export(Extent(RowGroup::kFull, 35, 6), out.data())));
  sequence_->EndCapture();
  EXPECT_TRUE(absl::IsFailedPrecondition(sequence_->BeginCapture(41)));
}

TEST_F(SequenceTest, EndCaptureWaits) {
  ASSERT_TRUE(sequence_->SetHeld(40, 30).ok());
  ASSERT_TRUE(sequence_->BeginCapture(40).ok());
  std::vector<char> out(10 * kRowBytes, 'x');
  ASSERT_TRUE(sequence_->Export(Extent(RowGroup::kWindow, 30, 10), out.data()).ok());
  sequence_->EndCapture();
  EXPECT_EQ(copiers_[1]->waiting(), 0u);
}

// Positions 25..40 of a ring of 16: the run wraps.
TEST_F(SequenceTest, ImportsIntoTheRing) {
  ASSERT_TRUE(sequence_->BeginImport(41, 20).ok());
  ASSERT_TRUE(ImportAll(RowGroup::kFull, 0, 41).ok());
  ASSERT_TRUE(ImportAll(RowGroup::kWindow, 24, 17).ok());
  // Rows that slid out must not come where others stand.
  ASSERT_TRUE(ImportAll(RowGroup::kWindow, 18, 6).ok());
  ASSERT_TRUE(sequence_->FinishImport(41).ok());
  EXPECT_EQ(sequence_->restored_window_begin(), 25u);
  EXPECT_EQ(std::vector<char>(full_.begin(), full_.begin() + 41 * kRowBytes), Bytes(0, 41));
  EXPECT_EQ(full_[41 * kRowBytes], '\xee');
  for (std::uint32_t position = 25; position < 41; ++position) {
    EXPECT_EQ(window_[position % 16 * kRowBytes], static_cast<char>(position));
  }
}

TEST_F(SequenceTest, SharedBytesAreHeldUntilTheyAreCopied) {
  std::vector<char> bytes = Bytes(0, 30);
  auto held = std::make_shared<HeldBytes>(&bytes);
  const std::weak_ptr<HeldBytes> watched = held;
  ASSERT_TRUE(sequence_->BeginImport(30, 15).ok());
  ASSERT_TRUE(
      sequence_->ImportShared(stages_, Extent(RowGroup::kFull, 0, 30), std::move(held)).ok());
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(copiers_[0]->waiting(), 1u);
  EXPECT_EQ(copiers_[1]->waiting(), 0u);
  std::vector<char> window = Bytes(15, 15);
  ASSERT_TRUE(sequence_
                  ->ImportShared(stages_, Extent(RowGroup::kWindow, 15, 15),
                                 std::make_shared<HeldBytes>(&window))
                  .ok());
  EXPECT_EQ(copiers_[1]->waiting(), 1u);
  ASSERT_TRUE(sequence_->FinishImport(30).ok());
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(std::vector<char>(full_.begin(), full_.begin() + 30 * kRowBytes), Bytes(0, 30));
}

TEST_F(SequenceTest, ClearWaits) {
  std::vector<char> bytes = Bytes(0, 30);
  ASSERT_TRUE(sequence_->BeginImport(30, 15).ok());
  ASSERT_TRUE(sequence_
                  ->ImportShared(stages_, Extent(RowGroup::kFull, 0, 30),
                                 std::make_shared<HeldBytes>(&bytes))
                  .ok());
  sequence_->Clear();
  EXPECT_EQ(copiers_[0]->waiting(), 0u);
  EXPECT_FALSE(sequence_->importing());
}

TEST_F(SequenceTest, EveryPromisedByteMustCome) {
  ASSERT_TRUE(sequence_->BeginImport(40, 20).ok());
  ASSERT_TRUE(ImportAll(RowGroup::kFull, 0, 20).ok());
  ASSERT_TRUE(ImportAll(RowGroup::kFull, 21, 19).ok());
  ASSERT_TRUE(ImportAll(RowGroup::kWindow, 24, 16).ok());
  const absl::Status finished = sequence_->FinishImport(40);
  EXPECT_TRUE(absl::IsDataLoss(finished));
  EXPECT_EQ(finished.message(),
            "the full key plane of layer 0: the row of position 20 was not imported");
  EXPECT_FALSE(sequence_->importing());
}

TEST_F(SequenceTest, WindowIsThatOfTheEnd) {
  EXPECT_TRUE(absl::IsFailedPrecondition(sequence_->BeginImport(40, 30)));
  ASSERT_TRUE(sequence_->BeginImport(40, 29).ok());
  ASSERT_TRUE(ImportAll(RowGroup::kFull, 0, 40).ok());
  ASSERT_TRUE(ImportAll(RowGroup::kWindow, 29, 11).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(sequence_->FinishImport(39)));
}

TEST_F(SequenceTest, DamagedExtentsAreRefused) {
  ASSERT_TRUE(sequence_->BeginImport(40, 20).ok());
  const std::vector<char> bytes = Bytes(0, 10);
  ExtentInfo extent = Extent(RowGroup::kFull, 0, 10);
  extent.stage = 2;
  EXPECT_TRUE(absl::IsDataLoss(sequence_->Import(stages_, extent, bytes)));
  extent = Extent(RowGroup::kFull, 0, 11);
  EXPECT_TRUE(absl::IsDataLoss(sequence_->Import(stages_, extent, bytes)));
  extent.raw_bytes = static_cast<std::uint32_t>(bytes.size());
  EXPECT_TRUE(absl::IsDataLoss(sequence_->Import(stages_, extent, bytes)));
}

TEST_F(SequenceTest, DeviceThatFailsEndsTheImport) {
  ASSERT_TRUE(sequence_->BeginImport(40, 20).ok());
  ASSERT_TRUE(ImportAll(RowGroup::kFull, 0, 40).ok());
  ASSERT_TRUE(ImportAll(RowGroup::kWindow, 24, 16).ok());
  copiers_[1]->FailNextWait();
  EXPECT_TRUE(absl::IsUnavailable(sequence_->FinishImport(40)));
  EXPECT_FALSE(sequence_->importing());
  EXPECT_EQ(sequence_->TakeDeviceError().message(), "the device is gone");
  EXPECT_TRUE(sequence_->TakeDeviceError().ok());
}

TEST_F(SequenceTest, ClosedOneDoesNothing) {
  ASSERT_TRUE(sequence_->BeginImport(40, 20).ok());
  sequence_->Close();
  EXPECT_FALSE(sequence_->importing());
  EXPECT_TRUE(absl::IsFailedPrecondition(sequence_->BeginImport(40, 20)));
  EXPECT_TRUE(absl::IsFailedPrecondition(sequence_->SetHeld(40, 20)));
  EXPECT_TRUE(absl::IsFailedPrecondition(sequence_->SetPlanes({})));
}

TEST(ByteRangesTest, JoinsWhatTouches) {
  ByteRanges ranges;
  EXPECT_EQ(ranges.FirstGap(3, 9), 3u);
  ranges.Add(10, 20);
  ranges.Add(30, 40);
  ranges.Add(5, 5);
  EXPECT_EQ(ranges.FirstGap(10, 40), 20u);
  EXPECT_EQ(ranges.FirstGap(12, 18), 18u);
  EXPECT_EQ(ranges.FirstGap(5, 12), 5u);
  ranges.Add(20, 30);
  EXPECT_EQ(ranges.FirstGap(10, 40), 40u);
  ranges.Add(0, 100);
  EXPECT_EQ(ranges.FirstGap(0, 101), 100u);
}

}  // namespace
}  // namespace parkade::test
