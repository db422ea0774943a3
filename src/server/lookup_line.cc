#include "src/server/lookup_line.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "parkade/identity.h"
#include "src/server/changed_stamp.h"

namespace parkade {
namespace {

std::string Milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f ms", seconds * 1e3);
  return text;
}

std::string Mebibytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

// "(ram 4224, disk 10)"; empty when all counts are 0.
template <typename Counts, typename NameOf>
std::string Breakdown(const Counts& counts, NameOf name_of) {
  std::string out;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    absl::StrAppend(&out, out.empty() ? " (" : ", ", std::string(name_of(i)), " ", counts[i]);
  }
  if (!out.empty()) out.push_back(')');
  return out;
}

// Names and details are the users' or another machine's: a log line stays one line.
std::string OneLine(std::string_view text) {
  constexpr std::size_t kMostShown = 200;
  std::string out;
  for (const char c : text.substr(0, kMostShown)) {
    out.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c);
  }
  return out;
}

// 9,310
std::string Grouped(std::uint32_t number) {
  std::string digits = std::to_string(number);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

// Nobody expects the reuse of what was never read before, or of what was asked not to be.
bool Expected(MissReason reason) {
  return reason != MissReason::kNew && reason != MissReason::kCold &&
         reason != MissReason::kDisabled;
}

std::string TierThatFailed(const LookupRecord& record) {
  std::string out = record.failed_tier.has_value()
                        ? absl::StrCat("what the ", std::string(SourceName(*record.failed_tier)),
                                       " tier holds can't be used")
                        : "what is stored can't be used";
  if (!record.detail.empty()) absl::StrAppend(&out, " (", OneLine(record.detail), ")");
  return out;
}

std::string Explanation(const LookupRecord& record, MissReason reason) {
  const std::string matched = Grouped(record.matched_tokens);
  const std::string prompt = Grouped(record.prompt_tokens);
  const std::string words(ChangedStampWords(record.changed));
  switch (reason) {
    case MissReason::kCold:
      return absl::StrCat("the prompt differs from an earlier one at token ",
                          Grouped(record.first_difference), " of ", prompt, " (", words, ")");
    case MissReason::kDiverged:
      return absl::StrCat("the prompt differs at token ", Grouped(record.first_difference), " of ",
                          prompt, words.empty() ? "" : absl::StrCat(" (", words, ")"));
    case MissReason::kIdentity:
      return absl::StrCat("the same text is kept under another identity: '",
                          OneLine(record.identity_field), "' differs");
    case MissReason::kCheckpoint:
      return record.usable_tokens > 0
                 ? absl::StrCat("the match ends at token ", matched, " of ", prompt,
                                ", and the nearest state kept below it is that of token ",
                                Grouped(record.usable_tokens))
                 : absl::StrCat("the match ends at token ", matched, " of ", prompt,
                                ", and no state is kept below it");
    case MissReason::kEvicted:
      return absl::StrCat("what follows token ", matched, " of ", prompt, " was evicted");
    case MissReason::kUnsupported:
      return absl::StrCat("what follows token ", matched, " of ", prompt,
                          " can't be cached (a video, or media of a few tokens)");
    case MissReason::kTooShort:
      return "what is stored is hardly longer than what the slot holds";
    default:
      return absl::StrCat(TierThatFailed(record), ", token ", matched, " of ", prompt);
  }
}

}  // namespace

std::optional<std::string> FormatMissLine(const LookupRecord& record) {
  std::uint32_t again = 0;
  MissReason main = MissReason::kDiverged;
  for (int i = 0; i < kMissReasons; ++i) {
    const auto reason = static_cast<MissReason>(i);
    // Of a first prompt nothing is known; of one that leaves an earlier one early, the stamp is.
    if (!Expected(reason) && (reason != MissReason::kCold || record.changed.empty())) continue;
    again += record.miss_tokens[i];
    if (record.miss_tokens[i] > record.miss_tokens[static_cast<int>(main)]) main = reason;
  }
  if (again <= kExplainedMissTokens) return std::nullopt;
  // Another text after the same beginning may well be new.
  const bool known = main != MissReason::kDiverged || !record.changed.empty();
  return absl::StrCat("miss: ", Explanation(record, main), "; ", Grouped(again), " tokens ",
                      known ? "read again" : "computed");
}

std::optional<MissReason> MainMissReason(const LookupRecord& record) {
  std::optional<MissReason> main;
  for (int i = 0; i < kMissReasons; ++i) {
    const auto reason = static_cast<MissReason>(i);
    if (record.miss_tokens[i] == 0) continue;
    const bool first = !main.has_value() || *main == MissReason::kNew;
    if (first || record.miss_tokens[i] > record.miss_tokens[static_cast<int>(*main)]) {
      main = reason;
    }
  }
  return main;
}

std::string FormatLookupLine(const LookupRecord& record) {
  std::uint32_t computed = 0;
  for (const std::uint32_t tokens : record.miss_tokens) computed += tokens;
  std::string out =
      absl::StrCat("lookup: ", std::string(LookupOutcomeName(record.outcome)), ", ",
                   record.reused_tokens, " of ", record.prompt_tokens, " tokens reused",
                   Breakdown(record.hit_tokens,
                             [](std::size_t i) { return SourceName(static_cast<Source>(i)); }),
                   ", computed ", computed, Breakdown(record.miss_tokens, [](std::size_t i) {
                     return MissReasonName(static_cast<MissReason>(i));
                   }));
  if (!record.conversation.IsZero()) {
    absl::StrAppend(&out, ", conversation ", ToHex(record.conversation));
  }
  if (record.boundary_kind != BoundaryKind::kNone) {
    absl::StrAppend(&out, ", boundary ", record.boundary_tokens, " (",
                    std::string(BoundaryKindName(record.boundary_kind)), ")");
  }
  const std::optional<MissReason> reason = MainMissReason(record);
  if (reason == MissReason::kDiverged) {
    absl::StrAppend(&out, ", differs at token ", record.first_difference);
  }
  if (!record.identity_field.empty()) {
    absl::StrAppend(&out, ", other ", OneLine(record.identity_field));
  }
  absl::StrAppend(&out, ", lookup ", Milliseconds(record.lookup_seconds));
  if (record.restored_bytes > 0 || record.restore_seconds > 0) {
    absl::StrAppend(&out, ", restore ", Milliseconds(record.restore_seconds), " (",
                    Mebibytes(record.restored_bytes), ")");
  }
  if (!record.detail.empty()) absl::StrAppend(&out, "; ", OneLine(record.detail));
  return out;
}

}  // namespace parkade
