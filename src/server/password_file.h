// The file that --conversation-cache-remote names in place of a password.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace parkade {

// The file's content without blanks and line ends around it. InvalidArgument in one line that names
// the file and what to do: it can't be read, others may read it, or it is empty.
absl::StatusOr<std::string> ReadPasswordFile(const std::string& path);

}  // namespace parkade
