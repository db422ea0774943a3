// Deleting: nobody finds it any more, then it goes, and nobody brings it back.

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "tiers/remote/tier_impl.h"

namespace parkade::remote {
namespace {

// Tombstones outlive everything that was there before them.
constexpr int kTombstoneTtls = 2;

}  // namespace

// The tombstone first: whatever is left undone after it is found by nobody.
absl::Status RemoteTier::Erase(const ConversationId& conversation, const Digest128& identity,
                               absl::Span<const Token> tokens,
                               absl::Span<const PublishStep> steps) {
  const absl::Time deadline = absl::Now() + options_.deadline;
  const absl::StatusOr<Digest128> secret = Secret(false, deadline);
  if (!secret.ok()) return secret.status();
  const std::vector<std::uint64_t> hashes = PageHashes(*secret, identity, tokens);
  std::vector<Place> places;
  bool all_known = true;
  for (const PublishStep& step : steps) {
    if (!(step.key.conversation == conversation)) continue;
    const std::optional<Place> place = PlaceOf(step.key);
    all_known = all_known && place.has_value();
    if (place.has_value()) places.push_back(*place);
  }
  if (!all_known) {
    // Stored before this process began.
    const absl::StatusOr<FoundWay> found = Find(identity, tokens, 0);
    if (!found.ok()) return found.status();
    for (const FoundPark& park : found->parks) {
      const ParkSummary& summary = park.record.summary;
      if (!(summary.key.conversation == conversation)) continue;
      places.push_back({park.row, conversation, summary.first_token, summary.end_token(),
                        static_cast<std::uint32_t>(park.record.extents.size()), absl::Time(), 0});
    }
  }
  std::vector<ConversationId> labels = {conversation};
  for (const Place& place : places) {
    if (std::find(labels.begin(), labels.end(), place.label) == labels.end()) {
      labels.push_back(place.label);
    }
  }
  const absl::Status buried = WriteTombstones(labels, deadline);
  if (!buried.ok() && !absl::IsResourceExhausted(buried)) return buried;
  if (absl::Status s = EraseRows(places, hashes, deadline); !s.ok() || buried.ok()) return s;
  // It had no room for a tombstone; now it has.
  return WriteTombstones(labels, deadline);
}

absl::Status RemoteTier::EraseDead(const PublishRequest& request,
                                   absl::Span<const ConversationId> dead,
                                   absl::Span<const std::uint64_t> hashes, absl::Time deadline) {
  std::vector<Place> places;
  for (const PublishStep& step : request.steps) {
    const bool erased = std::find(dead.begin(), dead.end(), step.key.conversation) != dead.end();
    const std::optional<Place> place = erased ? PlaceOf(step.key) : std::nullopt;
    if (place.has_value()) places.push_back(*place);
  }
  if (places.empty()) return absl::OkStatus();
  const absl::Status gone = EraseRows(places, hashes, deadline);
  if (!gone.ok()) return gone;
  for (const PublishStep& step : request.steps) {
    const bool erased = std::find(dead.begin(), dead.end(), step.key.conversation) != dead.end();
    if (erased) ErasePlace(step.key);
  }
  return absl::OkStatus();
}

absl::Status RemoteTier::WriteTombstones(absl::Span<const ConversationId> labels,
                                         absl::Time deadline) {
  const std::string ttl = std::to_string(absl::ToInt64Milliseconds(options_.ttl) * kTombstoneTtls);
  std::vector<std::string> names;
  for (const ConversationId& label : labels) names.push_back(keys_.Tombstone(label));
  std::vector<Command> commands;
  for (const std::string& name : names) commands.push_back({{"SET", name, "1", "PX", ttl}, name});
  return Write(commands, deadline);
}

absl::Status RemoteTier::EraseRows(const std::vector<Place>& places,
                                   absl::Span<const std::uint64_t> hashes, absl::Time deadline) {
  std::vector<std::string> names;
  for (const Place& place : places) {
    for (const std::size_t page : BoundaryPages(place)) {
      if (page < hashes.size()) names.push_back(keys_.Boundary(hashes[page]));
    }
  }
  std::vector<Command> commands;
  for (const std::string& name : names) commands.push_back({{"GET", name}, name});
  absl::StatusOr<std::vector<Reply>> replies = Ask(commands, deadline);
  if (!replies.ok()) return replies.status();
  // A boundary of others, who share the tokens before it, stays.
  const auto is_ours = [&places](const Reply& reply) {
    if (reply.kind != Reply::Kind::kBytes) return false;
    const absl::StatusOr<Chain> chain = DecodeBoundary(reply.bytes);
    return chain.ok() && std::any_of(places.begin(), places.end(), [&chain](const Place& place) {
             return chain->steps.back().row == place.row;
           });
  };
  std::vector<std::string> gone;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (is_ours((*replies)[i])) gone.push_back(names[i]);
  }
  for (const Place& place : places) {
    gone.push_back(keys_.Row(place.row));
    for (std::uint32_t i = 0; i < place.extents; ++i) gone.push_back(keys_.Extent(place.row, i));
    rows_.Erase(place.row);
  }
  commands.clear();
  for (const std::string& name : gone) commands.push_back({{"UNLINK", name}, name});
  return Write(commands, deadline);
}

}  // namespace parkade::remote
