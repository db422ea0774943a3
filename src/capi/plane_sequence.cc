#include "src/capi/plane_sequence.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parkade::capi {
namespace {

std::string PlaneText(const Plane& plane) {
  static constexpr const char* kGroups[] = {"full", "window", "state"};
  static constexpr const char* kKinds[] = {"key", "value", "conv", "recurrent", "extra"};
  return absl::StrCat("the ", kGroups[static_cast<int>(plane.group)], " ",
                      kKinds[static_cast<int>(plane.kind)], " plane of layer ", plane.layer);
}

// What the token after `tokens` others needs of the window.
std::uint32_t LatestWindowBegin(const StateLayout& layout, std::uint32_t tokens) {
  const std::uint64_t needed = std::uint64_t{layout.window_tokens} + 1;
  return tokens > needed ? tokens - static_cast<std::uint32_t>(needed) : 0;
}

}  // namespace

PlaneSequence::PlaneSequence(StateLayout layout, StageMap stages,
                             std::vector<std::shared_ptr<StageCopier>> copiers)
    : layout_(std::move(layout)), stages_(std::move(stages)), copiers_(std::move(copiers)) {}

PlaneSequence::~PlaneSequence() { Close(); }

absl::StatusOr<std::unique_ptr<PlaneSequence>> PlaneSequence::Create(
    StateLayout layout, StageMap stages, std::vector<std::shared_ptr<StageCopier>> copiers) {
  std::unique_ptr<PlaneSequence> sequence(
      new PlaneSequence(std::move(layout), std::move(stages), std::move(copiers)));
  absl::Status mapped = sequence->MapLayers();
  if (!mapped.ok()) return mapped;
  return sequence;
}

absl::Status PlaneSequence::MapLayers() {
  if (copiers_.size() != stages_.stages.size() || stages_.stages.size() > UINT16_MAX) {
    return absl::InvalidArgumentError("every stage has one device, and there are at most 65535");
  }
  std::set<std::uint16_t> layers;
  for (const Plane& plane : layout_.planes) layers.insert(plane.layer);
  stage_of_.assign(layout_.planes.size(), 0);
  std::set<std::uint16_t> staged;
  for (std::size_t stage = 0; stage < stages_.stages.size(); ++stage) {
    const std::vector<std::uint16_t>& own = stages_.stages[stage].layers;
    if (own.empty()) return absl::InvalidArgumentError(absl::StrCat("stage ", stage, " is empty"));
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (i > 0 && own[i] <= own[i - 1]) {
        return absl::InvalidArgumentError(
            absl::StrCat("the layers of stage ", stage, " do not ascend"));
      }
      if (!layers.contains(own[i])) {
        return absl::InvalidArgumentError(
            absl::StrCat("stage ", stage, " has layer ", own[i], ", of which there is no plane"));
      }
      if (!staged.insert(own[i]).second) {
        return absl::InvalidArgumentError(absl::StrCat("layer ", own[i], " is in two stages"));
      }
    }
    for (std::size_t plane = 0; plane < layout_.planes.size(); ++plane) {
      if (std::binary_search(own.begin(), own.end(), layout_.planes[plane].layer)) {
        stage_of_[plane] = stage;
      }
    }
  }
  for (const std::uint16_t layer : layers) {
    if (!staged.contains(layer)) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", layer, " is in no stage"));
    }
  }
  return absl::OkStatus();
}

absl::Status PlaneSequence::SetPlanes(std::vector<PlaneRows> planes) {
  if (closed_) return absl::FailedPreconditionError("the sequence is closed");
  if (mode_ == Mode::kImport) {
    return absl::FailedPreconditionError("a restore into the sequence is not finished");
  }
  planes_ = std::move(planes);
  return absl::OkStatus();
}

void PlaneSequence::Close() {
  Clear();
  closed_ = true;
  planes_.clear();
}

absl::Status PlaneSequence::Note(absl::Status status) {
  if (!status.ok() && device_error_.ok()) device_error_ = status;
  return status;
}

absl::Status PlaneSequence::TakeDeviceError() { return std::exchange(device_error_, {}); }

