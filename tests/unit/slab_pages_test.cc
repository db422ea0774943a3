// Large pieces of memory, and the NUMA node they come from.

#include "src/device/slab_pages.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

namespace parkade {
namespace {

constexpr std::size_t kSlab = 4u << 20;

TEST(SlabPages, BeginAtALargePageAndCanBeWritten) {
  for (int i = 0; i < 4; ++i) {
    const absl::StatusOr<char*> slab = MapSlab(kSlab);
    ASSERT_TRUE(slab.ok()) << slab.status();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*slab) % (2u << 20), 0u);
    (*slab)[0] = 'x';
    (*slab)[kSlab - 1] = 'y';
    UnmapSlab(*slab, kSlab);
  }
}

TEST(SlabPages, MoreThanThereIsIsAnError) {
  const absl::StatusOr<char*> slab = MapSlab(std::size_t{1} << 50);
  EXPECT_EQ(slab.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(NumaNode, IsReadFromTheSystemsDescription) {
  const std::filesystem::path root = testing::TempDir() + "/pci" + std::to_string(getpid());
  std::filesystem::create_directories(root / "0000:3b:00.0");
  const auto node = [&](const std::string& text) {
    std::ofstream(root / "0000:3b:00.0" / "numa_node") << text;
    return NumaNodeOfPci("0000:3B:00.0", root.string());
  };
  EXPECT_EQ(node("1\n"), 1);
  EXPECT_EQ(node("0\n"), 0);
  EXPECT_EQ(node("-1\n"), -1);
  EXPECT_EQ(node("4096\n"), -1);
  EXPECT_EQ(node("none\n"), -1);
  EXPECT_EQ(NumaNodeOfPci("0000:ff:00.0", root.string()), -1);
  // No way out of the folder.
  std::ofstream(root / "numa_node") << "1\n";
  for (const char* name : {"", ".", "..", "0000:3b:00.0/../../etc", "x"}) {
    EXPECT_EQ(NumaNodeOfPci(name, root.string()), -1) << name;
  }
  std::filesystem::remove_all(root);
}

int PolicyMode() {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0ul, nullptr, 0ul) == 0 ? mode : -1;
}

TEST(NumaNode, IsPreferredForAWhile) {
  const int before = PolicyMode();
  {
    const PreferNode none(-1);
    EXPECT_FALSE(none.in_force());
    const PreferNode beyond(1 << 20);
    EXPECT_FALSE(beyond.in_force());
  }
  {
    const PreferNode first(0);
    if (!first.in_force()) GTEST_SKIP() << "this system lets nobody choose a NUMA node";
    EXPECT_EQ(PolicyMode(), MPOL_PREFERRED);
    const absl::StatusOr<char*> slab = MapSlab(kSlab);
    ASSERT_TRUE(slab.ok());
    UnmapSlab(*slab, kSlab);
  }
  EXPECT_EQ(PolicyMode(), MPOL_DEFAULT);
  EXPECT_EQ(before, MPOL_DEFAULT);
}

}  // namespace
}  // namespace parkade
