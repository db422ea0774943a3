// CUDA's runtime without a card, for tests of the host's half: what is queued runs late, as late as
// waiting allows, and in a random order among what may run at the same time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace parkade::test::host_cuda {

// Everything is forgotten; `devices` cards, and the order that `seed` gives.
void Reset(int devices, std::uint64_t seed);
// Of calls that can fail: the one after `calls` others fails, and all that follow, as after an
// illegal address.
void FailAfter(std::uint64_t calls);
// The one after `calls` others says that there is no memory; all that follow go on.
void FailOnce(std::uint64_t calls);
// What the runtime keeps for the calling thread; it is forgotten.
cudaError_t TakeLastError();
// All that is queued and may run.
void RunAll();
// Of those, since Reset.
std::uint64_t calls();
// Work of an engine.
void Queue(cudaStream_t stream, std::function<void()> work);
// Streams, events and allocations that were not given back.
std::size_t live();

}  // namespace parkade::test::host_cuda
