#include "src/server/key_file.h"

#include <unistd.h>

#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "src/server/user_file.h"

namespace parkade {
namespace {

// 64 digits and a line end of two characters.
constexpr std::size_t kLongest = 66;

}  // namespace

absl::StatusOr<SharedSealKey> ReadKeyFile(const std::string& path) {
  if (path.empty()) return SharedSealKey();
  absl::StatusOr<UserFile> file = ReadUserFile(path, kLongest);
  if (absl::IsInvalidArgument(file.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("key file ", path, " ", file.status().message()));
  }
  if (!file.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("key file ", path, " can't be read: ", file.status().message()));
  }
  const auto wipe =
      absl::MakeCleanup([&file] { ::explicit_bzero(file->content.data(), file->content.size()); });
  // Root may hand out keys; anybody else who owns it can read it, and change it.
  if (file->owner != ::geteuid() && file->owner != 0) {
    return absl::InvalidArgumentError(absl::StrCat("key file ", path, " belongs to another user"));
  }
  if ((file->mode & 0077) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("key file ", path, " is open to others; chmod 600 ", path));
  }
  absl::StatusOr<SharedSealKey> key = SealKey::Parse(file->content);
  if (key.ok()) return key;
  // Not onto the file that was given: it may be the only key there is, spoilt by an editor.
  return absl::InvalidArgumentError(absl::StrCat("key file ", path, ": ", key.status().message(),
                                                 "; if there is none yet, make one with: "
                                                 "(umask 077; openssl rand -hex 32 > new.key)"));
}

}  // namespace parkade
