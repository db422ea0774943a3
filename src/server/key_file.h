// The file that --conversation-cache-key-file and parkade --key-file name.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "src/format/sealing.h"

namespace parkade {

// Null for an empty path. InvalidArgument, in one line that names the file and what to do: it can't
// be read, others may read it, or it holds no key. Nothing of its content is in a message.
absl::StatusOr<SharedSealKey> ReadKeyFile(const std::string& path);

}  // namespace parkade
