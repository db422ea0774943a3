#include "src/cli/conversation_path.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/cli/arguments.h"

namespace parkade {
namespace {

struct Parent {
  ConversationId id;
  std::uint32_t tokens = 0;
};

// What the catalogue says about ancestry, and the parks of one line of it.
class Ancestry {
 public:
  static absl::StatusOr<Ancestry> Read(Tier& tier, const ConversationId& id) {
    Ancestry ancestry;
    std::map<ConversationId, Parent> parents;
    absl::Status status = tier.Enumerate([&](const ParkSummary& summary) {
      parents.try_emplace(summary.key.conversation, Parent{summary.parent, summary.parent_tokens});
    });
    if (!status.ok()) return status;
    if (!parents.contains(id)) {
      return absl::NotFoundError(absl::StrCat("no conversation ", ToHex(id)));
    }
    for (ConversationId at = id; !at.IsZero(); at = parents[at].id) {
      if (!parents.contains(at) || ancestry.line_.size() > parents.size()) {
        return absl::DataLossError(
            absl::StrCat("what conversation ", ToHex(id), " is a fork of is not there"));
      }
      ancestry.line_.push_back({at, parents[at].tokens});
    }
    std::reverse(ancestry.line_.begin(), ancestry.line_.end());
    for (const Parent& member : ancestry.line_) ancestry.parks_[member.id] = {};
    status = tier.Enumerate([&](const ParkSummary& summary) {
      const auto found = ancestry.parks_.find(summary.key.conversation);
      if (found != ancestry.parks_.end()) found->second.push_back(summary);
    });
    if (!status.ok()) return status;
    for (auto& [member, parks] : ancestry.parks_) {
      std::sort(parks.begin(), parks.end(),
                [](const ParkSummary& a, const ParkSummary& b) { return a.key.park < b.key.park; });
    }
    return ancestry;
  }

  // Root first; of each: its id, and where it leaves its parent.
  const std::vector<Parent>& line() const { return line_; }
  const std::vector<ParkSummary>& ParksOf(const ConversationId& id) const { return parks_.at(id); }

  // Where each member's rows end for the last one: at the first place where a fork leaves.
  std::vector<std::uint32_t> Reaches() const {
    std::uint32_t reach = line_.back().tokens;
    for (const ParkSummary& park : ParksOf(line_.back().id)) {
      if (park.token_count > 0) reach = std::max(reach, park.end_token());
    }
    std::vector<std::uint32_t> reaches(line_.size());
    for (std::size_t i = line_.size(); i-- > 0;) {
      reaches[i] = reach;
      reach = std::min(reach, line_[i].tokens);
    }
    return reaches;
  }

