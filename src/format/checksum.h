// XXH3-128 over bytes, and the random source for ids and secrets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "parkade/identity.h"
#include "parkade/image.h"

namespace parkade {

// XXH3-128 with seed 0.
Digest128 Checksum(absl::Span<const char> bytes);
// 128 bits from the system's random source.
Digest128 RandomDigest();

// Chain hash of page `n`: depends on the secret, the identity and every token up to the page's end.
// page_tokens points to kPageTokens tokens. `previous` is the hash of page n-1, or
// ChainSeed() for page 0.
std::uint64_t ChainSeed(const Digest128& secret, const Digest128& identity);
std::uint64_t ChainHash(std::uint64_t previous, const Token* page_tokens);

}  // namespace parkade
