// Long work: how far it is, and whether it should stop.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace parkade {

// Called now and then with bytes done and bytes in all. Not OK: stop and give this back. Null
// means: nobody watches.
using WorkWatch = std::function<absl::Status(std::uint64_t done_bytes, std::uint64_t all_bytes)>;

inline absl::Status ReportWork(const WorkWatch& watch, std::uint64_t done, std::uint64_t all) {
  return watch ? watch(done, all) : absl::OkStatus();
}

}  // namespace parkade
