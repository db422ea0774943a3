#include "tiers/remote/keys.h"

#include <array>
#include <cstdio>

namespace parkade::remote {

std::string Keys::Boundary(std::uint64_t page_hash) const {
  std::array<char, 17> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx", static_cast<unsigned long long>(page_hash));
  return prefix_ + ":b:" + hex.data();
}

std::string Keys::Extent(const Digest128& row, std::uint32_t ordinal) const {
  return prefix_ + ":x:" + ToHex(row) + ":" + std::to_string(ordinal);
}

}  // namespace parkade::remote
