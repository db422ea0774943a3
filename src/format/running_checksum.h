// XXH3-128 of bytes that come piece by piece.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "parkade/identity.h"

namespace parkade {

// One thread at a time. Costs what Checksum of all the bytes at once costs; holds under 1 KiB.
class RunningChecksum {
 public:
  RunningChecksum();
  ~RunningChecksum();
  RunningChecksum(RunningChecksum&&) noexcept;
  RunningChecksum& operator=(RunningChecksum&&) noexcept;

  void Add(std::string_view bytes);
  // Of everything added so far; more may follow.
  Digest128 Value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace parkade
