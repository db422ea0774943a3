// What a foreign container says of itself is compared with what there is before memory is asked
// for.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "src/cli/container_file.h"
#include "tests/fuzz/right_checksums.h"
#include "tests/unit/format_container_samples.h"
#include "tests/unit/format_largest_request.h"

namespace parkade {
namespace {

// Buffers of the file system, tables of fixed size.
constexpr std::size_t kSlackBytes = 64 << 10;

class ImportBounds : public ::testing::Test {
 protected:
  ImportBounds() {
    std::string name = (std::filesystem::temp_directory_path() / "parkade-bounds-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~ImportBounds() override { std::filesystem::remove_all(root_); }

  absl::Status Read(const std::string& bytes) {
    const std::string path = root_ + "/file";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    largest_request_bytes = 0;
    absl::StatusOr<ContainerFile> file = ContainerFile::Open(path);
    return file.ok() ? file->Walk(nullptr, nullptr) : file.status();
  }

  std::string root_;
};

TEST_F(ImportBounds, EveryCountIsComparedBeforeItIsBelieved) {
  const std::string sound = SampleContainer();
  ASSERT_EQ(Read(sound), absl::OkStatus());
  ASSERT_LE(largest_request_bytes.load(), kSlackBytes);
  int believed = 0;
  for (std::size_t at = 0; at + 4 <= sound.size(); ++at) {
    std::string claimed = sound;
    for (int i = 0; i < 3; ++i) claimed[at + i] = '\xff';
    claimed[at + 3] = "\x00\x03\x7f\xff"[at % 4];
    fuzz::RightContainer(&claimed);
    believed += Read(claimed).ok();
    // An LZ4 block of tokens may hold 255 times its size.
    ASSERT_LE(largest_request_bytes.load(), kSlackBytes + 255 * 64) << at;
  }
  // Payload and times may be anything: checksums were made right behind every claim.
  EXPECT_GT(believed, 25);
}

// A packed extent may stand for more than the file holds, but for no more than an extent.
TEST_F(ImportBounds, APackedExtentAsksForOneExtentAtMost) {
  const std::string sound = SampleContainer();
  // The first image row's first extent: behind kind, version, segment and count.
  const std::size_t row = sound.find("I\x01\x01", 64, 3);
  ASSERT_NE(row, std::string::npos);
  std::string claimed = sound;
  claimed[row + 14 + 1] = 2;  // zstd
  for (int i = 0; i < 4; ++i) claimed[row + 14 + 16 + i] = "\x00\x00\x40\x00"[i];
  fuzz::RightContainer(&claimed);
  EXPECT_FALSE(Read(claimed).ok());
  EXPECT_LE(largest_request_bytes.load(), kExtentBytes + kSlackBytes);
}

}  // namespace
}  // namespace parkade
