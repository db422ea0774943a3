#include "tests/support/cuda_side.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "src/device/cuda_copier.h"

namespace parkade::test {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

class CudaSide : public CopierSide {
 public:
  CudaSide() {
    const cudaError_t error = cudaGetDeviceCount(&devices_);
    if (error != cudaSuccess) {
      unavailable_ = std::string("no CUDA device: ") + cudaGetErrorString(error);
    } else if (devices_ == 0) {
      unavailable_ = "no CUDA device: there is none";
    }
  }

  std::string unavailable() const override { return unavailable_; }
  int devices() const override { return devices_; }

  std::shared_ptr<char> DeviceMemory(std::size_t bytes, int device) override {
    void* memory = nullptr;
    Check(cudaSetDevice(device), "choosing a card");
    Check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "a card's memory");
    Check(cudaSetDevice(0), "choosing a card");
    return {static_cast<char*>(memory), [](char* gone) { (void)cudaFree(gone); }};
  }

  std::shared_ptr<char> HostMemory(std::size_t bytes) override {
    void* memory = nullptr;
    Check(cudaHostAlloc(&memory, std::max<std::size_t>(bytes, 1), cudaHostAllocPortable),
          "page-locked memory");
    return {static_cast<char*>(memory), [](char* gone) { (void)cudaFreeHost(gone); }};
  }

  void Write(char* device, const std::string& bytes) override {
    Check(cudaMemcpy(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "writing");
  }

  std::string Read(const char* device, std::size_t bytes) override {
    std::string result(bytes, '\0');
    Check(cudaMemcpy(result.data(), device, bytes, cudaMemcpyDeviceToHost), "reading");
    return result;
  }

  absl::StatusOr<std::unique_ptr<StageCopier>> NewCopier(int device) override {
    return NewCudaCopier(device, nullptr);
  }

  void WriteAsEngine(char* device, const std::string& bytes) override {
    begun_.push_back(HostMemory(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), begun_.back().get());
    Check(
        cudaMemcpyAsync(device, begun_.back().get(), bytes.size(), cudaMemcpyHostToDevice, nullptr),
        "the engine's work");
  }

 private:
  int devices_ = 0;
  std::string unavailable_;
  std::vector<std::shared_ptr<char>> begun_;
};

}  // namespace

std::unique_ptr<CopierSide> MakeCudaSide() { return std::make_unique<CudaSide>(); }

}  // namespace parkade::test
