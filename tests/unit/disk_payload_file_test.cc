// Reading segments past the system's cache, on a file system that can: not /dev/shm.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "src/format/heap_buffer.h"
#include "tests/support/sample_park.h"
#include "tiers/disk/directory.h"
#include "tiers/disk/disk_tier.h"
#include "tiers/disk/payload_file.h"
#include "tiers/disk/segment_reader.h"

namespace parkade::disk {
namespace {

constexpr std::uint64_t kBytes = 3 * (1u << 20) + 777;

// The system's cache forgets the file. False: it would not.
bool Forget(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() || ::fdatasync(fd.get()) != 0) return false;
  return ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0;
}

class PayloadFileTest : public ::testing::Test {
 protected:
  PayloadFileTest() {
    std::string name = std::filesystem::temp_directory_path().string() + "/parkade-payload-XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/segment";
    std::mt19937_64 random(1);
    bytes_.resize(kBytes);
    for (char& byte : bytes_) byte = static_cast<char>(random());
    std::ofstream(path_, std::ios::binary) << bytes_;
    const Fd probe(::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    direct_ = probe.valid() && Forget(path_);
  }
  ~PayloadFileTest() override { std::filesystem::remove_all(folder_); }

  PayloadFile Open() {
    absl::StatusOr<PayloadFile> file = PayloadFile::Open(Fd(AT_FDCWD), path_);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }

  std::string folder_;
  std::string path_;
  std::string bytes_;
  bool direct_ = false;
};

#define NEEDS_DIRECT() \
  if (!direct_) GTEST_SKIP() << "the file system of " << folder_ << " has no O_DIRECT"

TEST_F(PayloadFileTest, AnyPartAtAnyAddress) {
  NEEDS_DIRECT();
  const PayloadFile file = Open();
  for (const std::uint64_t offset : {0ull, 1ull, 4095ull, 4096ull, 300001ull}) {
    for (const std::uint64_t size : {1ull, 4096ull, 262144ull, 1048577ull}) {
      for (const std::size_t shift : {0ul, 1ul, 64ul, 4095ul}) {
        std::vector<char> memory(shift + size + PayloadFile::kSlackBytes, 'x');
        const absl::Span<char> buffer = absl::MakeSpan(memory).subspan(shift);
        const std::optional<std::size_t> begin = file.ReadPastCache(buffer, offset, size);
        ASSERT_TRUE(begin.has_value()) << offset << " " << size << " " << shift;
        EXPECT_TRUE(std::equal(buffer.begin() + *begin, buffer.begin() + *begin + size,
                               bytes_.begin() + offset));
      }
    }
  }
  EXPECT_TRUE(file.IsBestPastCache(0, kBytes));  // and the cache still has none of it
}

TEST_F(PayloadFileTest, UpToTheLastByteAndNotBeyond) {
  NEEDS_DIRECT();
  const PayloadFile file = Open();
  std::vector<char> memory((1u << 20) + PayloadFile::kSlackBytes);
  const std::uint64_t offset = kBytes - (1u << 20);
  const auto begin = file.ReadPastCache(absl::MakeSpan(memory), offset, 1u << 20);
  ASSERT_TRUE(begin.has_value());
  EXPECT_TRUE(std::equal(memory.begin() + *begin, memory.begin() + *begin + (1u << 20),
                         bytes_.begin() + offset));
  EXPECT_FALSE(file.ReadPastCache(absl::MakeSpan(memory), offset + 1, 1u << 20).has_value());
  EXPECT_FALSE(file.IsBestPastCache(offset + 1, 1u << 20));
  EXPECT_TRUE(absl::IsDataLoss(file.Read(absl::MakeSpan(memory).subspan(0, 1u << 20), offset + 1)));
}

TEST_F(PayloadFileTest, ABufferWithoutRoomIsRefused) {
  NEEDS_DIRECT();
  const PayloadFile file = Open();
  std::vector<char> memory(300000);
  EXPECT_FALSE(file.ReadPastCache(absl::MakeSpan(memory), 1, 300000).has_value());
}

TEST_F(PayloadFileTest, TellsWhatTheCacheHas) {
  NEEDS_DIRECT();
  const PayloadFile file = Open();
  EXPECT_TRUE(file.IsBestPastCache(100, 1u << 20));
  EXPECT_FALSE(file.IsBestPastCache(100, 1000)) << "too little to be worth it";
  std::string all(kBytes, ' ');
  ASSERT_TRUE(file.Read(absl::MakeSpan(all), 0).ok());
  EXPECT_EQ(all, bytes_);
  EXPECT_FALSE(file.IsBestPastCache(100, 1u << 20));
  EXPECT_FALSE(file.IsBestPastCache(0, kBytes));
}

TEST_F(PayloadFileTest, CutOffWhileOpen) {
  NEEDS_DIRECT();
  const PayloadFile file = Open();
  std::filesystem::resize_file(path_, 1u << 20);
  std::vector<char> memory((2u << 20) + PayloadFile::kSlackBytes);
  EXPECT_FALSE(file.ReadPastCache(absl::MakeSpan(memory), 0, 2u << 20).has_value());
  EXPECT_TRUE(absl::IsDataLoss(file.Read(absl::MakeSpan(memory).subspan(0, 2u << 20), 0)));
}

// A tier in the folder, closed, with one park; its segment is not in the system's cache.
class PastCacheTest : public PayloadFileTest {
 protected:
  PastCacheTest() {
    options_.directory = folder_ + "/tier";
    options_.budget_bytes = 512u << 20;
    options_.min_free_bytes = 0;
    const StateLayout layout = test::PlainLayout(kPayload);
    auto tier = OpenDiskTier(options_);
    if (!tier.ok()) return;
    const absl::Status put =
        (*tier)->PutIdentity(test::SampleIdentityDigest(layout), test::SampleIdentity(layout));
    const test::SamplePark park = test::MakePlainPark(kKey, kPayload);
    stored_ = put.ok() && (*tier)->Store(park.record, park.payload).ok();
    tier->reset();
    const std::string segments = options_.directory + "/segments";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(segments)) {
      if (entry.is_regular_file() && entry.file_size() > kPayload) path_ = entry.path();
    }
    stored_ = stored_ && Forget(path_);
  }

