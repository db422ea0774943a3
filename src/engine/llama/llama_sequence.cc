#include "src/engine/llama/llama_sequence.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ggml.h"
#include "llama-memory.h"
#include "llama.h"
#include "src/engine/llama/llama_copiers.h"

namespace parkade {
namespace {

// Adds the bytes [begin, end) of a plane, counted from token 0's row, in as few runs as the cells'
// places allow; in the host's buffer they begin at `host_offset`. Requires the range to lie inside
// `rows`.
void AddRuns(const SectionRows& rows, ggml_tensor* tensor, std::uint64_t row_bytes,
             std::uint64_t begin, std::uint64_t end, std::uint64_t host_offset,
             TensorMoves* moves) {
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t row = at / row_bytes;
    const std::size_t first = row - rows.range.begin;
    std::size_t next = first + 1;
    const std::size_t last = (end - 1) / row_bytes - rows.range.begin;
    while (next <= last && rows.cells[next] == rows.cells[next - 1] + 1) ++next;
    const std::uint64_t stop = std::min(end, (rows.range.begin + next) * row_bytes);
    const std::uint64_t offset = rows.cells[first] * row_bytes + (at - row * row_bytes);
    moves->Add(tensor, offset, stop - at, host_offset + (at - begin));
    at = stop;
  }
}

}  // namespace

LlamaSequence::LlamaSequence(std::shared_ptr<const LlamaMemoryView> view, std::int32_t sequence,
                             std::shared_ptr<const TokenPlaces> places)
    : view_(std::move(view)), sequence_(sequence), places_(std::move(places)) {}

const SectionRows& LlamaSequence::RowsOf(std::size_t plane) const {
  return rows_[view_->place(plane).section];
}

void LlamaSequence::Forget() {
  mode_ = Mode::kIdle;
  tokens_ = 0;
  rows_.clear();
  imported_.clear();
}

absl::Status LlamaSequence::BeginCapture(std::uint32_t tokens) {
  Forget();
  absl::Status status = view_->Settle();
  if (!status.ok()) return status;
  for (const MemorySection& section : view_->sections()) {
    absl::StatusOr<SectionRows> rows = LocateRows(section, sequence_, tokens, places_.get());
    if (rows.ok() && section.group == RowGroup::kFull && rows->range.begin != 0) {
      rows = absl::FailedPreconditionError(
          absl::StrCat("row ", rows->range.begin - 1, " of ", tokens, " is not in memory"));
    }
    if (!rows.ok()) {
      rows_.clear();
      return absl::FailedPreconditionError(rows.status().message());
    }
    rows_.push_back(*std::move(rows));
  }
  mode_ = Mode::kCapture;
  tokens_ = tokens;
  return absl::OkStatus();
}

std::uint32_t LlamaSequence::WindowBegin() const {
  std::uint32_t begin = 0;
  for (std::size_t s = 0; s < rows_.size(); ++s) {
    if (view_->sections()[s].group == RowGroup::kWindow) {
      begin = std::max(begin, rows_[s].range.begin);
    }
  }
  return begin;
}

absl::Status LlamaSequence::ExportFor(const StageMap& stages, const ExtentInfo& extent,
                                      char* destination) {
  if (mode_ != Mode::kCapture) return absl::FailedPreconditionError("no capture is running");
  if (extent.stage >= stages.stages.size()) return absl::InvalidArgumentError("no such stage");
  const std::vector<PlaneSlice> slices = SlicesOf(layout(), stages.stages[extent.stage], extent);
  if (slices.empty()) return absl::InvalidArgumentError("the extent does not fit the layout");
  for (const PlaneSlice& slice : slices) {
    const TokenRange have = RowsOf(slice.plane).range;
    if (extent.first < have.begin || extent.first + extent.rows > have.end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rows [", extent.first, ", ", extent.first + extent.rows, ") were not captured"));
    }
  }
  TensorMoves moves(&view_->copiers());
  for (const PlaneSlice& slice : slices) {
    const SectionRows& rows = RowsOf(slice.plane);
    const std::uint64_t row_bytes = layout().planes[slice.plane].row_bytes;
    const std::uint64_t begin = extent.first * row_bytes + slice.plane_offset;
    AddRuns(rows, rows.tensors[view_->place(slice.plane).wire_plane], row_bytes, begin,
            begin + slice.bytes, slice.extent_offset, &moves);
  }
  try {
    return moves.CopyOut(destination);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("copying rows out: ", error.what()));
  }
}

