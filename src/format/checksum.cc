#include "src/format/checksum.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <cstdlib>

#include "src/format/xxh3.h"

namespace parkade {
namespace {

// Hashes over numbers are defined over their little-endian bytes, taken straight from memory here.
static_assert(std::endian::native == std::endian::little, "Parkade needs a little-endian machine");
static_assert(sizeof(Token) == 4);

void FillRandom(void* destination, std::size_t size) {
  char* at = static_cast<char*>(destination);
  while (size > 0) {
    const ssize_t got = getrandom(at, size, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      // Ids and secrets that could repeat would mix up conversations: better not to run.
      std::abort();
    }
    at += got;
    size -= static_cast<std::size_t>(got);
  }
}

}  // namespace

Digest128 Checksum(absl::Span<const char> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

Digest128 RandomDigest() {
  Digest128 digest;
  // Zero means "none" wherever an id stands.
  while (digest.IsZero()) {
    std::uint64_t halves[2];
    FillRandom(halves, sizeof(halves));
    digest = {halves[0], halves[1]};
  }
  return digest;
}

std::uint64_t ChainSeed(const Digest128& secret, const Digest128& identity) {
  const std::uint64_t words[4] = {secret.high, secret.low, identity.high, identity.low};
  return XXH3_64bits(words, sizeof(words));
}

std::uint64_t ChainHash(std::uint64_t previous, const Token* page_tokens) {
  return XXH3_64bits_withSeed(page_tokens, kPageTokens * sizeof(Token), previous);
}

}  // namespace parkade
