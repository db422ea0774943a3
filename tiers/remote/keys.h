// Names of keys in the store; KEYS.md is the specification.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "parkade/identity.h"
#include "parkade/image.h"

namespace parkade::remote {

// A boundary stands at every this many tokens, and at the last full page of each park.
inline constexpr std::uint32_t kBoundaryTokens = 512;

// All keys begin with the prefix. Thread safe.
class Keys {
 public:
  explicit Keys(std::string prefix) : prefix_(std::move(prefix)) {}

  std::string Secret() const { return prefix_ + ":secret"; }
  std::string WriteProbe() const { return prefix_ + ":w"; }
  std::string Boundary(std::uint64_t page_hash) const;
  std::string Row(const Digest128& row) const { return prefix_ + ":r:" + ToHex(row); }
  std::string Extent(const Digest128& row, std::uint32_t ordinal) const;
  std::string Tombstone(const ConversationId& label) const {
    return prefix_ + ":t:" + ToHex(label);
  }

 private:
  const std::string prefix_;
};

}  // namespace parkade::remote
