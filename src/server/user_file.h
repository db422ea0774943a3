// Small files that a user names on the command line.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace parkade {

struct UserFile {
  std::string content;  // one byte more than was asked for: the file is larger
  uid_t owner = 0;
  mode_t mode = 0;
};

// A plain file; symbolic links are followed, as mounted configurations and secrets are such.
// InvalidArgument: it is something else, and was neither read nor waited for. Unavailable: it can't
// be read; the message is the system's alone.
absl::StatusOr<UserFile> ReadUserFile(const std::string& path, std::size_t most_bytes);

}  // namespace parkade
