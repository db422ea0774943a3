// Memory that a context's devices copy from fast: llama.cpp's host buffers of theirs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ggml-backend.h"
#include "parkade/host_memory.h"
#include "src/engine/llama/llama_memory_view.h"

namespace parkade {

class LlamaHostMemory : public HostMemory {
 public:
  // `type` outlives this; `nodes`: NUMA nodes to take pieces from, in turn; -1 or none: any.
  LlamaHostMemory(ggml_backend_buffer_type_t type, std::vector<int> nodes);
  ~LlamaHostMemory() override;

  std::string name() const override;
  absl::StatusOr<char*> Take(std::size_t bytes) override;
  void Give(char* memory, std::size_t bytes) override;

 private:
  const ggml_backend_buffer_type_t type_;
  const std::vector<int> nodes_;
  absl::Mutex mu_;
  std::size_t taken_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<char*, ggml_backend_buffer_t> buffers_ ABSL_GUARDED_BY(mu_);  // by where they begin
};

// Of the first stage whose device has such buffers, near the devices of all that have; null: none.
std::shared_ptr<HostMemory> HostMemoryOf(const LlamaMemoryView& view);

}  // namespace parkade
