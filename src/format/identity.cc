#include "parkade/identity.h"

#include <cstddef>

#include "src/format/checksum.h"
#include "src/format/wire.h"

namespace parkade {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void AppendHex(std::uint64_t value, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 60; shift >= 0; shift -= 4) out->push_back(kDigits[(value >> shift) & 15]);
}

const IdentityField* FindField(const Identity& identity, std::string_view name) {
  for (const IdentityField& field : identity.fields()) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

}  // namespace

std::string ToHex(const Digest128& digest) {
  std::string out;
  out.reserve(32);
  AppendHex(digest.high, &out);
  AppendHex(digest.low, &out);
  return out;
}

std::optional<Digest128> DigestFromHex(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  Digest128 digest;
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const int value = HexValue(hex[i]);
    if (value < 0) return std::nullopt;
    std::uint64_t& half = i < 16 ? digest.high : digest.low;
    half = half << 4 | static_cast<std::uint64_t>(value);
  }
  return digest;
}

void Identity::Set(std::string_view name, std::string_view value) {
  for (IdentityField& field : fields_) {
    if (field.name == name) {
      field.value = value;
      return;
    }
  }
  fields_.push_back({std::string(name), std::string(value)});
}

Digest128 Identity::digest() const {
  // The count and the lengths make this injective: no two field lists give the same bytes.
  ByteWriter writer;
  writer.Count(fields_.size());
  for (const IdentityField& field : fields_) {
    writer.Sized(field.name);
    writer.Sized(field.value);
  }
  return Checksum(absl::MakeConstSpan(writer.bytes().data(), writer.size()));
}

std::string FirstDifference(const Identity& wanted, const Identity& stored) {
  for (const IdentityField& field : wanted.fields()) {
    const IdentityField* other = FindField(stored, field.name);
    if (other == nullptr || other->value != field.value) return field.name;
  }
  for (const IdentityField& field : stored.fields()) {
    if (FindField(wanted, field.name) == nullptr) return field.name;
  }
  // Same fields in another order are another digest, so a field has to be named here, too.
  for (std::size_t i = 0; i < wanted.fields().size(); ++i) {
    if (wanted.fields()[i].name != stored.fields()[i].name) return wanted.fields()[i].name;
  }
  return "";
}

}  // namespace parkade
