#include "tiers/ram/available_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tiers/ram/ram_tier.h"

namespace parkade::ram {
namespace {

// A made-up root folder with the files the kernel would show.
class AvailableBytesTest : public ::testing::Test {
 protected:
  AvailableBytesTest() {
    std::string name = (std::filesystem::temp_directory_path() / "parkade-ram-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~AvailableBytesTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void WriteMeminfo(const std::string& kib) {
    Write("/proc/meminfo",
          "MemTotal:       24683652 kB\nMemFree:         1234 kB\nMemAvailable:   " + kib +
              " kB\nBuffers:           26292 kB\n");
  }

  std::string root_;
};

constexpr char kMountV2[] =
    "29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kMountV1[] =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

TEST(ParseMemAvailable, TakesTheLineOfThatName) {
  EXPECT_EQ(ParseMemAvailable("MemTotal:  9 kB\nMemAvailable:   24139140 kB\nCached: 1 kB\n"),
            24139140ull << 10);
  EXPECT_EQ(ParseMemAvailable("MemAvailable: 0 kB"), 0u);
  EXPECT_EQ(ParseMemAvailable("MemTotal:  9 kB\nMemFree: 3 kB\n"), std::nullopt);
  EXPECT_EQ(ParseMemAvailable("MemAvailable: many kB\n"), std::nullopt);
  EXPECT_EQ(ParseMemAvailable("MemAvailable: 99999999999999999 kB\n"), std::nullopt);
  EXPECT_EQ(ParseMemAvailable(""), std::nullopt);
}

TEST(ParseCgroupPlace, UnifiedHierarchy) {
  EXPECT_EQ(ParseCgroupPlace("0::/user.slice/a.scope\n", kMountV2),
            (CgroupPlace{CgroupVersion::kV2, "/sys/fs/cgroup", "/user.slice/a.scope"}));
}

TEST(ParseCgroupPlace, LegacyMemoryGoesBeforeAnEmptyUnifiedOne) {
  EXPECT_EQ(ParseCgroupPlace("9:name=systemd:/\n4:hugetlb,memory:/docker/7c\n0::/\n", kMountV1),
            (CgroupPlace{CgroupVersion::kV1, "/sys/fs/cgroup/memory", "/docker/7c"}));
}

TEST(ParseCgroupPlace, PathIsTakenBelowTheMountedRoot) {
  const std::string mount =
      "35 31 0:32 /docker/7c /sys/fs/cg\\040roup ro - cgroup cgroup rw,memory\n";
  const CgroupPlace at_mount{CgroupVersion::kV1, "/sys/fs/cg roup", "/"};
  EXPECT_EQ(ParseCgroupPlace("4:memory:/docker/7c\n", mount), at_mount);
  EXPECT_EQ(ParseCgroupPlace("4:memory:/elsewhere\n", mount), at_mount);
  EXPECT_EQ(ParseCgroupPlace("4:memory:/docker/7c9\n", mount), at_mount);
  EXPECT_EQ(ParseCgroupPlace("4:memory:/docker/7c/inner\n", mount)->path, "/inner");
}

TEST(ParseCgroupPlace, NothingWithoutMountOrGroup) {
  EXPECT_EQ(ParseCgroupPlace("0::/a\n", ""), std::nullopt);
  EXPECT_EQ(ParseCgroupPlace("", kMountV2), std::nullopt);
  EXPECT_EQ(ParseCgroupPlace("4:memory\nnonsense\n", "a - b\n - \n"), std::nullopt);
}

TEST(ParseCgroupLimit, NumbersAndNoLimit) {
  EXPECT_EQ(ParseCgroupLimit("4294967296\n"), 1ull << 32);
  EXPECT_EQ(ParseCgroupLimit("0\n"), 0u);
  EXPECT_EQ(ParseCgroupLimit("max\n"), std::nullopt);
  EXPECT_EQ(ParseCgroupLimit("9223372036854771712\n"), std::nullopt);
  EXPECT_EQ(ParseCgroupLimit(""), std::nullopt);
}

TEST(ParseReclaimable, FilePagesOfEachVersion) {
  const std::string stat =
      "anon 1000\nfile 900\nactive_file 30\ninactive_file 500\nslab_reclaimable 7\n"
      "total_active_file 11000\ntotal_inactive_file 200000\n";
  EXPECT_EQ(ParseReclaimable(CgroupVersion::kV2, stat), 537u);
  EXPECT_EQ(ParseReclaimable(CgroupVersion::kV1, stat), 211000u);
  EXPECT_EQ(ParseReclaimable(CgroupVersion::kV1, ""), 0u);
}

TEST_F(AvailableBytesTest, UnknownWhenNothingCanBeRead) {
  EXPECT_EQ(AvailableBytesUnder(root_), kUnknownBytes);
}

TEST_F(AvailableBytesTest, MeminfoAlone) {
  WriteMeminfo("100");
  EXPECT_EQ(AvailableBytesUnder(root_), 100u << 10);
}

TEST_F(AvailableBytesTest, InnermostLimitOfTheUnifiedHierarchy) {
  WriteMeminfo("1000");
  Write("/proc/self/cgroup", "0::/outer/inner/leaf\n");
  Write("/proc/self/mountinfo", kMountV2);
  const std::string group = "/sys/fs/cgroup/outer/inner";
  Write(group + "/leaf/memory.max", "max\n");
  Write(group + "/memory.max", "500000\n");
  Write(group + "/memory.high", "max\n");
  Write(group + "/memory.current", "450000\n");
  Write(group + "/memory.stat", "anon 300000\nactive_file 100000\ninactive_file 50000\n");
  Write("/sys/fs/cgroup/outer/memory.max", "1\n");
  EXPECT_EQ(AvailableBytesUnder(root_), 200000u);
  Write(group + "/memory.high", "400000\n");
  EXPECT_EQ(AvailableBytesUnder(root_), 100000u);
  Write(group + "/memory.current", "900000\n");  // above its limit
  EXPECT_EQ(AvailableBytesUnder(root_), 0u);
  WriteMeminfo("0");
  Write(group + "/memory.current", "0\n");
  EXPECT_EQ(AvailableBytesUnder(root_), 0u);
}

TEST_F(AvailableBytesTest, LegacyHierarchy) {
  WriteMeminfo("1000");
  Write("/proc/self/cgroup", "4:memory:/job\n0::/\n");
  Write("/proc/self/mountinfo", kMountV1);
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "5\n");
  EXPECT_EQ(AvailableBytesUnder(root_), 1000u << 10);
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "70000\n");
  Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "65000\n");
  Write("/sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 5000\ninactive_file 9\n");
  EXPECT_EQ(AvailableBytesUnder(root_), 10000u);
}

TEST(SystemAvailableBytes, AnswersHere) {
  EXPECT_GT(SystemAvailableBytes(), 0u);
  EXPECT_LT(SystemAvailableBytes(), kUnknownBytes);
}

TEST(AvailableMemory, AsksAtMostEvery100Milliseconds) {
  absl::Time now = absl::UnixEpoch();
  int asked = 0;
  const AvailableMemory memory([&] { return static_cast<std::uint64_t>(++asked); },
                               [&] { return now; });
  EXPECT_EQ(memory.Bytes(), 1u);
  now += absl::Milliseconds(99);
  EXPECT_EQ(memory.Bytes(), 1u);
  now += absl::Milliseconds(1);
  EXPECT_EQ(memory.Bytes(), 2u);
  EXPECT_EQ(memory.Bytes(), 2u);
  now += absl::Hours(1);
  EXPECT_EQ(memory.Bytes(), 3u);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace parkade::ram
