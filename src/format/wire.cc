#include "src/format/wire.h"

#include "absl/strings/str_cat.h"
#include "src/format/catalogue.h"
#include "src/format/xxh3.h"

namespace parkade {
namespace {

constexpr std::size_t kRowHeaderBytes = 2;
constexpr std::size_t kRowTrailerBytes = 8;
static_assert(kFormatVersion <= 255, "a row value has one byte for its version");

// Debian's Abseil has a string_view of its own, which StrCat wants.
absl::string_view ForAbseil(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::uint64_t Checksum64(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

void ByteWriter::Little(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out_.push_back(static_cast<char>(value & 255));
    value >>= 8;
  }
}

void ByteWriter::Digest(const Digest128& digest) {
  for (int shift = 56; shift >= 0; shift -= 8) U8(digest.high >> shift & 255);
  for (int shift = 56; shift >= 0; shift -= 8) U8(digest.low >> shift & 255);
}

void ByteWriter::Sized(std::string_view bytes) {
  Count(bytes.size());
  Raw(bytes);
}

void ByteWriter::PadTo(std::size_t multiple) {
  out_.append((multiple - out_.size() % multiple) % multiple, '\0');
}

std::string_view ByteReader::Raw(std::size_t bytes) {
  if (bytes > rest_.size()) {
    ok_ = false;
    rest_ = {};
    return {};
  }
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

std::uint64_t ByteReader::Little(int bytes) {
  const std::string_view taken = Raw(bytes);
  std::uint64_t value = 0;
  for (std::size_t i = taken.size(); i > 0; --i) {
    value = value << 8 | static_cast<std::uint8_t>(taken[i - 1]);
  }
  return value;
}

Digest128 ByteReader::Digest() {
  const std::string_view taken = Raw(16);
  Digest128 digest;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    std::uint64_t& half = i < 8 ? digest.high : digest.low;
    half = half << 8 | static_cast<std::uint8_t>(taken[i]);
  }
  return digest;
}

std::uint32_t ByteReader::Count(std::size_t element_bytes) {
  const std::uint32_t count = U32();
  if (count > rest_.size() / element_bytes) {
    ok_ = false;
    rest_ = {};
    return 0;
  }
  return count;
}

std::string_view ByteReader::Sized() { return Raw(U32()); }

std::string_view RowKindName(RowKind kind) {
  switch (kind) {
    case RowKind::kManifest:
      return "manifest row";
    case RowKind::kTokens:
      return "tokens row";
    case RowKind::kImage:
      return "image row";
    case RowKind::kIdentity:
      return "identity row";
    case RowKind::kAttributes:
      return "attributes row";
  }
  return "row";
}

ByteWriter BeginRow(RowKind kind) {
  ByteWriter writer;
  writer.U8(static_cast<std::uint8_t>(kind));
  writer.U8(kFormatVersion);
  return writer;
}

std::string SealRow(ByteWriter writer) {
  writer.U64(Checksum64(writer.bytes()));
  return writer.Take();
}

absl::StatusOr<std::string_view> OpenRow(RowKind kind, std::string_view value) {
  if (value.size() < kRowHeaderBytes + kRowTrailerBytes) return RowDamaged(kind, "too short");
  const std::string_view covered = value.substr(0, value.size() - kRowTrailerBytes);
  if (ByteReader(value.substr(covered.size())).U64() != Checksum64(covered)) {
    return RowDamaged(kind, "checksum differs");
  }
  ByteReader reader(covered);
  if (reader.U8() != static_cast<std::uint8_t>(kind)) return RowDamaged(kind, "of another kind");
  const std::uint8_t version = reader.U8();
  if (version == 0) return RowDamaged(kind, "version 0");
  if (version > kFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(ForAbseil(RowKindName(kind)), ": version ",
                                                      version, ", this program knows ",
                                                      kFormatVersion));
  }
  return covered.substr(kRowHeaderBytes);
}

absl::Status RowDamaged(RowKind kind, std::string_view what) {
  return absl::DataLossError(absl::StrCat(ForAbseil(RowKindName(kind)), ": ", ForAbseil(what)));
}

}  // namespace parkade
