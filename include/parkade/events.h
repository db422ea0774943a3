// What the core tells the outside. The core depends on no metrics library and on no logger: it
// calls an EventSink. Calls come from any thread, are short and must not call back into the cache.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parkade/image.h"
#include "parkade/tier.h"

namespace parkade {

// Why tokens of a prompt were computed. Order and names are those of INTERFACE.
enum class MissReason {
  kNew,
  kCold,
  kDiverged,
  kIdentity,
  kEvicted,
  kCorrupt,
  kIncomplete,
  kCheckpoint,
  kRemote,
  kTooShort,
  kUnsupported,
  kDisabled,
};
inline constexpr int kMissReasons = 12;
std::string_view MissReasonName(MissReason reason);

enum class LookupOutcome { kFull, kPartial, kMiss };
std::string_view LookupOutcomeName(LookupOutcome outcome);

// Where reused tokens came from: the slot itself or a tier.
enum class Source { kSlot, kRam, kDisk, kRemote };
inline constexpr int kSources = 4;
std::string_view SourceName(Source source);
Source SourceOf(TierKind kind);

// What the position is that a lookup went back to.
enum class BoundaryKind {
  kNone,     // nothing was reused
  kSlot,     // wherever the slot itself could go on
  kRow,      // any position will do: the model has token rows only
  kWindow,   // window rows happened to be kept there
  kSystem,   // the end of the system prompt
  kUser,     // where a later message of the user begins
  kBetween,  // in the middle of a long prompt
  kTurn,     // a prompt's or an answer's end
};
std::string_view BoundaryKindName(BoundaryKind kind);

// Of more computed tokens than this, where somebody could have expected a reuse, it is told why.
inline constexpr std::uint32_t kExplainedMissTokens = 1000;

// One lookup, emitted once, when the engine has fixed how many tokens it reuses.
// sum(hit_tokens) + sum(miss_tokens) == prompt_tokens.
struct LookupRecord {
  std::int64_t unix_ms = 0;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t matched_tokens = 0;   // longest common prefix with anything parked or in the slot
  std::uint32_t usable_tokens = 0;    // deepest position at or below it that could be restored
  std::uint32_t reused_tokens = 0;    // what the engine really reused
  std::uint32_t boundary_tokens = 0;  // position of the boundary that was gone back to
  BoundaryKind boundary_kind = BoundaryKind::kNone;
  ConversationId conversation;  // zero: none
  LookupOutcome outcome = LookupOutcome::kMiss;
  std::array<std::uint32_t, kSources> hit_tokens{};
  std::array<std::uint32_t, kMissReasons> miss_tokens{};
  std::vector<Source> stage_sources;   // lowest source used, by stage; empty: nothing restored
  std::uint32_t first_difference = 0;  // token position where the best candidate differs
  std::string identity_field;          // first differing field when that is why
  // What a client changes in every request, when that is what differs: "date", "time", "uuid",
  // "random" or "counter". No text of the prompt.
  std::string changed;
  std::optional<Source> failed_tier;   // whose copy was damaged or did not come
  std::string detail;                  // one line for people; no prompt text
  double lookup_seconds = 0;           // index and token comparison
  double restore_seconds = 0;          // plan to last row imported
  std::uint64_t restored_bytes = 0;
  // What loading all that matched was expected to take, and reading it instead, from measured
  // speeds; 0: not known.
  double expected_load_seconds = 0;
  double expected_read_seconds = 0;
};

struct ParkEvent {
  ParkKey key;               // the same again where a park in the queue took over a later one
  std::uint32_t tokens = 0;  // new token rows
  std::uint64_t payload_bytes = 0;
  double capture_seconds = 0;  // on the serving thread
};

enum class SkipReason { kTooShort, kQueueFull, kNoSpace, kTooLarge, kUnsupported };
inline constexpr int kSkipReasons = 5;
std::string_view SkipReasonName(SkipReason reason);

enum class EvictReason { kBudget, kSlots, kMinFree, kTtl, kManual, kCorrupt, kSuperseded };
inline constexpr int kEvictReasons = 7;
std::string_view EvictReasonName(EvictReason reason);

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Every method has an empty default, so that a listener takes what it wants.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnLookup(const LookupRecord& record) { (void)record; }
  virtual void OnPark(const ParkEvent& event) { (void)event; }
  virtual void OnSpill(TierKind tier, std::uint64_t bytes, double seconds) {
    (void)tier, (void)bytes, (void)seconds;
  }
  // One restore from `tier`, `bytes` of it, wall time from the first read to the last import.
  virtual void OnRestore(TierKind tier, std::uint64_t bytes, double seconds) {
    (void)tier, (void)bytes, (void)seconds;
  }
  virtual void OnStageRestored(std::uint16_t stage, std::uint64_t bytes) {
    (void)stage, (void)bytes;
  }
  virtual void OnStageLimited(std::uint16_t stage) { (void)stage; }
  virtual void OnSkippedPark(SkipReason reason, std::uint32_t tokens) {
    (void)reason, (void)tokens;
  }
  virtual void OnEvict(TierKind tier, EvictReason reason, std::uint64_t bytes) {
    (void)tier, (void)reason, (void)bytes;
  }
  virtual void OnCorrupt(TierKind tier) { (void)tier; }
  // `what` begins with the operation that failed (read, write, remove or catalogue) and a colon.
  virtual void OnTierError(TierKind tier, std::string_view what) { (void)tier, (void)what; }
  virtual void Log(LogLevel level, std::string_view line) { (void)level, (void)line; }
};

}  // namespace parkade
