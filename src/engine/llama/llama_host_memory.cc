#include "src/engine/llama/llama_host_memory.h"

#include "absl/strings/str_cat.h"
#include "src/device/slab_pages.h"

namespace parkade {
namespace {

int NodeOf(ggml_backend_dev_t device) {
  ggml_backend_dev_props properties{};
  ggml_backend_dev_get_props(device, &properties);
  return properties.device_id == nullptr ? -1 : NumaNodeOfPci(properties.device_id);
}

}  // namespace

LlamaHostMemory::LlamaHostMemory(ggml_backend_buffer_type_t type, int node)
    : type_(type), node_(node) {}

LlamaHostMemory::~LlamaHostMemory() {
  absl::MutexLock lock(&mu_);
  for (const auto& [memory, buffer] : buffers_) ggml_backend_buffer_free(buffer);
}

std::string LlamaHostMemory::name() const {
  return absl::StrCat("page-locked memory (", ggml_backend_buft_name(type_), ")");
}

absl::StatusOr<char*> LlamaHostMemory::Take(std::size_t bytes) {
  ggml_backend_buffer_t buffer = nullptr;
  {
    const PreferNode near(node_);
    buffer = ggml_backend_buft_alloc_buffer(type_, bytes);
  }
  if (buffer == nullptr) return absl::ResourceExhaustedError("the system gives none");
  // Where pages can't be locked llama.cpp gives ordinary memory in its place.
  if (ggml_backend_buffer_get_type(buffer) != type_) {
    ggml_backend_buffer_free(buffer);
    return absl::ResourceExhaustedError("pages can't be locked");
  }
  char* memory = static_cast<char*>(ggml_backend_buffer_get_base(buffer));
  absl::MutexLock lock(&mu_);
  buffers_.emplace(memory, buffer);
  return memory;
}

void LlamaHostMemory::Give(char* memory, std::size_t /*bytes*/) {
  ggml_backend_buffer_t buffer = nullptr;
  {
    absl::MutexLock lock(&mu_);
    const auto found = buffers_.find(memory);
    if (found == buffers_.end()) return;
    buffer = found->second;
    buffers_.erase(found);
  }
  ggml_backend_buffer_free(buffer);
}

std::shared_ptr<HostMemory> HostMemoryOf(const LlamaMemoryView& view) {
  for (const Stage& stage : view.stages().stages) {
    ggml_backend_dev_t device = ggml_backend_dev_by_name(stage.device.c_str());
    if (device == nullptr) continue;
    ggml_backend_buffer_type_t type = ggml_backend_dev_host_buffer_type(device);
    if (type != nullptr) return std::make_shared<LlamaHostMemory>(type, NodeOf(device));
  }
  return nullptr;
}

}  // namespace parkade
