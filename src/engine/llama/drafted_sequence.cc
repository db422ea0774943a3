#include "src/engine/llama/drafted_sequence.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace parkade {
namespace {

// The same extent as the draft's own sequence, which has one stage, counts it.
ExtentInfo OwnExtent(const ExtentInfo& extent) {
  ExtentInfo own = extent;
  own.stage = 0;
  return own;
}

StageMap OwnStages(const Stage& stage) {
  StageMap own;
  own.stages.push_back(stage);
  for (std::uint16_t& layer : own.stages[0].layers) {
    layer = static_cast<std::uint16_t>(layer - kDraftLayers);
  }
  return own;
}

bool PlaneOrder(const Plane& one, const Plane& other) {
  return std::tuple(one.group, one.layer, one.kind) <
         std::tuple(other.group, other.layer, other.kind);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const DraftModel>> DraftModel::Create(
    std::shared_ptr<const LlamaMemoryView> view, std::string name) {
  const StateLayout& own = view->layout();
  if (!own.rows_alone()) {
    return absl::UnimplementedError("rows of a draft with a window or a state are not stored");
  }
  if (view->wide()) {
    return absl::UnimplementedError("rows of a draft with positions of several numbers");
  }
  std::shared_ptr<DraftModel> draft(new DraftModel());
  std::string devices;
  for (const Stage& stage : view->stages().stages) {
    devices += (devices.empty() ? "" : "+") + stage.device;
    for (const std::uint16_t layer : stage.layers) {
      if (layer >= kDraftLayers) return absl::UnimplementedError("a draft of too many layers");
      draft->stage_.layers.push_back(static_cast<std::uint16_t>(layer + kDraftLayers));
    }
  }
  draft->stage_.device = DraftDevice(name, devices);
  draft->layout_ = own;
  for (Plane& plane : draft->layout_.planes) {
    plane.layer = static_cast<std::uint16_t>(plane.layer + kDraftLayers);
  }
  draft->view_ = std::move(view);
  return std::shared_ptr<const DraftModel>(std::move(draft));
}

DraftedSequence::DraftedSequence(std::shared_ptr<const LlamaMemoryView> view,
                                 std::shared_ptr<const DraftModel> draft, std::int32_t sequence,
                                 std::shared_ptr<const TokenPlaces> places)
    : main_(view, sequence, std::move(places)),
      rows_(draft->view(), sequence),
      draft_(std::move(draft)),
      main_stages_(view->stages()),
      layout_(view->layout()),
      stages_(view->stages()) {
  const std::vector<Plane>& planes = draft_->layout().planes;
  layout_.planes.insert(layout_.planes.end(), planes.begin(), planes.end());
  std::stable_sort(layout_.planes.begin(), layout_.planes.end(), PlaneOrder);
}

absl::Status DraftedSequence::BeginCapture(std::uint32_t tokens) {
  stages_ = main_stages_;
  const absl::Status status = main_.BeginCapture(tokens);
  if (!status.ok()) return status;
  draft_rows_ = rows_.BeginCapture(tokens).ok();
  if (draft_rows_) stages_.stages.push_back(draft_->stage());
  return absl::OkStatus();
}

absl::Status DraftedSequence::Export(const ExtentInfo& extent, char* destination) {
  if (extent.stage < main_stages_.stages.size()) return main_.Export(extent, destination);
  if (!draft_rows_) return absl::InvalidArgumentError("the draft's rows are not there");
  // Its own view may have several stages; the extent spans them all.
  return rows_.ExportFor(OwnStages(draft_->stage()), OwnExtent(extent), destination);
}

// What the draft's extents hold is stored like everything else: it must be what was asked for.
absl::Status DraftedSequence::FinishExports() {
  absl::Status status = main_.FinishExports();
  status.Update(rows_.FinishExports());
  return status;
}

void DraftedSequence::EndCapture() {
  main_.EndCapture();
  rows_.EndCapture();
  draft_rows_ = false;
}

absl::Status DraftedSequence::BeginImport(std::uint32_t tokens, std::uint32_t window_begin) {
  const absl::Status status = main_.BeginImport(tokens, window_begin);
  draft_rows_ = status.ok() && rows_.BeginImport(tokens, tokens).ok();
  if (!draft_rows_) rows_.Clear();
  return status;
}

void DraftedSequence::DropRows() {
  rows_.Clear();
  draft_rows_ = false;
}

template <typename Main, typename Rows>
absl::Status DraftedSequence::Route(const StageMap& stored, const ExtentInfo& extent, Main of_main,
                                    Rows of_draft) {
  if (extent.stage >= stored.stages.size()) {
    return absl::DataLossError("the extent does not fit its stage map");
  }
  const Stage& stage = stored.stages[extent.stage];
  if (!IsDraft(stage)) return of_main();
  if (draft_rows_ && !of_draft(OwnStages(stage), OwnExtent(extent)).ok()) DropRows();
  return absl::OkStatus();
}

absl::Status DraftedSequence::Import(const StageMap& stored, const ExtentInfo& extent,
                                     absl::Span<const char> raw) {
  return Route(
      stored, extent, [&] { return main_.Import(stored, extent, raw); },
      [&](const StageMap& own, const ExtentInfo& part) { return rows_.Import(own, part, raw); });
}

absl::Status DraftedSequence::ImportShared(const StageMap& stored, const ExtentInfo& extent,
                                           const ExtentBytes& raw) {
  return Route(
      stored, extent, [&] { return main_.ImportShared(stored, extent, raw); },
      [&](const StageMap& own, const ExtentInfo& part) {
        return rows_.ImportShared(own, part, raw);
      });
}

absl::Status DraftedSequence::PauseImport() {
  if (draft_rows_ && !rows_.PauseImport().ok()) DropRows();
  return main_.PauseImport();
}

absl::Status DraftedSequence::FinishImport(std::uint32_t tokens) {
  const absl::Status status = main_.FinishImport(tokens);
  if (!status.ok() || !draft_rows_ || !rows_.FinishImport(tokens).ok()) rows_.Clear();
  draft_rows_ = false;
  return status;
}

void DraftedSequence::Clear() {
  main_.Clear();
  rows_.Clear();
  draft_rows_ = false;
}

}  // namespace parkade
