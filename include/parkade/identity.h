// What must be equal, besides the tokens, for an image to be reusable.
//
// An identity is an ordered list of named fields. Two images belong together only if every field is
// equal; a field that one side lacks counts as different, so a partial identity fails closed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parkade {

// 128-bit value, from XXH3-128 or from the system's random source. Ordered by (high, low).
struct Digest128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const Digest128&, const Digest128&) = default;
  friend auto operator<=>(const Digest128&, const Digest128&) = default;
  bool IsZero() const { return high == 0 && low == 0; }
};

// 32 lower-case hexadecimal digits, high half first.
std::string ToHex(const Digest128& digest);
// Accepts exactly 32 hexadecimal digits.
std::optional<Digest128> DigestFromHex(std::string_view hex);

struct IdentityField {
  std::string name;   // stable, lower case, e.g. "weights", "kv_type_k"
  std::string value;  // compared byte for byte; readable, shown in logs and lookup records
  friend bool operator==(const IdentityField&, const IdentityField&) = default;
};

// A value type; thread compatible.
class Identity {
 public:
  Identity() = default;

  // Appends a field. Names are unique; a second Set of the same name replaces the value in place.
  void Set(std::string_view name, std::string_view value);

  const std::vector<IdentityField>& fields() const { return fields_; }

  // Digest over names, values and their lengths, in the order of the fields.
  Digest128 digest() const;

  friend bool operator==(const Identity&, const Identity&) = default;

 private:
  std::vector<IdentityField> fields_;
};

// Name of the first field that differs, in the order of `wanted`; then fields only `stored` has.
// Empty when the two are equal.
std::string FirstDifference(const Identity& wanted, const Identity& stored);

}  // namespace parkade
