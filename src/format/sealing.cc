#include "src/format/sealing.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "src/format/checksum.h"
#include "src/format/wire.h"

namespace parkade {
namespace {

constexpr std::size_t kNonceBytes = 12;
constexpr std::size_t kTagBytes = 16;
constexpr std::string_view kIdPurpose = "parkade key id 1";
constexpr std::string_view kRowsPurpose = "parkade catalogue 1";
constexpr std::size_t kRowHeadBytes = 24;  // salt and number
static_assert(RowSealer::kExtraBytes == kRowHeadBytes + kTagBytes);

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// What fails here is a lack of memory or a broken OpenSSL; going on could write plain text.
void Require(bool done) {
  if (!done) std::abort();
}

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

std::array<unsigned char, kNonceBytes> NonceBytes(SealNonce nonce) {
  ByteWriter writer;
  writer.U32(nonce.kind);
  writer.U64(nonce.number);
  std::array<unsigned char, kNonceBytes> bytes;
  std::memcpy(bytes.data(), writer.bytes().data(), bytes.size());
  return bytes;
}

std::string DigestBytes(const Digest128& digest) {
  ByteWriter writer;
  writer.Digest(digest);
  return writer.Take();
}

// Everything but the tag.
Cipher Crypt(bool seal, const std::array<unsigned char, kSealKeyBytes>& key, SealNonce nonce,
             std::string_view associated, absl::Span<const char> from, char* to) {
  const auto nonce_bytes = NonceBytes(nonce);
  Cipher cipher(EVP_CIPHER_CTX_new());
  int length = 0;
  Require(cipher != nullptr &&
          EVP_CipherInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, key.data(),
                            nonce_bytes.data(), seal ? 1 : 0) == 1 &&
          EVP_CipherUpdate(cipher.get(), nullptr, &length, Bytes(associated),
                           static_cast<int>(associated.size())) == 1 &&
          EVP_CipherUpdate(cipher.get(), reinterpret_cast<unsigned char*>(to), &length,
                           reinterpret_cast<const unsigned char*>(from.data()),
                           static_cast<int>(from.size())) == 1);
  return cipher;
}

std::string RowAssociated(std::uint8_t family, std::string_view key) {
  std::string associated(1, static_cast<char>(family));
  associated.append(key);
  return associated;
}

}  // namespace

absl::StatusOr<SharedSealKey> SealKey::Parse(std::string_view content) {
  std::shared_ptr<SealKey> key(new SealKey());
  if (content.size() == kSealKeyBytes) {
    std::memcpy(key->bytes_.data(), content.data(), content.size());
  } else {
    std::string_view digits = content;
    if (!digits.empty() && digits.back() == '\n') digits.remove_suffix(1);
    if (!digits.empty() && digits.back() == '\r') digits.remove_suffix(1);
    bool hex = digits.size() == 2 * kSealKeyBytes;
    for (const char c : digits) hex = hex && absl::ascii_isxdigit(static_cast<unsigned char>(c));
    if (!hex) {
      return absl::InvalidArgumentError("a key is 32 bytes, or 64 hexadecimal digits");
    }
    std::string bytes = absl::HexStringToBytes({digits.data(), digits.size()});
    std::memcpy(key->bytes_.data(), bytes.data(), bytes.size());
    OPENSSL_cleanse(bytes.data(), bytes.size());
  }
  const std::array<unsigned char, kSealKeyBytes> derived = key->Derive("", kIdPurpose);
  key->id_ = ByteReader({reinterpret_cast<const char*>(derived.data()), 16}).Digest();
  return SharedSealKey(std::move(key));
}

SealKey::~SealKey() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

