#include "src/engine/llama/llama_copiers.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ggml.h"
#include "src/device/cuda_copier.h"

namespace parkade {
namespace {

ggml_backend_buffer_t BufferOf(const ggml_tensor* tensor) {
  const ggml_tensor* owner = tensor->view_src != nullptr ? tensor->view_src : tensor;
  return owner->buffer;
}

// -1: it is not in a card's memory that this process can reach. An RPC server's tensors have
// addresses of another process, so the name is asked first.
int CardOf(const ggml_tensor* tensor, ggml_backend_buffer_type_t type) {
  ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
  if (device == nullptr) return -1;
  const std::string_view registry = ggml_backend_reg_name(ggml_backend_dev_backend_reg(device));
  return registry == "CUDA" ? CudaDeviceOf(tensor->data) : -1;
}

absl::StatusOr<std::unique_ptr<StageCopier>> CopierFor(const ggml_tensor* tensor) {
  ggml_backend_buffer_t buffer = BufferOf(tensor);
  if (ggml_backend_buffer_is_host(buffer)) return NewHostCopier();
  const int card = CardOf(tensor, ggml_backend_buffer_get_type(buffer));
  if (card < 0) return nullptr;
  // The default stream: rows are moved only while the context has nothing queued that touches them.
  return NewCudaCopier(card, nullptr);
}

}  // namespace

LlamaCopiers::LlamaCopiers(Factory make, std::function<void(const std::string& line)> tell)
    : make_(make != nullptr ? std::move(make) : CopierFor), tell_(std::move(tell)) {}

StageCopier* LlamaCopiers::For(const ggml_tensor* tensor) {
  ggml_backend_buffer_t buffer = BufferOf(tensor);
  if (buffer == nullptr) return nullptr;
  ggml_backend_buffer_type_t type = ggml_backend_buffer_get_type(buffer);
  const auto found = copiers_.find(type);
  if (found != copiers_.end()) return found->second.get();
  absl::StatusOr<std::unique_ptr<StageCopier>> copier = make_(tensor);
  if (!copier.ok() && tell_) {
    tell_(absl::StrCat("rows on ", ggml_backend_buft_name(type),
                       " are copied one run at a time: ", copier.status().message()));
  }
  std::unique_ptr<StageCopier>& kept = copiers_[type];
  if (copier.ok()) kept = *std::move(copier);
  return kept.get();
}

absl::Status LlamaCopiers::Wait() {
  absl::Status first;
  for (const auto& [type, copier] : copiers_) {
    if (copier != nullptr) first.Update(copier->Wait());
  }
  return first;
}

void TensorMoves::Add(ggml_tensor* tensor, std::uint64_t offset, std::uint64_t bytes,
                      std::uint64_t host_offset) {
  StageCopier* copier = copiers_->For(tensor);
  if (copier == nullptr) {
    singles_.push_back({tensor, {nullptr, offset, bytes, host_offset}});
    return;
  }
  Moves& moves = moves_[copier];
  if (moves.last != tensor) {
    PlaneRows plane;
    plane.base = static_cast<char*>(tensor->data);
    plane.rows = 1;
    plane.row_bytes = ggml_nbytes(tensor);
    plane.row_stride = plane.row_bytes;
    moves.planes.push_back(std::move(plane));
    moves.last = tensor;
  }
  moves.runs.push_back({&moves.planes.back(), offset, bytes, host_offset});
}

absl::Status TensorMoves::CopyOut(char* host) {
  for (auto& [copier, moves] : moves_) {
    if (absl::Status s = copier->CopyOut(moves.runs, host); !s.ok()) return s;
  }
  for (const Single& single : singles_) {
    const PlaneRun& run = single.run;
    ggml_backend_tensor_get(single.tensor, host + run.host_offset, run.begin, run.bytes);
  }
  return absl::OkStatus();
}

absl::Status TensorMoves::CopyIn(const char* host, const std::shared_ptr<const void>& owner) {
  for (auto& [copier, moves] : moves_) {
    if (absl::Status s = copier->CopyIn(moves.runs, host, owner); !s.ok()) return s;
  }
  for (const Single& single : singles_) {
    const PlaneRun& run = single.run;
    ggml_backend_tensor_set(single.tensor, host + run.host_offset, run.begin, run.bytes);
  }
  return absl::OkStatus();
}

}  // namespace parkade
