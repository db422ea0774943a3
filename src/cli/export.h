// One conversation out of a tier into a container.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "parkade/tier.h"
#include "src/cli/work_watch.h"
#include "src/format/sealing.h"

namespace parkade {

struct ExportRequest {
  std::string id_or_name;
  std::string file;
  bool replace = false;         // a file of that name
  SharedSealKey key = nullptr;  // the tier's: the file is encrypted with it, too
};

struct ExportReport {
  ConversationId id;
  std::string name;
  std::uint32_t tokens = 0;
  std::uint32_t parks = 0;
  std::uint32_t stages = 0;  // most in one park
  std::uint64_t file_bytes = 0;
};

// Reads and checks every extent of the conversation, from the root on, and writes the file. Of what
// it is a fork of only what lies before the fork goes along. At most one park is in memory. On any
// failure there is no file; the message is one line for the user.
absl::StatusOr<ExportReport> ExportConversation(Tier& tier, const ExportRequest& request,
                                                const WorkWatch& watch);

}  // namespace parkade
