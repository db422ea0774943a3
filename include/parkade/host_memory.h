// The host's memory in large pieces, as an engine's devices copy to and from it fastest.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace parkade {

// Thread safe.
class HostMemory {
 public:
  virtual ~HostMemory() = default;

  // As people are told: "page-locked memory for cuda0".
  virtual std::string name() const = 0;
  // `bytes`, a multiple of 2 MiB, beginning at a page's border. May take long: locking pages does.
  // ResourceExhausted: the system gives no more now.
  virtual absl::StatusOr<char*> Take(std::size_t bytes) = 0;
  // What Take gave, whole. Nothing copies to or from it any more.
  virtual void Give(char* memory, std::size_t bytes) = 0;
};

}  // namespace parkade
