// Numbers and counted sequences <-> bytes, and the frame around every row value. FORMAT.md,
// section "Row values".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/identity.h"

namespace parkade {

// XXH3-64 with seed 0.
std::uint64_t Checksum64(std::string_view bytes);

// Appends to a string. Integers are little-endian, digests 16 bytes with the highest byte first.
class ByteWriter {
 public:
  void U8(std::uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void U16(std::uint16_t value) { Little(value, 2); }
  void U32(std::uint32_t value) { Little(value, 4); }
  void U64(std::uint64_t value) { Little(value, 8); }
  void I64(std::int64_t value) { Little(static_cast<std::uint64_t>(value), 8); }
  void Digest(const Digest128& digest);
  // A count is a u32: no sequence that is stored comes near 2^32 elements.
  void Count(std::size_t count) { U32(static_cast<std::uint32_t>(count)); }
  // u32 length, then the bytes.
  void Sized(std::string_view bytes);
  void Raw(std::string_view bytes) { out_.append(bytes); }
  // Zero bytes up to the next multiple.
  void PadTo(std::size_t multiple);

  std::string_view bytes() const { return out_; }
  std::size_t size() const { return out_.size(); }
  void Reserve(std::size_t bytes) { out_.reserve(bytes); }
  std::string Take() { return std::move(out_); }

 private:
  void Little(std::uint64_t value, int bytes);

  std::string out_;
};

// Reads what ByteWriter wrote. A read past the end gives zeros from then on, and ok() is false:
// check once, after a group of reads. Does not own the bytes.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  std::uint8_t U8() { return static_cast<std::uint8_t>(Little(1)); }
  std::uint16_t U16() { return static_cast<std::uint16_t>(Little(2)); }
  std::uint32_t U32() { return static_cast<std::uint32_t>(Little(4)); }
  std::uint64_t U64() { return Little(8); }
  std::int64_t I64() { return static_cast<std::int64_t>(Little(8)); }
  Digest128 Digest();
  // A count of elements that take at least `element_bytes` each; fails when the rest is too short
  // for so many, so that whoever allocates for them allocates in proportion to the input.
  std::uint32_t Count(std::size_t element_bytes);
  std::string_view Sized();
  std::string_view Raw(std::size_t bytes);

  bool ok() const { return ok_; }
  // Everything was there and nothing is left over.
  bool AtEnd() const { return ok_ && rest_.empty(); }
  std::size_t remaining() const { return rest_.size(); }

 private:
  std::uint64_t Little(int bytes);

  std::string_view rest_;
  bool ok_ = true;
};

// First byte of a row value. Values are stored.
enum class RowKind : std::uint8_t {
  kManifest = 'M',
  kTokens = 'T',
  kImage = 'I',
  kIdentity = 'D',
  kAttributes = 'A',
};
// "manifest row" and so on, for messages.
std::string_view RowKindName(RowKind kind);

// Starts a row value of this kind: kind and version.
ByteWriter BeginRow(RowKind kind);
// Ends it with its checksum.
std::string SealRow(ByteWriter writer);
// The body of a row value: checksum, kind and version are right and cut off. DataLoss when the
// value is damaged or of another kind; FailedPrecondition when it is sound but of a later version.
absl::StatusOr<std::string_view> OpenRow(RowKind kind, std::string_view value);

absl::Status RowDamaged(RowKind kind, std::string_view what);

}  // namespace parkade
