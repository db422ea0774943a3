#include "src/device/cuda_blocks.h"

namespace parkade {
namespace {

constexpr int kThreads = 256;

template <typename Unit>
__device__ void CopyRows(char* to, std::uint64_t to_stride, const char* from,
                         std::uint64_t from_stride, std::uint64_t width, std::uint64_t rows) {
  const std::uint64_t in_row = width / sizeof(Unit);
  for (std::uint64_t i = threadIdx.x; i < in_row * rows; i += kThreads) {
    const std::uint64_t row = i / in_row;
    const std::uint64_t at = i % in_row * sizeof(Unit);
    *reinterpret_cast<Unit*>(to + row * to_stride + at) =
        *reinterpret_cast<const Unit*>(from + row * from_stride + at);
  }
}

__global__ void CopyBlocks(const CopyBlock* table, char* packed, bool pack) {
  const CopyBlock block = table[blockIdx.x];
  char* const host_side = packed + block.host_offset;
  char* const to = pack ? host_side : block.device;
  const char* const from = pack ? block.device : host_side;
  const std::uint64_t to_stride = pack ? block.width : block.stride;
  const std::uint64_t from_stride = pack ? block.stride : block.width;
  // Widest units that all rows begin and end at.
  const std::uint64_t all = reinterpret_cast<std::uint64_t>(to) |
                            reinterpret_cast<std::uint64_t>(from) | to_stride | from_stride |
                            block.width;
  if (all % sizeof(uint4) == 0) {
    CopyRows<uint4>(to, to_stride, from, from_stride, block.width, block.rows);
  } else if (all % sizeof(std::uint32_t) == 0) {
    CopyRows<std::uint32_t>(to, to_stride, from, from_stride, block.width, block.rows);
  } else {
    CopyRows<char>(to, to_stride, from, from_stride, block.width, block.rows);
  }
}

}  // namespace

cudaError_t LaunchCopyBlocks(const CopyBlock* table, std::uint32_t count, char* packed, bool pack,
                             cudaStream_t stream) {
  // Not <<<>>> and the thread's last error: that may be one of the engine's.
  void* arguments[] = {&table, &packed, &pack};
  return cudaLaunchKernel(CopyBlocks, dim3(count), dim3(kThreads), arguments, 0, stream);
}

}  // namespace parkade
