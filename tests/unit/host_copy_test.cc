#include "src/device/host_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

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
  const std::string source = Numbered(9000 + 64);
  for (const std::size_t bytes : {0, 1, 63, 64, 4095, 4096, 4097, 4159, 4160, 8191, 9000}) {
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

TEST(CopyToRestTest, CopiesNothingFromNowhere) { CopyToRest(nullptr, nullptr, 0); }

}  // namespace
}  // namespace parkade
