// What a llama_context keeps for its sequences, as sections, planes and stages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/engine.h"
#include "parkade/image.h"
#include "src/engine/llama/llama_copiers.h"
#include "src/engine/llama/llama_state_stream.h"

struct ggml_tensor;
struct llama_context;
class llama_kv_cache;
class llama_memory_recurrent;

namespace parkade {

struct LlamaViewOptions {
  // As given to llama_context_params: the window cache keeps every row, so its planes are kFull.
  bool swa_full = false;
  // How rows are copied; see LlamaCopiers. Set by tests.
  LlamaCopiers::Factory copiers = nullptr;
  // Given one line where rows are copied slower than they could be; may be null.
  std::function<void(const std::string& line)> tell = nullptr;
};

// Immutable after Create, but for its copiers. Refers to the context, which must outlive it; when
// the context is made again (idle sleep), so must this be. Serving thread only.
class LlamaMemoryView {
 public:
  // Unimplemented, with one line that says why, when this memory can't be cached: an unknown kind
  // of memory, flash attention off, split mode row or tensor, token ids in cells, an encoder, or
  // cells shared with another context. Copies nothing, changes nothing.
  static absl::StatusOr<std::shared_ptr<const LlamaMemoryView>> Create(
      llama_context* context, const LlamaViewOptions& options);

  // Start-up check that this llama.cpp writes and reads state the way Parkade expects: places two
  // tokens in the empty sequence `sequence`, finds them again, compares, and empties it.
  // FailedPrecondition: it does not (the cache must stay off), or the sequence is not empty.
  absl::Status CheckLayout(std::int32_t sequence) const;

  llama_context* context() const { return context_; }
  // For the tensors of this context.
  LlamaCopiers& copiers() const { return *copiers_; }
  const std::string& memory_name() const { return memory_name_; }
  bool swa_full() const { return swa_full_; }
  // Positions are of several numbers: a sequence needs to be told the places of its tokens.
  bool wide() const { return wide_; }
  const StateLayout& layout() const { return layout_; }
  const StageMap& stages() const { return stages_; }
  const std::vector<MemorySection>& sections() const { return sections_; }
  // Rotation of K and V rows before they are stored, over this many elements; 0: none. Per KV
  // section, in order.
  std::vector<std::uint32_t> key_rotations() const;
  std::vector<std::uint32_t> value_rotations() const;

  // Section and position inside it that hold a plane of the layout.
  struct PlanePlace {
    std::size_t section = 0;
    std::size_t wire_plane = 0;
  };
  const PlanePlace& place(std::size_t layout_plane) const { return places_[layout_plane]; }

  // Waits for the context's work and applies what it has pending (copies between streams, shifts),
  // so that what tensors and cells say is true.
  absl::Status Settle() const;
  // Removes all of a sequence from the memory.
  void ClearSequence(std::int32_t sequence) const;

 private:
  LlamaMemoryView() = default;
  absl::Status AddSections();
  absl::Status AddKv(llama_kv_cache* cache, RowGroup group);
  absl::Status AddState(llama_memory_recurrent* memory);
  void BuildLayout();
  absl::Status BuildStages();
  absl::Status CheckSection(const MemorySection& section, const SectionRows& placed,
                            std::int32_t sequence) const;

  llama_context* context_ = nullptr;
  std::unique_ptr<LlamaCopiers> copiers_;
  std::string memory_name_;
  bool swa_full_ = false;
  bool wide_ = false;
  std::vector<MemorySection> sections_;
  // Device of each section's planes, parallel to sections_ and their planes.
  std::vector<std::vector<std::string>> devices_;
  StateLayout layout_;
  StageMap stages_;
  std::vector<PlanePlace> places_;
};

}  // namespace parkade
