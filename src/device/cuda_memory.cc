#include "src/device/cuda_memory.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/device/cuda_handles.h"
#include "src/device/slab_pages.h"

namespace parkade {
namespace {

class CudaHostMemory : public HostMemory {
 public:
  CudaHostMemory(int device, int node)
      : name_(absl::StrCat("page-locked memory for cuda", device)), device_(device), node_(node) {}

  std::string name() const override { return name_; }

  absl::StatusOr<char*> Take(std::size_t bytes) override {
    absl::StatusOr<char*> memory = absl::UnknownError("not asked");
    {
      const PreferNode near(node_);
      memory = MapSlab(bytes);
    }
    if (!memory.ok()) return memory;
    const WithDevice with(device_);
    absl::Status locked =
        CudaStatus(cudaHostRegister(*memory, bytes, cudaHostRegisterPortable), "locking pages");
    if (locked.ok()) return memory;
    UnmapSlab(*memory, bytes);
    return locked;
  }

  void Give(char* memory, std::size_t bytes) override {
    const WithDevice with(device_);
    // swallow: the card is gone or broken; the memory goes to the system in any case.
    (void)CudaStatus(cudaHostUnregister(memory), "unlocking pages");
    UnmapSlab(memory, bytes);
  }

 private:
  const std::string name_;
  const int device_;
  const int node_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<HostMemory>> NewCudaHostMemory(int device) {
  int count = 0;
  absl::Status status = CudaStatus(cudaGetDeviceCount(&count), "looking for cards");
  if (!status.ok()) return status;
  if (device < 0 || device >= count) {
    return absl::UnavailableError(absl::StrCat("no card ", device, ": there are ", count));
  }
  std::array<char, 32> address{};
  const bool known = cudaDeviceGetPCIBusId(address.data(), address.size(), device) == cudaSuccess;
  return std::shared_ptr<HostMemory>(
      std::make_shared<CudaHostMemory>(device, known ? NumaNodeOfPci(address.data()) : -1));
}

}  // namespace parkade
