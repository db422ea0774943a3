// What CUDA hands out, given back by itself; and its errors as statuses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace parkade {

// `what` says what was being done. An error is told here and nowhere else: what the runtime keeps
// of it for the thread would end an engine that asks after its own calls.
inline absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  const std::string text =
      absl::StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

// Makes a card the calling thread's own, and the one before it again. Meanwhile the thread's calls
// do not end graphs that other threads of the engine are capturing.
class WithDevice {
 public:
  explicit WithDevice(int device) {
    // swallow: what is done with the card fails then, and says so.
    (void)cudaGetDevice(&before_);
    (void)cudaSetDevice(device);
    (void)cudaThreadExchangeStreamCaptureMode(&capture_);
  }
  ~WithDevice() {
    (void)cudaThreadExchangeStreamCaptureMode(&capture_);
    (void)cudaSetDevice(before_);
  }
  WithDevice(const WithDevice&) = delete;
  WithDevice& operator=(const WithDevice&) = delete;

 private:
  int before_ = 0;
  cudaStreamCaptureMode capture_ = cudaStreamCaptureModeRelaxed;  // then the one before
};

// One handle, or none. `kFree` gives it back.
template <typename Handle, cudaError_t (*kFree)(Handle)>
class CudaOwned {
 public:
  CudaOwned() = default;
  ~CudaOwned() {
    // swallow: nothing can be done about it, and the next call of the card tells.
    if (handle_ != Handle()) (void)kFree(handle_);
  }
  CudaOwned(const CudaOwned&) = delete;
  CudaOwned& operator=(const CudaOwned&) = delete;
  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }

 private:
  Handle handle_ = Handle();
};

using CudaStream = CudaOwned<cudaStream_t, cudaStreamDestroy>;
using CudaEvent = CudaOwned<cudaEvent_t, cudaEventDestroy>;
using CudaMemory = CudaOwned<void*, cudaFree>;
using PinnedMemory = CudaOwned<void*, cudaFreeHost>;

}  // namespace parkade