absl::Status PlaneSequence::WaitAll() {
  absl::Status first;
  for (const std::shared_ptr<StageCopier>& copier : copiers_) {
    absl::Status waited = Note(copier->Wait());
    if (first.ok()) first = std::move(waited);
  }
  return first;
}

TokenRange PlaneSequence::RangeOf(std::size_t plane, std::uint32_t tokens,
                                  std::uint32_t window_begin) const {
  switch (layout_.planes[plane].group) {
    case RowGroup::kFull:
      return {0, tokens};
    case RowGroup::kWindow:
      return {std::min(window_begin, tokens), tokens};
    case RowGroup::kState:
      return {tokens, tokens + 1};
  }
  return {};
}

bool PlaneSequence::PageIsThere(const PlaneRows& rows, std::uint64_t row) const {
  if (rows.page_rows == 0) return true;
  const std::uint64_t page = row / rows.page_rows;
  return page < rows.pages.size() && rows.pages[page] >= 0;
}

absl::Status PlaneSequence::CheckRows(std::size_t plane, TokenRange positions) const {
  const PlaneRows& rows = planes_[plane];
  const Plane& what = layout_.planes[plane];
  if (what.group == RowGroup::kState) positions = {0, 1};
  const bool ring = what.group == RowGroup::kWindow;
  if (ring ? positions.size() > rows.rows : positions.end > rows.rows) {
    return absl::FailedPreconditionError(absl::StrCat(PlaneText(what), " has ", rows.rows,
                                                      " rows, not ",
                                                      ring ? positions.size() : positions.end));
  }
  if (rows.page_rows == 0) return absl::OkStatus();
  for (std::uint64_t at = positions.begin; at < positions.end;) {
    const std::uint64_t row = at % rows.rows;
    if (!PageIsThere(rows, row)) {
      return absl::FailedPreconditionError(absl::StrCat(
          PlaneText(what), ": the page with the row of position ", at, " is not there"));
    }
    // To the next page, or around the ring.
    at += std::min(rows.page_rows - row % rows.page_rows, rows.rows - row);
  }
  return absl::OkStatus();
}

absl::Status PlaneSequence::SetHeld(std::uint32_t tokens, std::uint32_t window_begin) {
  if (closed_) return absl::FailedPreconditionError("the sequence is closed");
  if (mode_ != Mode::kIdle) {
    return absl::FailedPreconditionError("a restore into the sequence is not finished");
  }
  if (planes_.empty()) return absl::FailedPreconditionError("the sequence has no planes yet");
  device_error_ = absl::OkStatus();
  held_window_begin_ = std::min(window_begin, tokens);
  held_tokens_ = 0;
  for (std::size_t plane = 0; plane < planes_.size(); ++plane) {
    absl::Status there = CheckRows(plane, RangeOf(plane, tokens, held_window_begin_));
    if (!there.ok()) return there;
  }
  held_tokens_ = tokens;
  return absl::OkStatus();
}

absl::Status PlaneSequence::BeginCapture(std::uint32_t tokens) {
  if (mode_ != Mode::kIdle || planes_.empty() || tokens != held_tokens_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the engine holds ", held_tokens_, " tokens, not ", tokens));
  }
  ranges_.clear();
  for (std::size_t plane = 0; plane < planes_.size(); ++plane) {
    ranges_.push_back(RangeOf(plane, tokens, held_window_begin_));
  }
  mode_ = Mode::kCapture;
  return absl::OkStatus();
}

void PlaneSequence::AddRuns(std::size_t plane, std::uint64_t begin, std::uint64_t end,
                            std::uint64_t host_offset, std::vector<PlaneRun>* runs) const {
  const PlaneRows& rows = planes_[plane];
  if (layout_.planes[plane].group == RowGroup::kState) {
    // One row, whatever the position is.
    const std::uint64_t at = begin % rows.row_bytes;
    runs->push_back({&rows, at, end - begin, host_offset});
    return;
  }
  const std::uint64_t size = rows.rows * rows.row_bytes;
  while (begin < end) {
    const std::uint64_t at = begin % size;
    const std::uint64_t bytes = std::min(end - begin, size - at);
    runs->push_back({&rows, at, bytes, host_offset});
    begin += bytes;
    host_offset += bytes;
  }
}

