// Hashes of a sequence's pages, each of everything up to the page's end. FORMAT.md, section 2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "parkade/identity.h"
#include "parkade/image.h"
#include "src/format/sealing.h"

namespace parkade {

// What CacheOptions::page_hash_key is for a key file; empty without one.
std::string PageHashKey(const SharedSealKey& key);

// One sequence, page by page from its begin. One thread.
class PageHasher {
 public:
  // `hash_key` empty: XXH3 seeded with the secret; else HMAC-SHA256 under that key, which tells
  // nothing to whoever lacks it, whatever tokens they try. Both depend on secret and identity.
  PageHasher(const Digest128& secret, const Digest128& identity, std::string_view hash_key);
  ~PageHasher();
  PageHasher(PageHasher&&) noexcept;

  // Of the next page; `page_tokens` points to kPageTokens tokens.
  std::uint64_t Next(const Token* page_tokens);

 private:
  struct Keyed;
  std::uint64_t previous_ = 0;
  std::unique_ptr<Keyed> keyed_;  // null: XXH3
};

}  // namespace parkade
