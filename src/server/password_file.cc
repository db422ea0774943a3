#include "src/server/password_file.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/server/user_file.h"

namespace parkade {
namespace {

constexpr std::size_t kMostBytes = 4096;

}  // namespace

absl::StatusOr<std::string> ReadPasswordFile(const std::string& path) {
  const auto wrong = [&path](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("password file ", path, " ", what));
  };
  const absl::StatusOr<UserFile> file = ReadUserFile(path, kMostBytes);
  if (absl::IsInvalidArgument(file.status())) return wrong(file.status().message());
  if (!file.ok()) return wrong(absl::StrCat("can't be read: ", file.status().message()));
  if (file->content.size() > kMostBytes) return wrong("is larger than 4096 bytes");
  if ((file->mode & 0077) != 0) {
    return wrong(absl::StrCat("is open to others; chmod 600 ", path));
  }
  std::string password(absl::StripAsciiWhitespace(file->content));
  if (password.empty()) return wrong("is empty");
  return password;
}

}  // namespace parkade
