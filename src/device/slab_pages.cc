#include "src/device/slab_pages.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace parkade {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLargePage = 2u << 20;
constexpr int kMostNodes = 1024;
constexpr int kBitsAWord = 8 * sizeof(unsigned long);

// Debian has the call in a library of its own.
long SetPolicy(int mode, const unsigned long* nodes, unsigned long bits) {
  return syscall(SYS_set_mempolicy, mode, nodes, bits);
}

}  // namespace

int NumaNodeOfPci(const std::string& address, const std::string& root) {
  std::string folder;
  for (const char c : address) {
    const auto byte = static_cast<unsigned char>(c);
    // It becomes a part of a path.
    if (std::isxdigit(byte) == 0 && c != ':' && c != '.') return -1;
    folder += static_cast<char>(std::tolower(byte));
  }
  if (folder.empty() || folder[0] == '.') return -1;
  std::ifstream file(root + "/" + folder + "/numa_node");
  int node = -1;
  return file >> node && node >= 0 && node < kMostNodes ? node : -1;
}

PreferNode::PreferNode(int node) {
  if (node < 0 || node >= kMostNodes) return;
  std::array<unsigned long, kMostNodes / kBitsAWord> nodes{};
  nodes[static_cast<std::size_t>(node / kBitsAWord)] = 1ul << (node % kBitsAWord);
  // swallow: a kernel or a container may forbid it; any node's memory does.
  set_ = SetPolicy(MPOL_PREFERRED, nodes.data(), kMostNodes + 1) == 0;
}

PreferNode::~PreferNode() {
  // swallow: as above.
  if (set_) (void)SetPolicy(MPOL_DEFAULT, nullptr, 0);
}

absl::StatusOr<char*> MapSlab(std::size_t bytes) {
  void* all =
      mmap(nullptr, bytes + kLargePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("mmap: ", std::strerror(errno)));
  }
  char* memory = static_cast<char*>(all);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(memory) % kLargePage;
  const std::size_t before = past == 0 ? 0 : kLargePage - past;
  if (before > 0) munmap(memory, before);
  memory += before;
  if (before < kLargePage) munmap(memory + bytes, kLargePage - before);
  // swallow: ordinary pages do as well.
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  for (std::size_t at = 0; at < bytes; at += kPage) static_cast<volatile char*>(memory)[at] = 0;
  return memory;
}

void UnmapSlab(char* memory, std::size_t bytes) { munmap(memory, bytes); }

}  // namespace parkade