  static constexpr std::uint64_t kPayload = 2u << 20;
  static constexpr ParkKey kKey{ConversationId{1, 2}, 0};
  DiskTierOptions options_;
  bool stored_ = false;
};

TEST_F(PastCacheTest, AColdRestoreLeavesTheCacheAlone) {
  NEEDS_DIRECT();
  ASSERT_TRUE(stored_);
  auto tier = OpenDiskTier(options_);
  ASSERT_TRUE(tier.ok()) << tier.status();
  const auto bytes = (*tier)->ReadExtent(kKey, 0, MakeHeapBuffer);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ((*bytes)->size(), kPayload);
  EXPECT_EQ(
      test::CheckSampleBytes(kKey, 0, absl::MakeConstSpan((*bytes)->data(), (*bytes)->size())),
      absl::OkStatus());
  EXPECT_TRUE(Open().IsBestPastCache(1u << 20, 1u << 20));
  EXPECT_EQ((*tier)->usage().read_bytes, kPayload);
}

TEST_F(PastCacheTest, RefillsWhatWasReadAndNothingElse) {
  NEEDS_DIRECT();
  ASSERT_TRUE(stored_);
  auto directory = Directory::Open(options_.directory, false);
  ASSERT_TRUE(directory.ok()) << directory.status();
  std::uint64_t segment = 0;
  ASSERT_TRUE((*directory)
                  ->ListSegments(
                      1,
                      [&segment](const SegmentFile& file) {
                        if (file.size_bytes > kPayload) segment = file.segment;
                      },
                      [](const std::string&) {})
                  .ok());
  SegmentReader reader(directory->get());
  EXPECT_EQ(reader.last_read(), absl::InfinitePast());
  EXPECT_EQ(reader.RefillCache(1u << 30), 0u);
  StoredExtent extent;
  extent.info.raw_bytes = 1u << 20;
  extent.stored_bytes = 1u << 20;
  extent.offset = 8192 + 17;
  ASSERT_TRUE(reader.ReadExtent(segment, kKey, extent, MakeHeapBuffer).ok());
  EXPECT_LT(absl::Now() - reader.last_read(), absl::Seconds(60));
  const PayloadFile file = Open();
  EXPECT_TRUE(file.IsBestPastCache(0, kPayload));
  EXPECT_EQ(reader.RefillCache(1u << 20), 1u << 20);
  EXPECT_EQ(reader.RefillCache(1u << 30), file.size_bytes() - (1u << 20));
  EXPECT_EQ(reader.RefillCache(1u << 30), 0u);
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (file.IsBestPastCache(0, kPayload) && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_FALSE(file.IsBestPastCache(0, kPayload));
  // Read through the cache now: there is nothing to refill.
  ASSERT_TRUE(reader.ReadExtent(segment, kKey, extent, MakeHeapBuffer).ok());
  EXPECT_EQ(reader.RefillCache(1u << 30), 0u);
}

}  // namespace
}  // namespace parkade::disk
