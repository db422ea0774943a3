#include "src/cli/lookup_why.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/cli/help_text.h"
#include "src/cli/tables.h"
#include "src/server/changed_stamp.h"

namespace parkade {
namespace {

std::string Count(const CliJson& lookup, const char* key) {
  return FormatCount(NumberField(lookup, key));
}

bool Has(const CliJson& lookup, const char* key) {
  return lookup.contains(key) && !lookup.at(key).is_null();
}

// " (what the tier said)"
std::string Detail(const CliJson& lookup) {
  return Has(lookup, "detail") ? absl::StrCat(" (", TextField(lookup, "detail"), ")") : "";
}

std::string FailedTier(const CliJson& lookup) {
  return Has(lookup, "failed_tier")
             ? absl::StrCat("what the ", TextField(lookup, "failed_tier"), " tier holds of it")
             : "what is stored of it";
}

std::string BoundaryWords(const std::string& kind) {
  static const auto& words = *new std::map<std::string, std::string>{
      {"slot", "as far as the slot itself could go on"},
      {"row", "the last token that matches"},
      {"window", "where window rows were kept"},
      {"system", "the end of the system prompt"},
      {"user", "where a message of the user begins"},
      {"between", "a point kept in the middle of a long prompt"},
      {"turn", "the end of a prompt or an answer"}};
  const auto found = words.find(kind);
  return found == words.end() ? kind : found->second;
}

// Empty: no stamp that changes was recognised.
std::string StampWords(const CliJson& lookup) {
  const std::string changed = Has(lookup, "changed") ? TextField(lookup, "changed") : "";
  return std::string(ChangedStampWords(changed));
}

constexpr absl::string_view kStampHelp =
    "Only what stands before it can be reused: it belongs at the end of the prompt, or out of it.";

std::string Cold(const CliJson& lookup) {
  const std::string words = StampWords(lookup);
  const absl::string_view cold = "no conversation that is kept begins like this prompt.";
  if (words.empty()) return std::string(cold);
  return absl::StrCat(cold, " An earlier one differs from it at token ",
                      Count(lookup, "first_difference"), " (", words, "). ", kStampHelp);
}

std::string Diverged(const CliJson& lookup) {
  const std::string words = StampWords(lookup);
  return absl::StrCat(
      "the prompt differs from what is kept at token ",
      Has(lookup, "first_difference") ? Count(lookup, "first_difference")
                                      : Count(lookup, "matched_tokens"),
      words.empty() ? "" : absl::StrCat(" (", words, ")"), ". ",
      words.empty() ? "Another text behind a common beginning is as it should be; a client that "
                      "rewrites what it sent before is not."
                    : kStampHelp);
}

std::string Checkpoint(const CliJson& lookup) {
  const std::string begin =
      absl::StrCat("this model goes on only where its state was kept. The match ends at token ",
                   Count(lookup, "matched_tokens"));
  return NumberField(lookup, "usable_tokens") > 0
             ? absl::StrCat(begin, ", the nearest state at or below it is that of token ",
                            Count(lookup, "usable_tokens"), ".")
             : absl::StrCat(begin, ", and no state is kept below it.");
}

// Why tokens of this reason were computed.
std::string Sentence(const CliJson& lookup, const std::string& reason) {
  if (reason == "new") {
    return "they follow everything that was kept; the last token is always computed.";
  }
  if (reason == "cold") return Cold(lookup);
  if (reason == "diverged") return Diverged(lookup);
  if (reason == "identity") {
    return absl::StrCat("the same text is kept under another identity: '",
                        TextField(lookup, "identity_field"),
                        "' differs. What was computed with another value can't be used.");
  }
  if (reason == "evicted") {
    return absl::StrCat("what follows token ", Count(lookup, "matched_tokens"),
                        " was kept and then evicted. A larger budget keeps more (parkade "
                        "budgets); parkade ls --by rank shows what goes next.");
  }
  if (reason == "corrupt") {
    return absl::StrCat(FailedTier(lookup), " was damaged", Detail(lookup),
                        "; it was taken out and is stored anew. parkade verify checks the rest, "
                        "with the server stopped.");
  }
  if (reason == "incomplete" || reason == "remote") {
    return absl::StrCat(FailedTier(lookup), " could not be used, or not in time", Detail(lookup),
                        ".");
  }
  if (reason == "checkpoint") return Checkpoint(lookup);
  if (reason == "too_short") {
    return "the slot held nearly as much: a restore would have gained too little.";
  }
  if (reason == "unsupported") {
    return absl::StrCat("what follows token ", Count(lookup, "matched_tokens"),
                        " can't be kept (a video, or media of a few tokens).");
  }
  if (reason == "disabled") {
    return "nothing was looked up: the request said cache_prompt false, or the model's weights "
           "were not known yet.";
  }
  return absl::StrCat("the server says no more than '", reason, "'.");
}

std::string Head(const CliJson& lookup, const CliView& view) {
  std::string out = absl::StrCat(FormatAge(view.now_unix_seconds - NumberField(lookup, "time")),
                                 ": ", Count(lookup, "reused_tokens"), " of ",
                                 Count(lookup, "prompt_tokens"), " prompt tokens reused");
  std::string sources;
  for (const auto& [tier, tokens] : lookup.at("hit_tokens").items()) {
    absl::StrAppend(&sources, sources.empty() ? " (" : ", ", tier, " ",
                    FormatCount(tokens.get<double>()));
  }
  absl::StrAppend(&out, sources, sources.empty() ? "" : ")");
  if (Has(lookup, "boundary")) {
    const CliJson& boundary = lookup.at("boundary");
    absl::StrAppend(&out, ", up to token ", Count(boundary, "position"), ", ",
                    BoundaryWords(TextField(boundary, "kind")));
  }
  absl::StrAppend(&out, ", in ", FormatSeconds(NumberField(lookup, "seconds")));
  if (Has(lookup, "conversation")) {
    absl::StrAppend(&out, ", conversation ", TextField(lookup, "conversation"));
  }
  return out + ".";
}

}  // namespace

std::string LookupText(const CliJson& lookup, const CliView& view) {
  std::vector<std::pair<double, std::string>> reasons;
  for (const auto& [reason, tokens] : lookup.at("miss_tokens").items()) {
    reasons.emplace_back(tokens.get<double>(), reason);
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string out = CliParagraph(PrintableText(Head(lookup, view)), "", view.columns);
  for (const auto& [tokens, reason] : reasons) {
    const std::string line =
        absl::StrCat(FormatCount(tokens), " computed, ", reason, ": ", Sentence(lookup, reason));
    out.append(CliParagraph(PrintableText(line), "  ", view.columns));
  }
  return out;
}

}  // namespace parkade
