// A conversation as one sequence of parks, from the root, whatever it is a fork of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parkade/tier.h"
#include "src/format/running_checksum.h"

namespace parkade {

// A stored park and the part of it that belongs to the conversation.
struct PathStep {
  ParkSummary stored;
  // Clipped: no token, window row or checkpoint behind the position where the next fork leaves;
  // key, parent and generation are those of a root of the same id; page hashes are zero.
  ParkSummary kept;
  // Rows from here on are another continuation's.
  std::uint32_t reach = 0;
};

struct ConversationPath {
  ConversationAttributes attributes;
  std::vector<PathStep> steps;
  std::uint32_t tokens = 0;
  std::uint64_t stored_bytes = 0;  // payload to read
  bool forgotten = false;          // kept for forks only
};

// NotFound: no such conversation. DataLoss: parts of it are missing. Reads no payload; costs two
// walks over the catalogue.
absl::StatusOr<ConversationPath> FindPath(Tier& tier, const ConversationId& id);

// The conversation that has this id, in 32 hexadecimal digits, or this name, or else the only one
// whose id begins with these digits. NotFound when none or more than one has it: the message is for
// the user. Forgotten ones are none.
absl::StatusOr<ConversationId> FindConversation(Tier& tier, const std::string& id_or_name);

// The tokens of a step that belong to the conversation.
absl::StatusOr<std::vector<Token>> ReadStepTokens(Tier& tier, const PathStep& step);

// Adds token ids, 4 bytes each, to a checksum that tells sequences apart.
void AddTokens(const std::vector<Token>& tokens, RunningChecksum* checksum);

}  // namespace parkade
