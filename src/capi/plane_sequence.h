// A sequence of an engine that says where its rows are: planes in the memory of one device a stage.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parkade/engine.h"
#include "parkade/image.h"
#include "src/device/stage_copier.h"
#include "src/format/byte_ranges.h"

namespace parkade::capi {

// The token at position p has row p of a full plane, p % rows of a window plane; a state has row 0.
//
// The memory is the engine's: Clear only says that what the rows hold is undefined. Thread
// compatible.
class PlaneSequence : public EngineSequence {
 public:
  // One copier a stage; sequences may share them. InvalidArgument: the stages do not have each
  // layer of the layout once.
  static absl::StatusOr<std::unique_ptr<PlaneSequence>> Create(
      StateLayout layout, StageMap stages, std::vector<std::shared_ptr<StageCopier>> copiers);
  ~PlaneSequence() override;

  // One for each plane of the layout. FailedPrecondition inside an import.
  absl::Status SetPlanes(std::vector<PlaneRows> planes);

  // What the engine says it holds. FailedPrecondition: the planes have no place for these rows.
  // WindowBegin and the captures that follow go by it.
  absl::Status SetHeld(std::uint32_t tokens, std::uint32_t window_begin);
  // First error of a device since the last call; OK: none.
  absl::Status TakeDeviceError();
  // Of the last import that was finished: window rows from here on are there.
  std::uint32_t restored_window_begin() const { return restored_window_begin_; }
  bool importing() const { return mode_ == Mode::kImport; }
  // Lets go of the planes and waits for copies; everything fails from now on.
  void Close();

  const StateLayout& layout() const override { return layout_; }
  const StageMap& stages() const override { return stages_; }
  absl::Status BeginCapture(std::uint32_t tokens) override;
  std::uint32_t WindowBegin() const override { return held_window_begin_; }
  absl::Status Export(const ExtentInfo& extent, char* destination) override;
  absl::Status FinishExports() override;
  void EndCapture() override;
  absl::Status BeginImport(std::uint32_t tokens, std::uint32_t window_begin) override;
  absl::Status Import(const StageMap& stored, const ExtentInfo& extent,
                      absl::Span<const char> raw) override;
  absl::Status ImportShared(const StageMap& stored, const ExtentInfo& extent,
                            const ExtentBytes& raw) override;
  absl::Status FinishImport(std::uint32_t tokens) override;
  void Clear() override;

 private:
  enum class Mode { kIdle, kCapture, kImport };

  PlaneSequence(StateLayout layout, StageMap stages,
                std::vector<std::shared_ptr<StageCopier>> copiers);

  absl::Status MapLayers();
  // Positions of a plane's rows that [0, tokens) with window rows from `window_begin` on stand for.
  TokenRange RangeOf(std::size_t plane, std::uint32_t tokens, std::uint32_t window_begin) const;
  // FailedPrecondition: the plane has no row for one of these positions.
  absl::Status CheckRows(std::size_t plane, TokenRange positions) const;
  bool PageIsThere(const PlaneRows& rows, std::uint64_t row) const;
  // First position of [begin, tokens) from which on all rows of a window plane have a place.
  std::uint32_t WindowPlaceBegin(std::size_t plane, std::uint32_t begin,
                                 std::uint32_t tokens) const;
  // Appends the runs of [begin, end), bytes counted from position 0's row.
  void AddRuns(std::size_t plane, std::uint64_t begin, std::uint64_t end, std::uint64_t host_offset,
               std::vector<PlaneRun>* runs) const;
  absl::Status CopyIn(const StageMap& stored, const ExtentInfo& extent, absl::Span<const char> raw,
                      const std::shared_ptr<const void>& owner);
  absl::Status CheckCoverage(std::uint32_t tokens) const;
  // Waits for all copiers; the first error is kept for TakeDeviceError.
  absl::Status WaitAll();
  absl::Status Note(absl::Status status);

  const StateLayout layout_;
  const StageMap stages_;
  const std::vector<std::shared_ptr<StageCopier>> copiers_;
  std::vector<std::size_t> stage_of_;  // by plane
  std::vector<PlaneRows> planes_;      // by plane; empty: not set
  bool closed_ = false;

  Mode mode_ = Mode::kIdle;
  std::uint32_t held_tokens_ = 0;
  std::uint32_t held_window_begin_ = 0;
  std::vector<TokenRange> ranges_;    // by plane: captured, or placed
  std::vector<ByteRanges> imported_;  // by plane
  std::uint32_t placed_tokens_ = 0;
  std::uint32_t restored_window_begin_ = 0;
  absl::Status device_error_;
};

}  // namespace parkade::capi
