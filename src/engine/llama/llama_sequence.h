// One sequence of a llama_context behind the cache's engine contract.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "llama.h"
#include "parkade/engine.h"
#include "parkade/image.h"
#include "src/engine/llama/llama_memory_view.h"
#include "src/engine/llama/llama_state_stream.h"
#include "src/format/byte_ranges.h"

namespace parkade {

// Serving thread only. Moves rows straight between the context's tensors and the caller's buffers;
// no spare sequence, and no other sequence is touched. Capture leaves the context as it was.
// After an import nothing may be removed from the end of a sequence with recurrent state before a
// batch is decoded: where the context keeps snapshots for speculation, llama.cpp agrees to that and
// takes a snapshot that is not this sequence's.
class LlamaSequence : public EngineSequence {
 public:
  // The view's context must outlive this. `sequence`: a valid sequence id of that context.
  // `places`: of all tokens that are going to be captured or imported; needed where the view is
  // wide.
  LlamaSequence(std::shared_ptr<const LlamaMemoryView> view, std::int32_t sequence,
                std::shared_ptr<const TokenPlaces> places = nullptr);

  const StateLayout& layout() const override { return view_->layout(); }
  const StageMap& stages() const override { return view_->stages(); }

  absl::Status BeginCapture(std::uint32_t tokens) override;
  // 0 when the model has no window planes.
  std::uint32_t WindowBegin() const override;
  absl::Status Export(const ExtentInfo& extent, char* destination) override {
    return ExportFor(stages(), extent, destination);
  }
  // The same, of an extent that was cut for other stages of the same layers.
  absl::Status ExportFor(const StageMap& stages, const ExtentInfo& extent, char* destination);
  absl::Status FinishExports() override;
  void EndCapture() override;

  // Besides the contract: FailedPrecondition when the window rows do not reach back far enough for
  // the next token (window_tokens + 1 of them, or all); the sequence is empty then. When other
  // sequences leave too little room, fewer window rows are placed, never less than those.
  absl::Status BeginImport(std::uint32_t tokens, std::uint32_t window_begin) override;
  absl::Status Import(const StageMap& stored, const ExtentInfo& extent,
                      absl::Span<const char> raw) override;
  absl::Status ImportShared(const StageMap& stored, const ExtentInfo& extent,
                            const ExtentBytes& raw) override;
  absl::Status PauseImport() override;
  absl::Status FinishImport(std::uint32_t tokens) override;
  void Clear() override;

 private:
  enum class Mode { kIdle, kCapture, kImport };

  // `owner` null: `raw` lives until the copiers have been waited for.
  absl::Status CopyIn(const StageMap& stored, const ExtentInfo& extent, absl::Span<const char> raw,
                      const std::shared_ptr<const void>& owner);
  absl::Status FindAgain(RowGroup group);
  absl::Status CheckEnds(std::uint32_t tokens) const;
  absl::Status CheckImported(std::uint32_t tokens) const;
  absl::Status Truncate(std::uint32_t tokens);
  llama_pos PositionOf(std::uint32_t token) const;
  const SectionRows& RowsOf(std::size_t plane) const;
  void Forget();

  const std::shared_ptr<const LlamaMemoryView> view_;
  const std::int32_t sequence_;
  const std::shared_ptr<const TokenPlaces> places_;

  Mode mode_ = Mode::kIdle;
  std::uint32_t tokens_ = 0;          // of the capture or import that is running
  std::vector<SectionRows> rows_;     // by section
  std::vector<ByteRanges> imported_;  // by plane of the layout
};

}  // namespace parkade
