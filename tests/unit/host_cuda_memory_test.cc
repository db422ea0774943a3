// Page-locked memory, and whose memory a pointer is, over a runtime without a card.

#include <gtest/gtest.h>

#include "src/device/cuda_copier.h"
#include "src/device/cuda_memory.h"
#include "tests/support/cuda_side.h"
#include "tests/support/host_cuda.h"

namespace parkade::test {
namespace {

constexpr std::size_t kSlab = 4u << 20;

TEST(CudaHostMemory, IsLockedUntilItIsGivenBack) {
  host_cuda::Reset(2, 1);
  const auto memory = NewCudaHostMemory(1);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ((*memory)->name(), "page-locked memory for cuda1");
  const absl::StatusOr<char*> one = (*memory)->Take(kSlab);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(host_cuda::live(), 1u);
  (*one)[kSlab - 1] = 'x';
  // Copiers see that it is.
  auto side = MakeCudaSide();
  auto copier = side->NewCopier(0);
  ASSERT_TRUE(copier.ok());
  const std::shared_ptr<char> card = side->DeviceMemory(kSlab, 0);
  const PlaneRows rows{card.get(), 1, kSlab, kSlab, 0, 0, {}};
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> gone = owner;
  EXPECT_TRUE((*copier)->CopyIn({{&rows, 0, kSlab, 0}}, *one, std::move(owner)).ok());
  // Nothing was copied by the call itself: the card does it later.
  EXPECT_FALSE(gone.expired());
  EXPECT_TRUE((*copier)->Wait().ok());
  EXPECT_TRUE(gone.expired());
  EXPECT_EQ(side->Read(card.get() + kSlab - 1, 1), "x");
  (*copier).reset();
  (*memory)->Give(*one, kSlab);
  EXPECT_EQ(host_cuda::live(), 1u);  // the card's
}

TEST(CudaHostMemory, WhatCannotBeLockedIsAnErrorAndGoes) {
  host_cuda::Reset(1, 1);
  const auto memory = NewCudaHostMemory(0);
  ASSERT_TRUE(memory.ok());
  host_cuda::FailAfter(0);
  EXPECT_EQ((*memory)->Take(kSlab).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(host_cuda::live(), 0u);
  host_cuda::Reset(1, 1);
  for (const int card : {-1, 1}) {
    EXPECT_EQ(NewCudaHostMemory(card).status().code(), absl::StatusCode::kUnavailable);
  }
  host_cuda::Reset(0, 1);
  EXPECT_EQ(NewCudaHostMemory(0).status().code(), absl::StatusCode::kUnavailable);
}

TEST(CudaDeviceOf, TellsWhoseMemoryItIs) {
  host_cuda::Reset(2, 1);
  auto side = MakeCudaSide();
  const std::shared_ptr<char> first = side->DeviceMemory(1000, 0);
  const std::shared_ptr<char> second = side->DeviceMemory(1000, 1);
  const std::shared_ptr<char> pinned = side->HostMemory(1000);
  char own = 0;
  EXPECT_EQ(CudaDeviceOf(first.get() + 999), 0);
  EXPECT_EQ(CudaDeviceOf(second.get()), 1);
  EXPECT_EQ(CudaDeviceOf(pinned.get()), -1);
  EXPECT_EQ(CudaDeviceOf(&own), -1);
}

}  // namespace
}  // namespace parkade::test
