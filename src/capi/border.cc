#include "src/capi/border.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace parkade::capi {
namespace {

// Of fixed size, so that an error can be told when there is no memory.
thread_local char last_error[512] = "";

parkade_status StatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return PARKADE_OK;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kPermissionDenied:
      return PARKADE_INVALID_ARGUMENT;
    case absl::StatusCode::kFailedPrecondition:
      return PARKADE_FAILED_PRECONDITION;
    case absl::StatusCode::kNotFound:
      return PARKADE_NOT_FOUND;
    case absl::StatusCode::kAlreadyExists:
      return PARKADE_ALREADY_EXISTS;
    case absl::StatusCode::kResourceExhausted:
      return PARKADE_NO_ROOM;
    case absl::StatusCode::kUnavailable:
      return PARKADE_UNAVAILABLE;
    case absl::StatusCode::kDeadlineExceeded:
      return PARKADE_TIMEOUT;
    case absl::StatusCode::kUnimplemented:
      return PARKADE_UNSUPPORTED;
    default:
      return PARKADE_INTERNAL;
  }
}

}  // namespace

parkade_status Fail(parkade_status status, absl::string_view message) noexcept {
  const std::size_t bytes = std::min(message.size(), sizeof(last_error) - 1);
  std::memcpy(last_error, message.data(), bytes);
  last_error[bytes] = '\0';
  return status;
}

parkade_status Fail(const absl::Status& status) noexcept {
  return Fail(StatusOf(status.code()), status.message());
}

void WriteId(const ConversationId& id, char (&out)[PARKADE_ID_CHARS]) {
  const std::string digits = ToHex(id);
  std::memcpy(out, digits.c_str(), std::min(digits.size() + 1, sizeof(out)));
}

absl::Status NullArgument(const char* name) {
  return absl::InvalidArgumentError(absl::StrCat(name, " is NULL"));
}

absl::Status WrongSize(std::size_t given, std::size_t known) {
  const bool newer = given > known && given <= kLongestStruct;
  return absl::InvalidArgumentError(
      absl::StrCat("struct_size is ", given, ", here it is ", known,
                   newer ? ": the program asks for what a newer library does"
                         : "; set it to sizeof the struct"));
}

}  // namespace parkade::capi

extern "C" const char* parkade_last_error(void) { return parkade::capi::last_error; }
