// Copier for planes in the memory of an NVIDIA card.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "src/device/stage_copier.h"

namespace parkade {

// `device`: its CUDA ordinal. `stream`: the engine's cudaStream_t on that device, which copies wait
// for; null: the default stream. Takes 16 MiB of the card's memory and 16 MiB that are page-locked,
// for what is not page-locked itself. Copies between page-locked memory
// and the card run by themselves; others are copied once more by the caller's thread. No other card
// is touched, so several of these work at the same time, each on its own. Unimplemented: this build
// is without CUDA. Unavailable: no driver, or no such card, with the reason. ResourceExhausted: no
// memory for the buffers.
absl::StatusOr<std::unique_ptr<StageCopier>> NewCudaCopier(int device, void* stream);

// The card in whose memory `memory` is, as its CUDA ordinal; -1: it is in no card's, or this build
// is without CUDA.
int CudaDeviceOf(const void* memory);

}  // namespace parkade