absl::Status LlamaSequence::FinishExports() { return view_->copiers().Wait(); }

void LlamaSequence::EndCapture() {
  // swallow: what was asked for was waited for; a device that is broken says so again.
  if (mode_ == Mode::kCapture) FinishExports().IgnoreError();
  Forget();
}

absl::Status LlamaSequence::BeginImport(std::uint32_t tokens, std::uint32_t window_begin) {
  Forget();
  absl::Status status = view_->Settle();
  Clear();
  if (!status.ok()) return status;
  if (tokens == 0) return absl::InvalidArgumentError("nothing to import");
  const std::uint32_t needed = layout().window_tokens + 1;
  const std::uint32_t latest = tokens > needed ? tokens - needed : 0;
  if (layout().has_group(RowGroup::kWindow) && window_begin > latest) {
    return absl::FailedPreconditionError(absl::StrCat("window rows from ", window_begin,
                                                      " on do not serve the token after ", tokens,
                                                      "; needed from ", latest));
  }
  for (const MemorySection& section : view_->sections()) {
    TokenRange range{0, tokens};
    if (section.group == RowGroup::kWindow) {
      // Rows further back are welcome, but not at the price of a miss.
      const std::uint32_t usable = std::min(UsableCells(section, sequence_), tokens);
      range.begin = std::min(std::max(window_begin, tokens - usable), latest);
    }
    if (section.group == RowGroup::kState) range = {tokens, tokens + 1};
    absl::StatusOr<SectionRows> rows = PlaceRows(section, sequence_, range, places_.get());
    if (!rows.ok()) {
      Clear();
      return rows.status();
    }
    rows_.push_back(*std::move(rows));
  }
  mode_ = Mode::kImport;
  tokens_ = tokens;
  imported_.resize(layout().planes.size());
  return absl::OkStatus();
}

// While other sequences are decoded, llama.cpp moves states from cell to cell and gives the cells
// of rows before the window to others.
absl::Status LlamaSequence::FindAgain(RowGroup group) {
  // Those moves are work of the context's: it must not come after what is copied now.
  llama_synchronize(view_->context());
  for (std::size_t s = 0; s < rows_.size(); ++s) {
    const MemorySection& section = view_->sections()[s];
    if (section.group != group) continue;
    absl::StatusOr<SectionRows> rows = LocateRows(section, sequence_, tokens_, places_.get());
    if (!rows.ok()) return rows.status();
    rows_[s] = *std::move(rows);
  }
  return absl::OkStatus();
}

absl::Status LlamaSequence::CopyIn(const StageMap& stored, const ExtentInfo& extent,
                                   absl::Span<const char> raw,
                                   const std::shared_ptr<const void>& owner) {
  if (mode_ != Mode::kImport) return absl::FailedPreconditionError("no import is running");
  if (extent.stage >= stored.stages.size() || raw.size() != extent.raw_bytes) {
    return absl::DataLossError("the extent does not fit its stage map");
  }
  const std::vector<PlaneSlice> slices = SlicesOf(layout(), stored.stages[extent.stage], extent);
  if (slices.empty()) return absl::DataLossError("the extent does not fit the layout");
  if (extent.group != RowGroup::kFull) {
    absl::Status found = FindAgain(extent.group);
    if (!found.ok()) {
      Clear();
      return found;
    }
  }
  TensorMoves moves(&view_->copiers());
  for (const PlaneSlice& slice : slices) {
    const SectionRows& rows = RowsOf(slice.plane);
    const std::uint64_t row_bytes = layout().planes[slice.plane].row_bytes;
    const std::uint64_t stored_begin = extent.first * row_bytes + slice.plane_offset;
    // Rows outside what was placed (before the window, after the boundary) are not wanted.
    const std::uint64_t begin = std::max(stored_begin, rows.range.begin * row_bytes);
    const std::uint64_t end =
        std::min(stored_begin + slice.bytes, std::uint64_t{rows.range.end} * row_bytes);
    if (begin >= end) continue;
    AddRuns(rows, rows.tensors[view_->place(slice.plane).wire_plane], row_bytes, begin, end,
            slice.extent_offset + (begin - stored_begin), &moves);
    imported_[slice.plane].Add(begin, end);
  }
  absl::Status copied;
  try {
    copied = moves.CopyIn(raw.data(), owner);
  } catch (const std::exception& error) {
    copied = absl::InternalError(absl::StrCat("copying rows in: ", error.what()));
  }
  if (!copied.ok()) Clear();
  return copied;
}

