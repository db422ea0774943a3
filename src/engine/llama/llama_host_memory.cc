#include "src/engine/llama/llama_host_memory.h"

#include <algorithm>
#include <utility>

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

LlamaHostMemory::LlamaHostMemory(ggml_backend_buffer_type_t type, std::vector<int> nodes)
    : type_(type), nodes_(std::move(nodes)) {}

LlamaHostMemory::~LlamaHostMemory() {
  absl::MutexLock lock(&mu_);
  for (const auto& [memory, buffer] : buffers_) ggml_backend_buffer_free(buffer);
}

std::string LlamaHostMemory::name() const {
  return absl::StrCat("page-locked memory (", ggml_backend_buft_name(type_), ")");
}

absl::StatusOr<char*> LlamaHostMemory::Take(std::size_t bytes) {
  int node = -1;
  if (!nodes_.empty()) {
    absl::MutexLock lock(&mu_);
    node = nodes_[taken_++ % nodes_.size()];
  }
  ggml_backend_buffer_t buffer = nullptr;
  {
    const PreferNode near(node);
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
  ggml_backend_buffer_type_t first = nullptr;
  std::vector<int> nodes;
  for (const Stage& stage : view.stages().stages) {
    ggml_backend_dev_t device = ggml_backend_dev_by_name(stage.device.c_str());
    if (device == nullptr) continue;
    ggml_backend_buffer_type_t type = ggml_backend_dev_host_buffer_type(device);
    if (type == nullptr) continue;
    if (first == nullptr) first = type;
    const int node = NodeOf(device);
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  }
  if (first == nullptr) return nullptr;
  return std::make_shared<LlamaHostMemory>(first, std::move(nodes));
}

}  // namespace parkade
