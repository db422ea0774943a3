// One conversation out of a container into a tier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parkade/tier.h"
#include "src/cli/container_file.h"
#include "src/cli/work_watch.h"
#include "src/format/sealing.h"

namespace parkade {

struct ImportReport {
  ConversationId id;
  std::string name;
  std::uint32_t tokens = 0;
  std::uint32_t parks = 0;
  std::uint64_t payload_bytes = 0;
  bool there_already = false;  // the same tokens under the same id; nothing was written
  std::vector<std::string> notices;
};

// What a whole read of a container found: everything is sound.
struct CheckedContainer {
  Digest128 tokens_checksum;  // of AddTokens over all parks
  std::uint64_t payload_bytes = 0;
};
absl::StatusOr<CheckedContainer> CheckContainer(ContainerFile& file, const WorkWatch& watch);

// Stores the conversation, park by park, under its own id (a new one where its own is kept for
// forks of a forgotten conversation). AlreadyExists: another conversation has the id.
// ResourceExhausted: no room. On any failure what was stored is removed again. A name that another
// conversation has is not taken; a notice says so. At most one park is in memory.
absl::StatusOr<ImportReport> ImportConversation(Tier& tier, ContainerFile& file,
                                                const CheckedContainer& checked,
                                                std::int64_t now_unix_ms, const WorkWatch& watch,
                                                const SharedSealKey& key = nullptr);

}  // namespace parkade
