// A sequence whose tokens a draft model has read, too: speculative decoding goes on from its rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "parkade/engine.h"
#include "src/engine/llama/llama_sequence.h"

namespace parkade {

// What is known of a draft model's context, for as long as it is loaded. Immutable.
class DraftModel {
 public:
  // Unimplemented, with one line that says why, when the context keeps more than one row a token:
  // window rows, recurrent state and wide positions of a draft are not stored. `name` tells drafts
  // apart whose rows differ: a digest over weights, types and layout.
  static absl::StatusOr<std::shared_ptr<const DraftModel>> Create(
      std::shared_ptr<const LlamaMemoryView> view, std::string name);

  const std::shared_ptr<const LlamaMemoryView>& view() const { return view_; }
  // The one stage of its rows, and their planes, both with layers from kDraftLayers on.
  const Stage& stage() const { return stage_; }
  const StateLayout& layout() const { return layout_; }

 private:
  DraftModel() = default;

  std::shared_ptr<const LlamaMemoryView> view_;
  Stage stage_;
  StateLayout layout_;
};

// Serving thread only. The draft never fails the sequence: rows that it does not hold are not
// captured, rows that do not come leave its sequence empty.
class DraftedSequence : public EngineSequence {
 public:
  DraftedSequence(std::shared_ptr<const LlamaMemoryView> view,
                  std::shared_ptr<const DraftModel> draft, std::int32_t sequence,
                  std::shared_ptr<const TokenPlaces> places = nullptr);

  const StateLayout& layout() const override { return layout_; }
  const StageMap& stages() const override { return stages_; }
  absl::Status BeginCapture(std::uint32_t tokens) override;
  std::uint32_t WindowBegin() const override { return main_.WindowBegin(); }
  absl::Status Export(const ExtentInfo& extent, char* destination) override;
  absl::Status FinishExports() override;
  void EndCapture() override;
  absl::Status BeginImport(std::uint32_t tokens, std::uint32_t window_begin) override;
  absl::Status Import(const StageMap& stored, const ExtentInfo& extent,
                      absl::Span<const char> raw) override;
  absl::Status ImportShared(const StageMap& stored, const ExtentInfo& extent,
                            const ExtentBytes& raw) override;
  absl::Status PauseImport() override;
  absl::Status FinishImport(std::uint32_t tokens) override;
  void Clear() override;

 private:
  // `of_draft` is given the extent as the draft's own sequence counts it, `of_main` as it is.
  template <typename Main, typename Rows>
  absl::Status Route(const StageMap& stored, const ExtentInfo& extent, Main of_main, Rows of_draft);
  void DropRows();

  LlamaSequence main_;
  LlamaSequence rows_;  // the draft's
  const std::shared_ptr<const DraftModel> draft_;
  const StageMap main_stages_;
  StateLayout layout_;       // both models' planes
  StageMap stages_;          // the draft's last, where its rows are there
  bool draft_rows_ = false;  // a capture or an import of the draft's rows is going on
};

}  // namespace parkade