absl::Status PlaneSequence::Export(const ExtentInfo& extent, char* destination) {
  if (mode_ != Mode::kCapture) return absl::FailedPreconditionError("no capture is running");
  if (extent.stage >= stages_.stages.size()) return absl::InvalidArgumentError("no such stage");
  const std::vector<PlaneSlice> slices = SlicesOf(layout_, stages_.stages[extent.stage], extent);
  if (slices.empty()) return absl::InvalidArgumentError("the extent does not fit the layout");
  std::vector<PlaneRun> runs;
  for (const PlaneSlice& slice : slices) {
    const TokenRange have = ranges_[slice.plane];
    if (extent.first < have.begin || extent.first + extent.rows > have.end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rows [", extent.first, ", ", extent.first + extent.rows, ") were not captured"));
    }
    const std::uint64_t begin =
        extent.first * layout_.planes[slice.plane].row_bytes + slice.plane_offset;
    AddRuns(slice.plane, begin, begin + slice.bytes, slice.extent_offset, &runs);
  }
  return Note(copiers_[extent.stage]->CopyOut(runs, destination));
}

absl::Status PlaneSequence::FinishExports() { return WaitAll(); }

void PlaneSequence::EndCapture() {
  if (mode_ != Mode::kCapture) return;
  // swallow: what was asked for was waited for; an error is kept.
  WaitAll().IgnoreError();
  mode_ = Mode::kIdle;
}

std::uint32_t PlaneSequence::WindowPlaceBegin(std::size_t plane, std::uint32_t begin,
                                              std::uint32_t tokens) const {
  const PlaneRows& rows = planes_[plane];
  if (tokens - begin > rows.rows) begin = tokens - rows.rows;
  std::uint32_t from = tokens;
  while (from > begin && PageIsThere(rows, (from - 1) % rows.rows)) --from;
  return from;
}

absl::Status PlaneSequence::BeginImport(std::uint32_t tokens, std::uint32_t window_begin) {
  Clear();
  device_error_ = absl::OkStatus();
  if (closed_ || planes_.empty()) {
    return absl::FailedPreconditionError(closed_ ? "the sequence is closed"
                                                 : "the sequence has no planes yet");
  }
  if (tokens == 0) return absl::InvalidArgumentError("nothing to import");
  const std::uint32_t latest = LatestWindowBegin(layout_, tokens);
  if (layout_.has_group(RowGroup::kWindow) && window_begin > latest) {
    return absl::FailedPreconditionError(absl::StrCat("window rows from ", window_begin,
                                                      " on do not serve the token after ", tokens));
  }
  std::uint32_t placed_window_begin = 0;
  std::vector<TokenRange> ranges;
  for (std::size_t plane = 0; plane < planes_.size(); ++plane) {
    TokenRange range = RangeOf(plane, tokens, window_begin);
    if (layout_.planes[plane].group == RowGroup::kWindow) {
      // Rows further back are welcome, but not at the price of a miss.
      range.begin = std::min(WindowPlaceBegin(plane, range.begin, tokens), latest);
      placed_window_begin = std::max(placed_window_begin, range.begin);
    }
    const absl::Status room = CheckRows(plane, range);
    if (!room.ok()) return absl::ResourceExhaustedError(room.message());
    ranges.push_back(range);
  }
  ranges_ = std::move(ranges);
  imported_.assign(planes_.size(), ByteRanges());
  placed_tokens_ = tokens;
  restored_window_begin_ = placed_window_begin;
  mode_ = Mode::kImport;
  return absl::OkStatus();
}

