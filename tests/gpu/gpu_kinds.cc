#include "tests/support/cuda_side.h"

namespace parkade::test {

std::vector<CopierKind> CopierKinds() {
  return {{"Cuda", [](std::uint64_t) { return MakeCudaSide(); }}};
}

}  // namespace parkade::test
