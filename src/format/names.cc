// The one place where values that are shown as labels get their names; see INTERFACE.
#include "parkade/events.h"
#include "parkade/tier.h"

namespace parkade {

std::string_view MissReasonName(MissReason reason) {
  switch (reason) {
    case MissReason::kNew:
      return "new";
    case MissReason::kCold:
      return "cold";
    case MissReason::kDiverged:
      return "diverged";
    case MissReason::kIdentity:
      return "identity";
    case MissReason::kEvicted:
      return "evicted";
    case MissReason::kCorrupt:
      return "corrupt";
    case MissReason::kIncomplete:
      return "incomplete";
    case MissReason::kCheckpoint:
      return "checkpoint";
    case MissReason::kRemote:
      return "remote";
    case MissReason::kTooShort:
      return "too_short";
    case MissReason::kUnsupported:
      return "unsupported";
    case MissReason::kDisabled:
      return "disabled";
  }
  return "unknown";
}

std::string_view LookupOutcomeName(LookupOutcome outcome) {
  switch (outcome) {
    case LookupOutcome::kFull:
      return "full";
    case LookupOutcome::kPartial:
      return "partial";
    case LookupOutcome::kMiss:
      return "miss";
  }
  return "unknown";
}

std::string_view BoundaryKindName(BoundaryKind kind) {
  switch (kind) {
    case BoundaryKind::kNone:
      return "none";
    case BoundaryKind::kSlot:
      return "slot";
    case BoundaryKind::kRow:
      return "row";
    case BoundaryKind::kWindow:
      return "window";
    case BoundaryKind::kSystem:
      return "system";
    case BoundaryKind::kUser:
      return "user";
    case BoundaryKind::kBetween:
      return "between";
    case BoundaryKind::kTurn:
      return "turn";
  }
  return "unknown";
}

std::string_view SourceName(Source source) {
  switch (source) {
    case Source::kSlot:
      return "slot";
    case Source::kRam:
      return "ram";
    case Source::kDisk:
      return "disk";
    case Source::kRemote:
      return "remote";
  }
  return "unknown";
}

Source SourceOf(TierKind kind) {
  switch (kind) {
    case TierKind::kRam:
      return Source::kRam;
    case TierKind::kDisk:
      return Source::kDisk;
    case TierKind::kRemote:
      return Source::kRemote;
  }
  return Source::kRemote;
}

std::string_view SkipReasonName(SkipReason reason) {
  switch (reason) {
    case SkipReason::kTooShort:
      return "too_short";
    case SkipReason::kQueueFull:
      return "queue_full";
    case SkipReason::kNoSpace:
      return "no_space";
    case SkipReason::kTooLarge:
      return "too_large";
    case SkipReason::kUnsupported:
      return "unsupported";
  }
  return "unknown";
}

std::string_view EvictReasonName(EvictReason reason) {
  switch (reason) {
    case EvictReason::kBudget:
      return "budget";
    case EvictReason::kSlots:
      return "slots";
    case EvictReason::kMinFree:
      return "min_free";
    case EvictReason::kTtl:
      return "ttl";
    case EvictReason::kManual:
      return "manual";
    case EvictReason::kCorrupt:
      return "corrupt";
    case EvictReason::kSuperseded:
      return "superseded";
  }
  return "unknown";
}

std::string_view TierName(TierKind kind) {
  switch (kind) {
    case TierKind::kRam:
      return "ram";
    case TierKind::kDisk:
      return "disk";
    case TierKind::kRemote:
      return "remote";
  }
  return "unknown";
}

}  // namespace parkade
