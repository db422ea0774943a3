// A match is restored only as far as that is cheaper than reading the tokens: what loading its
// parks takes, by the measured speed of the tier that each comes from, against what this model
// takes for the same tokens at that depth. What was never measured is loaded, and measured by that.

#include <algorithm>

#include "src/manager/cache_impl.h"

namespace parkade {
namespace {

constexpr double kForgotten = 0.98;

}  // namespace

void CacheImpl::NotePromptRead(std::uint32_t first, std::uint32_t tokens, double seconds) {
  absl::MutexLock lock(&mu_);
  prompt_speed_.Add(first, tokens, seconds);
}

// A restore that mixes tiers tells nothing about either.
void CacheImpl::NoteRestoreSpeed(const RestoreOp& op) {
  if (op.plan.parks.empty()) return;
  const int tier = op.plan.parks.front().tier;
  std::uint64_t bytes = 0;
  for (const PlannedExtent& extent : op.plan.extents) {
    if (op.plan.parks[extent.park].tier != tier) return;
    bytes += extent.info.raw_bytes;
  }
  if (tier == kFromQueue) return;
  absl::MutexLock lock(&mu_);
  load_speeds_[static_cast<std::size_t>(tier)].Add(bytes, op.restore_seconds);
}

// Sets op->match's expected times for the whole plan, and returns the position up to which the plan
// is worth most; 0: nothing of it is.
std::uint32_t CacheImpl::WorthUpTo(RestoreOp* op) {
  const RestorePlan& plan = op->plan;
  if (!op->request.session.IsZero()) return plan.boundary;
  std::vector<LoadPart> parts;
  std::uint8_t used = 0;
  std::uint32_t end = 0;
  for (const PlannedPark& park : plan.parks) {
    end = std::max(end, park.tokens.end);
    LoadPart part{end, 0};
    if (park.tier != kFromQueue) {
      const auto tier = static_cast<std::size_t>(park.tier);
      const std::optional<double> seconds = load_speeds_[tier].SecondsFor(park.bytes);
      if (!seconds.has_value()) return plan.boundary;
      // Of a park that the plan leaves in the middle a part is read.
      const double share =
          park.own_tokens == 0 ? 1 : static_cast<double>(park.tokens.size()) / park.own_tokens;
      part.seconds = share * *seconds;
      used |= Bit(tier);
    }
    parts.push_back(part);
  }
  const std::optional<LoadChoice> choice =
      ChooseLoad(op->request.held_tokens, plan.boundary, parts, prompt_speed_);
  if (!choice.has_value()) return plan.boundary;
  op->match.expected_load_seconds = choice->load_seconds;
  op->match.expected_read_seconds = choice->read_seconds;
  if (choice->end == plan.boundary) return plan.boundary;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    if ((used & Bit(tier)) != 0) load_speeds_[tier].NoteSkipped();
  }
  return choice->end;
}

// Asking a shared tier takes time, too. Each time that it is not asked it is thought a little
// faster, so that one that was slow once is asked again.
bool CacheImpl::IsWorthAsking(const TokenRange& tokens) {
  absl::MutexLock lock(&mu_);
  const std::optional<double> read = prompt_speed_.SecondsFor(tokens);
  if (!read.has_value() || find_seconds_ < *read) return true;
  find_seconds_ *= kForgotten;
  return false;
}

}  // namespace parkade
