#include "tests/bench/copy_cuda.h"

namespace parkade::bench {

absl::Status AddCardCopies(const StateLayout& /*layout*/,
                           const std::vector<ExtentInfo>& /*extents*/, std::uint32_t /*tokens*/,
                           const BenchOptions& /*options*/, Outcome* outcome) {
  outcome->notes.push_back("no copies of a card: this build is without CUDA");
  return absl::OkStatus();
}

}  // namespace parkade::bench
