// Large pieces of the host's memory: on large pages, and on the NUMA node of who copies from them.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace parkade {

// The node that a PCI device ("0000:3b:00.0", any case) hangs on; -1: not known, or there is one.
// `root`: where the system's description is, for tests.
int NumaNodeOfPci(const std::string& address, const std::string& root = "/sys/bus/pci/devices");

// While it lives, memory that this thread is the first to touch comes from `node` as long as that
// has some. -1: from wherever the thread runs.
class PreferNode {
 public:
  explicit PreferNode(int node);
  ~PreferNode();
  PreferNode(const PreferNode&) = delete;
  PreferNode& operator=(const PreferNode&) = delete;
  bool in_force() const { return set_; }

 private:
  bool set_ = false;
};

// Memory of `bytes`, a multiple of 2 MiB, beginning at such a border; large pages where the system
// gives them; all of it touched, so that nobody waits for it later. ResourceExhausted: none.
absl::StatusOr<char*> MapSlab(std::size_t bytes);
void UnmapSlab(char* memory, std::size_t bytes);

}  // namespace parkade
