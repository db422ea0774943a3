// Where C calls come in and answers go out: statuses, the last error, structs that grow.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/image.h"
#include "parkade/parkade.h"

namespace parkade::capi {

// Keeps the message for parkade_last_error of this thread, cut where it is very long.
parkade_status Fail(parkade_status status, absl::string_view message) noexcept;
parkade_status Fail(const absl::Status& status) noexcept;

// Runs what a C function does; nothing that it throws gets out.
template <typename Call>
parkade_status AtBorder(Call call) noexcept {
  try {
    const absl::Status status = call();
    return status.ok() ? PARKADE_OK : Fail(status);
  } catch (const std::bad_alloc&) {
    return Fail(PARKADE_NO_ROOM, "out of memory");
  } catch (const std::exception& error) {
    return Fail(PARKADE_INTERNAL, error.what());
  } catch (...) {
    return Fail(PARKADE_INTERNAL, "an unknown exception");
  }
}

// No struct is longer: a size beyond that was never set.
inline constexpr std::size_t kLongestStruct = 4096;

absl::Status NullArgument(const char* name);
absl::Status WrongSize(std::size_t given, std::size_t known);

// Of a struct as its first header had it. Fields that came later are zero where a program does not
// know them.
template <typename Struct>
inline constexpr std::size_t kFirstBytes = sizeof(Struct);
template <>
inline constexpr std::size_t kFirstBytes<parkade_stats> = offsetof(parkade_stats,
                                                                   page_locked_bytes);

// A struct that the caller filled, as this library knows it. A longer one is from a newer header:
// what is beyond must be zero, or the caller wants what this library does not do.
template <typename Struct>
absl::StatusOr<Struct> ReadStruct(const Struct* given, const char* name) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  if (given == nullptr) return NullArgument(name);
  const std::size_t size = given->struct_size;
  if (size < kFirstBytes<Struct> || size > kLongestStruct) return WrongSize(size, sizeof(Struct));
  const char* bytes = reinterpret_cast<const char*>(given);
  const std::size_t known = std::min(size, sizeof(Struct));
  if (std::any_of(bytes + known, bytes + size, [](char byte) { return byte != 0; })) {
    return WrongSize(size, sizeof(Struct));
  }
  Struct read = {};
  std::memcpy(&read, bytes, known);
  return read;
}

template <typename Struct>
absl::Status CheckOutput(const Struct* output, const char* name) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  if (output == nullptr) return NullArgument(name);
  const std::size_t size = output->struct_size;
  if (size < kFirstBytes<Struct> || size > kLongestStruct) return WrongSize(size, sizeof(Struct));
  return absl::OkStatus();
}

// Requires CheckOutput.
template <typename Struct>
void WriteStruct(Struct value, Struct* output) {
  value.struct_size = output->struct_size;
  std::memcpy(output, &value, std::min(value.struct_size, sizeof(Struct)));
}

// The number of an enum that a caller in C filled, who may have put any there: C++ may only load
// those that the enum has.
template <typename Enum>
int NumberOf(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof(number));
  return number;
}

// Its hexadecimal digits.
void WriteId(const ConversationId& id, char (&out)[PARKADE_ID_CHARS]);

// The string, "" for null.
inline const char* OrEmpty(const char* text) { return text == nullptr ? "" : text; }

}  // namespace parkade::capi
