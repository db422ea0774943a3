#include "src/format/page_hash.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <cstdlib>
#include <cstring>

#include "src/format/checksum.h"
#include "src/format/wire.h"

namespace parkade {
namespace {

constexpr std::string_view kPurpose = "parkade page hash 1";
constexpr std::size_t kMacBytes = 32;

}  // namespace

std::string PageHashKey(const SharedSealKey& key) {
  if (key == nullptr) return "";
  const auto derived = key->Derive("", kPurpose);
  return std::string(reinterpret_cast<const char*>(derived.data()), derived.size());
}

struct PageHasher::Keyed {
  explicit Keyed(std::string_view key) {
    // Fetched once: looking an algorithm up takes longer than a page's hash.
    static EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    if (mac != nullptr) context = EVP_MAC_CTX_new(mac);
    char digest[] = "SHA256";
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0), OSSL_PARAM_END};
    Require(context != nullptr &&
            EVP_MAC_init(context, reinterpret_cast<const unsigned char*>(key.data()), key.size(),
                         parameters) == 1);
  }
  ~Keyed() { EVP_MAC_CTX_free(context); }
  Keyed(const Keyed&) = delete;
  Keyed& operator=(const Keyed&) = delete;

  // A lack of memory: a hash of something else would find another conversation's pages.
  static void Require(bool done) {
    if (!done) std::abort();
  }

  // The first 8 bytes of the MAC of both parts.
  std::uint64_t Hash(std::string_view first, std::string_view second) {
    unsigned char mac[kMacBytes];
    std::size_t size = 0;
    Require((fresh || EVP_MAC_init(context, nullptr, 0, nullptr) == 1) &&
            EVP_MAC_update(context, reinterpret_cast<const unsigned char*>(first.data()),
                           first.size()) == 1 &&
            EVP_MAC_update(context, reinterpret_cast<const unsigned char*>(second.data()),
                           second.size()) == 1 &&
            EVP_MAC_final(context, mac, &size, sizeof(mac)) == 1 && size == kMacBytes);
    fresh = false;
    return ByteReader({reinterpret_cast<const char*>(mac), 8}).U64();
  }

  EVP_MAC_CTX* context = nullptr;
  bool fresh = true;  // initialised and not used yet
};

PageHasher::PageHasher(const Digest128& secret, const Digest128& identity,
                       std::string_view hash_key) {
  if (hash_key.empty()) {
    previous_ = ChainSeed(secret, identity);
    return;
  }
  keyed_ = std::make_unique<Keyed>(hash_key);
  ByteWriter seed;
  seed.Digest(secret);
  seed.Digest(identity);
  previous_ = keyed_->Hash(seed.bytes(), "");
}

PageHasher::~PageHasher() = default;
PageHasher::PageHasher(PageHasher&&) noexcept = default;

std::uint64_t PageHasher::Next(const Token* page_tokens) {
  if (keyed_ == nullptr) {
    previous_ = ChainHash(previous_, page_tokens);
  } else {
    ByteWriter before;
    before.U64(previous_);
    previous_ = keyed_->Hash(
        before.bytes(), {reinterpret_cast<const char*>(page_tokens), kPageTokens * sizeof(Token)});
  }
  return previous_;
}

}  // namespace parkade
