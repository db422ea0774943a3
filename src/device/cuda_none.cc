#include "src/device/cuda_copier.h"
#include "src/device/cuda_memory.h"

namespace parkade {
namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError("this build is without CUDA: it needs -DPARKADE_CUDA=ON");
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageCopier>> NewCudaCopier(int /*device*/, void* /*stream*/) {
  return NoCuda();
}

int CudaDeviceOf(const void* /*memory*/) { return -1; }

absl::StatusOr<std::shared_ptr<HostMemory>> NewCudaHostMemory(int /*device*/) { return NoCuda(); }

}  // namespace parkade
