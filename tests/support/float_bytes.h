// Bytes like a model's: 16-bit floats, signs and exponents alike, the rest noise. zstd saves a good
// third of them when they are shuffled.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace parkade::test {

inline std::string FloatBytes(std::uint64_t seed, std::size_t bytes) {
  std::mt19937_64 random(seed);
  std::string out(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto noise = static_cast<char>(random());
    out[i] = i % 2 == 0 ? noise : static_cast<char>(0x3a + (noise & 3));
  }
  return out;
}

}  // namespace parkade::test
