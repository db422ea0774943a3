#include <algorithm>
#include <utility>

#include "tests/support/copier_side.h"

namespace parkade::test {
namespace {

class HostSide : public CopierSide {
 public:
  std::shared_ptr<char> DeviceMemory(std::size_t bytes, int /*device*/) override {
    return HostMemory(bytes);
  }
  std::shared_ptr<char> HostMemory(std::size_t bytes) override {
    return {new char[bytes], std::default_delete<char[]>()};
  }
  void Write(char* device, const std::string& bytes) override {
    std::copy(bytes.begin(), bytes.end(), device);
  }
  std::string Read(const char* device, std::size_t bytes) override { return {device, bytes}; }
  absl::StatusOr<std::unique_ptr<StageCopier>> NewCopier(int /*device*/) override {
    return NewHostCopier();
  }
  void WriteAsEngine(char* device, const std::string& bytes) override { Write(device, bytes); }
};

}  // namespace

std::vector<CopierKind> CopierKinds() {
  return {{"Host", [](std::uint64_t) { return std::make_unique<HostSide>(); }}};
}

}  // namespace parkade::test
