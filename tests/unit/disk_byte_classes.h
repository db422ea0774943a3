// The kinds of bytes that a segment consists of, by name, and ways to damage them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/format/sealing.h"

namespace parkade::test {

struct ByteClass {
  std::string name;
  std::uint64_t at = 0;
  std::uint64_t size = 0;
};

// Of a whole segment: every field of its header, seal block and extent headers, every row's key and
// value (sealed rows are one class), padding, and begin, middle and end of payload. `key` null: a
// plain one.
std::vector<ByteClass> ByteClassesOf(const std::string& segment, const SealKey* key);

enum class ByteDamage { kFlipped, kZeroed, kSwapped, kCut };
inline constexpr ByteDamage kByteDamages[] = {ByteDamage::kFlipped, ByteDamage::kZeroed,
                                              ByteDamage::kSwapped, ByteDamage::kCut};
std::string DamageName(ByteDamage damage);

// `bytes` damaged at `where`: its middle bit flipped; all of it zero; what `other` has in its
// place; the file cut off before it. The same bytes where that changes nothing.
std::string Damaged(std::string bytes, const ByteClass& where, ByteDamage damage,
                    const std::string& other);

}  // namespace parkade::test