absl::Status LlamaSequence::Import(const StageMap& stored, const ExtentInfo& extent,
                                   absl::Span<const char> raw) {
  absl::Status begun = CopyIn(stored, extent, raw, nullptr);
  // Also after an error: a part of `raw` may still be read.
  absl::Status copied = view_->copiers().Wait();
  if (begun.ok() && !copied.ok()) Clear();
  return begun.ok() ? copied : begun;
}

absl::Status LlamaSequence::ImportShared(const StageMap& stored, const ExtentInfo& extent,
                                         const ExtentBytes& raw) {
  return CopyIn(stored, extent, absl::Span<const char>(raw->data(), raw->size()), raw);
}

absl::Status LlamaSequence::PauseImport() {
  absl::Status copied = view_->copiers().Wait();
  if (!copied.ok()) Clear();
  return copied;
}

absl::Status LlamaSequence::CheckImported(std::uint32_t tokens) const {
  for (std::size_t plane = 0; plane < layout().planes.size(); ++plane) {
    const Plane& what = layout().planes[plane];
    TokenRange promised = RowsOf(plane).range;
    if (what.group != RowGroup::kState) promised.end = std::min(promised.end, tokens);
    if (!imported_[plane].Covers(promised.begin * what.row_bytes, promised.end * what.row_bytes)) {
      return absl::DataLossError(absl::StrCat("rows [", promised.begin, ", ", promised.end,
                                              ") of layer ", what.layer, " were not all imported"));
    }
  }
  return absl::OkStatus();
}

llama_pos LlamaSequence::PositionOf(std::uint32_t token) const {
  return places_ != nullptr ? (*places_)[token].position : static_cast<llama_pos>(token);
}

absl::Status LlamaSequence::Truncate(std::uint32_t tokens) {
  if (tokens == tokens_) return absl::OkStatus();
  if (tokens > tokens_ || tokens == 0) {
    return absl::InvalidArgumentError(absl::StrCat(tokens, " tokens wanted, ", tokens_, " placed"));
  }
  if (!layout().rows_alone()) {
    return absl::InvalidArgumentError(
        "a sequence with window rows or recurrent state can't be cut");
  }
  const llama_pos next = PositionOf(tokens);
  if (next <= PositionOf(tokens - 1)) {
    return absl::InvalidArgumentError("a sequence can't be cut inside of an image");
  }
  for (const MemorySection& section : view_->sections()) {
    if (!section.memory->seq_rm(sequence_, next, -1)) {
      return absl::DataLossError("llama.cpp refused to cut the sequence");
    }
  }
  return absl::OkStatus();
}

absl::Status LlamaSequence::CheckEnds(std::uint32_t tokens) const {
  for (const MemorySection& section : view_->sections()) {
    const llama_pos last = section.memory->seq_pos_max(sequence_);
    if (last != PositionOf(tokens - 1)) {
      return absl::DataLossError(
          absl::StrCat("memory ends at position ", last, " after importing ", tokens, " tokens"));
    }
  }
  return absl::OkStatus();
}

absl::Status LlamaSequence::FinishImport(std::uint32_t tokens) {
  if (mode_ != Mode::kImport) return absl::FailedPreconditionError("no import is running");
  absl::Status status = view_->copiers().Wait();
  if (status.ok()) status = CheckImported(tokens);
  if (status.ok()) status = Truncate(tokens);
  if (status.ok()) status = CheckEnds(tokens);
  if (!status.ok()) {
    Clear();
    return status;
  }
  Forget();
  return absl::OkStatus();
}

void LlamaSequence::Clear() {
  // swallow: the rows are given up; a device that is broken says so again.
  if (mode_ == Mode::kImport) view_->copiers().Wait().IgnoreError();
  Forget();
  view_->ClearSequence(sequence_);
}

}  // namespace parkade
