#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "src/device/copy_blocks.h"
#include "src/device/host_copy.h"
#include "src/device/stage_copier.h"

namespace parkade {
namespace {

// Where pages lie anywhere, the processor foresees nothing across their ends.
void Fetch(const CopyBlock& block) {
  constexpr std::size_t kLine = 64;
  const std::size_t lines = std::min<std::size_t>(block.width / kLine, 64);
  for (std::size_t line = 0; line < lines; ++line) {
    __builtin_prefetch(block.device + line * kLine, 0, 3);
  }
}

class HostCopier : public StageCopier {
 public:
  const std::string& name() const override { return name_; }

  absl::Status CopyOut(absl::Span<const PlaneRun> runs, char* host) override {
    if (absl::Status s = ExpandRuns(runs, &blocks_); !s.ok()) return s;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const CopyBlock& block = blocks_[i];
      if (i + 1 < blocks_.size()) Fetch(blocks_[i + 1]);
      char* to = host + block.host_offset;
      const char* from = block.device;
      for (std::uint64_t row = 0; row < block.rows; ++row) {
        std::memcpy(to, from, block.width);
        to += block.width;
        from += block.stride;
      }
    }
    return absl::OkStatus();
  }

  absl::Status CopyIn(absl::Span<const PlaneRun> runs, const char* host,
                      std::shared_ptr<const void> /*owner*/) override {
    if (absl::Status s = ExpandRuns(runs, &blocks_); !s.ok()) return s;
    for (const CopyBlock& block : blocks_) {
      char* to = block.device;
      const char* from = host + block.host_offset;
      for (std::uint64_t row = 0; row < block.rows; ++row) {
        CopyToRest(to, from, block.width);
        to += block.stride;
        from += block.width;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Wait() override { return absl::OkStatus(); }

 private:
  const std::string name_ = "host";
  std::vector<CopyBlock> blocks_;
};

}  // namespace

std::unique_ptr<StageCopier> NewHostCopier() { return std::make_unique<HostCopier>(); }

}  // namespace parkade