absl::Status PlaneSequence::CopyIn(const StageMap& stored, const ExtentInfo& extent,
                                   absl::Span<const char> raw,
                                   const std::shared_ptr<const void>& owner) {
  if (mode_ != Mode::kImport) return absl::FailedPreconditionError("no import is running");
  if (extent.stage >= stored.stages.size() || raw.size() != extent.raw_bytes) {
    return absl::DataLossError("the extent does not fit its stages");
  }
  const std::vector<PlaneSlice> slices = SlicesOf(layout_, stored.stages[extent.stage], extent);
  if (slices.empty()) return absl::DataLossError("the extent does not fit the layout");
  // The layers of one stored stage may lie on several devices here.
  std::vector<std::vector<PlaneRun>> runs(copiers_.size());
  for (const PlaneSlice& slice : slices) {
    const TokenRange placed = ranges_[slice.plane];
    const std::uint64_t row_bytes = layout_.planes[slice.plane].row_bytes;
    const std::uint64_t stored_begin = extent.first * row_bytes + slice.plane_offset;
    // Rows outside what was placed (before the window, after the boundary) are not wanted.
    const std::uint64_t begin = std::max(stored_begin, placed.begin * row_bytes);
    const std::uint64_t end = std::min(stored_begin + slice.bytes, placed.end * row_bytes);
    if (begin >= end) continue;
    AddRuns(slice.plane, begin, end, slice.extent_offset + (begin - stored_begin),
            &runs[stage_of_[slice.plane]]);
    imported_[slice.plane].Add(begin, end);
  }
  for (std::size_t stage = 0; stage < runs.size(); ++stage) {
    if (runs[stage].empty()) continue;
    absl::Status begun = Note(copiers_[stage]->CopyIn(runs[stage], raw.data(), owner));
    if (!begun.ok()) return begun;
  }
  return absl::OkStatus();
}

absl::Status PlaneSequence::Import(const StageMap& stored, const ExtentInfo& extent,
                                   absl::Span<const char> raw) {
  absl::Status begun = CopyIn(stored, extent, raw, nullptr);
  // Also after an error: part of it may be read from `raw` now.
  absl::Status copied = WaitAll();
  return begun.ok() ? copied : begun;
}

absl::Status PlaneSequence::ImportShared(const StageMap& stored, const ExtentInfo& extent,
                                         const ExtentBytes& raw) {
  return CopyIn(stored, extent, absl::Span<const char>(raw->data(), raw->size()), raw);
}

absl::Status PlaneSequence::CheckCoverage(std::uint32_t tokens) const {
  for (std::size_t plane = 0; plane < layout_.planes.size(); ++plane) {
    const Plane& what = layout_.planes[plane];
    TokenRange promised = ranges_[plane];
    if (what.group != RowGroup::kState) promised.end = std::min(promised.end, tokens);
    const std::uint64_t end = promised.end * what.row_bytes;
    const std::uint64_t gap = imported_[plane].FirstGap(promised.begin * what.row_bytes, end);
    if (gap < end) {
      return absl::DataLossError(absl::StrCat(PlaneText(what), ": the row of position ",
                                              gap / what.row_bytes, " was not imported"));
    }
  }
  return absl::OkStatus();
}

absl::Status PlaneSequence::FinishImport(std::uint32_t tokens) {
  if (mode_ != Mode::kImport) return absl::FailedPreconditionError("no import is running");
  absl::Status status = WaitAll();
  if (status.ok() && (tokens == 0 || tokens > placed_tokens_)) {
    status = absl::InvalidArgumentError(
        absl::StrCat(tokens, " tokens wanted, ", placed_tokens_, " placed"));
  }
  if (status.ok() && tokens != placed_tokens_ && !layout_.rows_alone()) {
    status = absl::InvalidArgumentError("window rows and state are those of the last token only");
  }
  if (status.ok()) status = CheckCoverage(tokens);
  if (!status.ok()) {
    Clear();
    return status;
  }
  mode_ = Mode::kIdle;
  imported_.clear();
  return absl::OkStatus();
}

void PlaneSequence::Clear() {
  // swallow: what the rows hold is undefined from now on; an error is kept.
  if (mode_ != Mode::kIdle) WaitAll().IgnoreError();
  mode_ = Mode::kIdle;
  held_tokens_ = 0;
  ranges_.clear();
  imported_.clear();
}

}  // namespace parkade::capi
