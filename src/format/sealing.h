// Encryption at rest: AES-256-GCM and HKDF-SHA256, both OpenSSL's. FORMAT.md, section 10, is the
// specification. No I/O.
//
// One key of 32 bytes belongs to a directory. Nothing is sealed with it itself: each segment and
// each opening of a catalogue has a key derived from it and a random salt, so that a nonce need
// only be new under its salt.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "parkade/identity.h"

namespace parkade {

inline constexpr std::size_t kSealKeyBytes = 32;

// The key of a user's key file. Never copied, wiped when it goes. Thread safe.
class SealKey {
 public:
  // `content`: 32 bytes, or 64 hexadecimal digits and at most one line end. InvalidArgument
  // otherwise; the message says nothing of the content.
  static absl::StatusOr<std::shared_ptr<const SealKey>> Parse(std::string_view content);
  ~SealKey();
  SealKey(const SealKey&) = delete;
  SealKey& operator=(const SealKey&) = delete;

  // Tells keys apart without telling anything about them; stored beside what they seal.
  const Digest128& id() const { return id_; }
  // 32 bytes for one purpose, as different from those for another as random ones.
  std::array<unsigned char, kSealKeyBytes> Derive(std::string_view salt,
                                                  std::string_view purpose) const;

 private:
  SealKey() = default;
  std::array<unsigned char, kSealKeyBytes> bytes_;
  Digest128 id_;
};
using SharedSealKey = std::shared_ptr<const SealKey>;

// A nonce is used once under one derived key.
struct SealNonce {
  std::uint32_t kind = 0;
  std::uint64_t number = 0;
};
using SealTag = Digest128;

// A derived key. Wiped when it goes. Thread safe.
class Sealer {
 public:
  Sealer(const SealKey& key, const Digest128& salt, std::string_view purpose);
  ~Sealer();
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  const Digest128& key_id() const { return key_id_; }
  const Digest128& salt() const { return salt_; }

  // `to` has room for from.size() bytes and may be from.data(). `associated` is not stored, but the
  // tag holds for it too.
  SealTag Seal(SealNonce nonce, std::string_view associated, absl::Span<const char> from,
               char* to) const;
  // DataLoss, and `to` wiped, when one bit of anything differs.
  absl::Status Open(SealNonce nonce, std::string_view associated, absl::Span<const char> from,
                    const SealTag& tag, char* to) const;

 private:
  const Digest128 key_id_;
  const Digest128 salt_;
  std::array<unsigned char, kSealKeyBytes> bytes_;
};
using SharedSealer = std::shared_ptr<const Sealer>;

// Values of a catalogue's rows. Each object seals under a salt of its own and opens what any one of
// the same key has sealed. Thread safe.
class RowSealer {
 public:
  static constexpr std::size_t kExtraBytes = 40;

  explicit RowSealer(SharedSealKey key);

  std::string Seal(std::uint8_t family, std::string_view key, std::string_view value);
  // DataLoss: damaged, moved to another key, or sealed with another key.
  absl::StatusOr<std::string> Open(std::uint8_t family, std::string_view key,
                                   std::string_view sealed);

 private:
  // Null: not met yet.
  SharedSealer Known(const Digest128& salt);

  const SharedSealKey key_;
  const SharedSealer own_;
  std::atomic<std::uint64_t> next_{0};
  absl::Mutex mutex_;
  // One for each opening that wrote rows which are still there.
  std::map<Digest128, SharedSealer> others_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace parkade
