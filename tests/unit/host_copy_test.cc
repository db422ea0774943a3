#include "src/device/host_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tests/support/environment.h"

namespace parkade {
namespace {

std::string Numbered(std::size_t bytes) {
  std::string data(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 131 + i / 251);
  return data;
}

// Every length around the limits between the ways of copying, at every place within a line, and
// not a byte outside.
TEST(CopyToRestTest, CopiesExactlyWhateverTheAlignment) {
  constexpr std::size_t kMargin = 64;
  const std::string source = Numbered(17000 + 64);
  for (const std::size_t bytes :
       {0, 1, 63, 64, 4095, 4096, 4097, 4159, 4160, 8191, 9000, 16383, 16384, 17000}) {
    for (std::size_t to = 0; to < 64; ++to) {
      for (const std::size_t from : {0, 1, 15, 16, 63}) {
        std::vector<char> target(kMargin + to + bytes + kMargin, '\x55');
        CopyToRest(target.data() + kMargin + to, source.data() + from, bytes);
        std::vector<char> expected(target.size(), '\x55');
        std::copy_n(source.data() + from, bytes, expected.data() + kMargin + to);
        ASSERT_EQ(target, expected) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

// Pieces of equal size wait for each other, those of other sizes come between.
TEST(PieceCopierTest, PiecesOfAllSizesGoWhereTheyBelong) {
  const std::uint64_t seed = test::FromEnvironment("PARKADE_SEED", std::random_device()());
  std::printf("PARKADE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const std::string source = Numbered(1 << 20);
  for (int round = 0; round < 50; ++round) {
    const std::size_t usual = 64 + random() % 40000;
    std::vector<char> target(2 << 20, '\x55');
    std::vector<char> expected = target;
    std::size_t at = random() % 64;
    PieceCopier pieces;
    while (true) {
      const std::size_t bytes = random() % 3 > 0 ? usual : random() % 40000;
      if (at + bytes > target.size()) break;
      const char* from = source.data() + random() % (source.size() - bytes);
      pieces.Add(target.data() + at, from, bytes);
      std::copy_n(from, bytes, expected.data() + at);
      at += bytes + random() % 2 * (random() % 100);
    }
    pieces.Flush();
    ASSERT_EQ(target, expected);
  }
}

TEST(CopyToRestTest, CopiesNothingFromNowhere) { CopyToRest(nullptr, nullptr, 0); }

}  // namespace
}  // namespace parkade
