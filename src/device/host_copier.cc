#include <string>
#include <utility>
#include <vector>

#include "src/device/copy_blocks.h"
#include "src/device/host_copy.h"
#include "src/device/stage_copier.h"

namespace parkade {
namespace {

class HostCopier : public StageCopier {
 public:
  const std::string& name() const override { return name_; }

  absl::Status CopyOut(absl::Span<const PlaneRun> runs, char* host) override {
    if (absl::Status s = ExpandRuns(runs, &blocks_); !s.ok()) return s;
    PieceCopier pieces;
    for (const CopyBlock& block : blocks_) {
      char* to = host + block.host_offset;
      const char* from = block.device;
      for (std::uint64_t row = 0; row < block.rows; ++row) {
        pieces.Add(to, from, block.width);
        to += block.width;
        from += block.stride;
      }
    }
    return absl::OkStatus();
  }

  absl::Status CopyIn(absl::Span<const PlaneRun> runs, const char* host,
                      std::shared_ptr<const void> /*owner*/) override {
    if (absl::Status s = ExpandRuns(runs, &blocks_); !s.ok()) return s;
    PieceCopier pieces;
    for (const CopyBlock& block : blocks_) {
      char* to = block.device;
      const char* from = host + block.host_offset;
      for (std::uint64_t row = 0; row < block.rows; ++row) {
        pieces.Add(to, from, block.width);
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