std::array<unsigned char, kSealKeyBytes> SealKey::Derive(std::string_view salt,
                                                         std::string_view purpose) const {
  std::array<unsigned char, kSealKeyBytes> derived;
  std::size_t size = derived.size();
  EVP_PKEY_CTX* context = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr);
  Require(
      context != nullptr && EVP_PKEY_derive_init(context) == 1 &&
      EVP_PKEY_CTX_set_hkdf_md(context, EVP_sha256()) == 1 &&
      EVP_PKEY_CTX_set1_hkdf_salt(context, Bytes(salt), static_cast<int>(salt.size())) == 1 &&
      EVP_PKEY_CTX_set1_hkdf_key(context, bytes_.data(), static_cast<int>(bytes_.size())) == 1 &&
      EVP_PKEY_CTX_add1_hkdf_info(context, Bytes(purpose), static_cast<int>(purpose.size())) == 1 &&
      EVP_PKEY_derive(context, derived.data(), &size) == 1 && size == derived.size());
  EVP_PKEY_CTX_free(context);
  return derived;
}

Sealer::Sealer(const SealKey& key, const Digest128& salt, std::string_view purpose)
    : key_id_(key.id()), salt_(salt), bytes_(key.Derive(DigestBytes(salt), purpose)) {}

Sealer::~Sealer() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

SealTag Sealer::Seal(SealNonce nonce, std::string_view associated, absl::Span<const char> from,
                     char* to) const {
  const Cipher cipher = Crypt(true, bytes_, nonce, associated, from, to);
  int length = 0;
  unsigned char rest[kTagBytes];
  char tag[kTagBytes];
  Require(EVP_CipherFinal_ex(cipher.get(), rest, &length) == 1 &&
          EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag) == 1);
  return ByteReader({tag, kTagBytes}).Digest();
}

absl::Status Sealer::Open(SealNonce nonce, std::string_view associated, absl::Span<const char> from,
                          const SealTag& tag, char* to) const {
  std::string tag_bytes = DigestBytes(tag);
  const Cipher cipher = Crypt(false, bytes_, nonce, associated, from, to);
  Require(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag_bytes.data()) ==
          1);
  int length = 0;
  unsigned char rest[kTagBytes];
  if (EVP_CipherFinal_ex(cipher.get(), rest, &length) == 1) return absl::OkStatus();
  OPENSSL_cleanse(to, from.size());
  return absl::DataLossError("encrypted bytes are damaged");
}

RowSealer::RowSealer(SharedSealKey key)
    : key_(std::move(key)),
      own_(std::make_shared<const Sealer>(*key_, RandomDigest(), kRowsPurpose)) {}

std::string RowSealer::Seal(std::uint8_t family, std::string_view key, std::string_view value) {
  const std::uint64_t number = next_.fetch_add(1);
  ByteWriter writer;
  writer.Reserve(value.size() + kExtraBytes);
  writer.Digest(own_->salt());
  writer.U64(number);
  std::string sealed(value.size(), '\0');
  const SealTag tag = own_->Seal({0, number}, RowAssociated(family, key),
                                 {value.data(), value.size()}, sealed.data());
  writer.Raw(sealed);
  writer.Digest(tag);
  return writer.Take();
}

absl::StatusOr<std::string> RowSealer::Open(std::uint8_t family, std::string_view key,
                                            std::string_view sealed) {
  if (sealed.size() < kExtraBytes) return absl::DataLossError("an encrypted row is too short");
  ByteReader reader(sealed);
  const Digest128 salt = reader.Digest();
  const std::uint64_t number = reader.U64();
  const std::string_view bytes = reader.Raw(sealed.size() - kExtraBytes);
  const SealTag tag = reader.Digest();
  SharedSealer sealer = Known(salt);
  const bool known = sealer != nullptr;
  if (!known) sealer = std::make_shared<const Sealer>(*key_, salt, kRowsPurpose);
  std::string value(bytes.size(), '\0');
  const absl::Status opened = sealer->Open({0, number}, RowAssociated(family, key),
                                           {bytes.data(), bytes.size()}, tag, value.data());
  if (!opened.ok()) return opened;
  // Only now: a damaged salt must not stay.
  if (!known) {
    absl::MutexLock lock(&mutex_);
    others_.try_emplace(salt, std::move(sealer));
  }
  return value;
}

SharedSealer RowSealer::Known(const Digest128& salt) {
  if (salt == own_->salt()) return own_;
  absl::MutexLock lock(&mutex_);
  const auto found = others_.find(salt);
  return found == others_.end() ? nullptr : found->second;
}

}  // namespace parkade
