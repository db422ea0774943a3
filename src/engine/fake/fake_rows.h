// What the fake engine's rows contain: pure functions of salt, plane and token prefix.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parkade/image.h"

namespace parkade::fake {

// Well mixed 64 bits of two values.
std::uint64_t Mix(std::uint64_t value, std::uint64_t more);

// Hash of the empty prefix of a model with this salt.
std::uint64_t PrefixSeed(std::uint64_t salt);
// Hash of a prefix one token longer than the one that `prefix` stands for.
std::uint64_t ExtendPrefix(std::uint64_t prefix, Token token);

// The hash that fills one row of a plane. For row groups with a row a token, `prefix` covers the
// tokens up to and including the row's own; for kState the tokens that came before the position.
std::uint64_t RowSeed(const Plane& plane, std::uint64_t prefix);

// Fills `bytes` bytes, any alignment. `cheap`: the seed repeated, at the speed of memory; else
// every 8 bytes differ, so that a shift inside a row shows too.
void FillRow(std::uint64_t seed, bool cheap, char* destination, std::size_t bytes);

}  // namespace parkade::fake
