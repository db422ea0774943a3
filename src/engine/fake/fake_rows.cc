#include "src/engine/fake/fake_rows.h"

#include <cstring>

namespace parkade::fake {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ull;

std::uint64_t Finalize(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

// Four 16-byte stores a step; the compiler keeps both lanes in one register.
struct Block {
  std::uint64_t lanes[8];
};

}  // namespace

std::uint64_t Mix(std::uint64_t value, std::uint64_t more) {
  return Finalize((value + kGolden) ^ Finalize(more + kGolden));
}

std::uint64_t PrefixSeed(std::uint64_t salt) { return Mix(0x7061726b61646531ull, salt); }

std::uint64_t ExtendPrefix(std::uint64_t prefix, Token token) {
  return Mix(prefix, static_cast<std::uint32_t>(token));
}

std::uint64_t RowSeed(const Plane& plane, std::uint64_t prefix) {
  const std::uint64_t name = static_cast<std::uint64_t>(plane.layer) << 16 |
                             static_cast<std::uint64_t>(plane.group) << 8 |
                             static_cast<std::uint64_t>(plane.kind);
  return Mix(prefix, name);
}

void FillRow(std::uint64_t seed, bool cheap, char* destination, std::size_t bytes) {
  std::size_t done = 0;
  if (cheap) {
    const Block block{{seed, seed, seed, seed, seed, seed, seed, seed}};
    for (; done + sizeof(block) <= bytes; done += sizeof(block)) {
      std::memcpy(destination + done, &block, sizeof(block));
    }
  }
  for (std::uint64_t i = 0; done < bytes; ++i, done += sizeof(seed)) {
    const std::uint64_t word = cheap ? seed : Finalize(seed + i * kGolden);
    std::memcpy(destination + done, &word, bytes - done < sizeof(word) ? bytes - done : 8);
  }
}

}  // namespace parkade::fake