 private:
  std::vector<Parent> line_;
  std::map<ConversationId, std::vector<ParkSummary>> parks_;
};

// Whether the text is a shortened form of the id.
bool Begins(const ConversationId& id, const std::string& text) {
  return text.size() >= kLeastIdDigits && absl::StartsWith(ToHex(id), absl::AsciiStrToLower(text));
}

ParkSummary Clip(const ParkSummary& stored, std::uint32_t reach) {
  ParkSummary kept = stored;
  kept.parent = ConversationId();
  kept.parent_tokens = 0;
  kept.generation = 0;
  kept.first_token = std::min(stored.first_token, reach);
  kept.token_count = std::min(stored.end_token(), reach) - kept.first_token;
  const std::uint32_t pages = kept.end_token() / kPageTokens - kept.first_token / kPageTokens;
  kept.page_hashes.assign(pages, 0);
  kept.window_rows.clear();
  for (const TokenRange& rows : stored.window_rows) {
    const TokenRange cut{rows.begin, std::min(rows.end, reach)};
    if (!cut.empty()) kept.window_rows.push_back(cut);
  }
  std::erase_if(kept.checkpoints, [reach](std::uint32_t position) { return position > reach; });
  return kept;
}

}  // namespace

absl::StatusOr<ConversationPath> FindPath(Tier& tier, const ConversationId& id) {
  const absl::StatusOr<Ancestry> ancestry = Ancestry::Read(tier, id);
  if (!ancestry.ok()) return ancestry.status();
  ConversationPath path;
  path.attributes.conversation = id;
  const absl::Status listed =
      tier.EnumerateAttributes([&path](const ConversationAttributes& attributes) {
        if (attributes.conversation == path.attributes.conversation) path.attributes = attributes;
      });
  if (!listed.ok()) return listed;
  path.forgotten = path.attributes.name.empty() && path.attributes.name_tokens > 0;
  const std::vector<Parent>& line = ancestry->line();
  const std::vector<std::uint32_t> reaches = ancestry->Reaches();
  const std::int64_t created = ancestry->ParksOf(id).front().created_unix_ms;
  for (std::size_t i = 0; i < line.size(); ++i) {
    for (const ParkSummary& park : ancestry->ParksOf(line[i].id)) {
      PathStep step{park, Clip(park, reaches[i]), reaches[i]};
      const bool follows = step.kept.first_token == path.tokens;
      if (step.kept.first_token > path.tokens || (step.kept.token_count > 0 && !follows)) break;
      step.kept.key = {id, static_cast<std::uint32_t>(path.steps.size())};
      step.kept.created_unix_ms = created;
      path.tokens = std::max(path.tokens, step.kept.end_token());
      path.stored_bytes += park.payload_bytes;
      path.steps.push_back(std::move(step));
    }
    if (path.tokens != reaches[i]) {
      return absl::DataLossError(absl::StrCat("of conversation ", ToHex(id), " something after ",
                                              path.tokens, " tokens is missing"));
    }
  }
  return path;
}

absl::StatusOr<ConversationId> FindConversation(Tier& tier, const std::string& id_or_name) {
  std::map<ConversationId, ConversationAttributes> named;
  absl::Status status = tier.EnumerateAttributes([&](const ConversationAttributes& attributes) {
    named[attributes.conversation] = attributes;
  });
  if (!status.ok()) return status;
  const std::optional<ConversationId> id = DigestFromHex(id_or_name);
  bool has_id = false;
  std::vector<ConversationId> found;
  std::vector<ConversationId> alike;
  std::map<ConversationId, bool> seen;
  status = tier.Enumerate([&](const ParkSummary& summary) {
    if (!seen.try_emplace(summary.key.conversation, true).second) return;
    const auto attributes = named.find(summary.key.conversation);
    const bool known = attributes != named.end();
    const std::string name = known ? attributes->second.name : "";
    if (known && name.empty() && attributes->second.name_tokens > 0) return;  // forgotten
    if (id.has_value() && summary.key.conversation == *id) has_id = true;
    if (!name.empty() && name == id_or_name) found.push_back(summary.key.conversation);
    if (Begins(summary.key.conversation, id_or_name)) alike.push_back(summary.key.conversation);
  });
  if (!status.ok()) return status;
  if (has_id) return *id;
  if (found.size() == 1) return found[0];
  if (found.size() > 1) {
    return absl::NotFoundError(
        absl::StrCat(found.size(), " conversations have the name '", id_or_name, "'; give an id"));
  }
  if (alike.size() == 1) return alike[0];
  if (alike.size() > 1) {
    return absl::NotFoundError(absl::StrCat("the ids of ", alike.size(),
                                            " conversations begin with ", id_or_name,
                                            "; give more digits"));
  }
  return absl::NotFoundError(absl::StrCat("no conversation has the id or name '", id_or_name, "'"));
}

absl::StatusOr<std::vector<Token>> ReadStepTokens(Tier& tier, const PathStep& step) {
  absl::StatusOr<std::vector<Token>> tokens = tier.ReadTokens(step.stored.key);
  if (!tokens.ok()) return tokens.status();
  if (tokens->size() != step.stored.token_count) {
    return absl::DataLossError(absl::StrCat("park ", step.stored.key.park, " of ",
                                            ToHex(step.stored.key.conversation),
                                            " has another number of tokens"));
  }
  tokens->resize(step.kept.token_count);
  return tokens;
}

void AddTokens(const std::vector<Token>& tokens, RunningChecksum* checksum) {
  checksum->Add({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token)});
}

}  // namespace parkade
