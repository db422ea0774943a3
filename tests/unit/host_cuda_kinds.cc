#include "tests/support/cuda_side.h"
#include "tests/support/host_cuda.h"

namespace parkade::test {

std::vector<CopierKind> CopierKinds() {
  return {{"CudaWithoutACard", [](std::uint64_t seed) {
             host_cuda::Reset(2, seed);
             return MakeCudaSide();
           }}};
}

}  // namespace parkade::test
