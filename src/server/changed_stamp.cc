#include "src/server/changed_stamp.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"

namespace parkade {
namespace {

// One side: its text in lower case, and where it begins to differ from the other.
struct Side {
  std::string text;
  std::size_t at = 0;
};

struct Run {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsLetter(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)); }
bool IsHex(char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); }
bool IsWord(char c) { return IsDigit(c) || IsLetter(c); }
bool IsToken(char c) { return IsWord(c) || c == '-' || c == '_'; }

// The run of characters of a kind that touches the difference; empty when there is none.
template <typename Kind>
Run RunAround(const Side& side, Kind kind) {
  Run run{side.at, side.at};
  while (run.begin > 0 && kind(side.text[run.begin - 1])) --run.begin;
  while (run.end < side.text.size() && kind(side.text[run.end])) ++run.end;
  return run;
}

std::string_view Text(const Side& side, const Run& run) {
  return std::string_view(side.text).substr(run.begin, run.size());
}

// Digits stand for themselves, 'd' for any digit, 'x' for a hexadecimal one; the rest is literal.
bool Fits(std::string_view text, std::string_view pattern) {
  if (text.size() < pattern.size()) return false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool fits = pattern[i] == 'd'   ? IsDigit(text[i])
                      : pattern[i] == 'x' ? IsHex(text[i])
                                          : text[i] == pattern[i];
    if (!fits) return false;
  }
  return true;
}

// The pattern stands across the difference (or ends just before it) and is no part of a longer run
// of its own characters.
template <typename Kind>
bool Covers(const Side& side, std::string_view pattern, Kind part) {
  const std::size_t first = side.at > pattern.size() ? side.at - pattern.size() : 0;
  for (std::size_t begin = first; begin <= side.at; ++begin) {
    if (!Fits(std::string_view(side.text).substr(begin), pattern)) continue;
    const std::size_t end = begin + pattern.size();
    if (end < side.at) continue;
    const bool open_left = begin == 0 || !part(side.text[begin - 1]);
    const bool open_right = end == side.text.size() || !part(side.text[end]);
    if (open_left && open_right) return true;
  }
  return false;
}

bool IsUuid(const Side& side) {
  auto part = [](char c) { return IsHex(c) || c == '-'; };
  return Covers(side, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", part);
}

// "12:34", "9:05:07" and what hangs on: fractions of a second differ most of all.
bool IsClock(const Side& side) {
  auto part = [](char c) { return IsDigit(c) || c == ':' || c == '.' || c == ','; };
  Run run = RunAround(side, part);
  std::string_view text = Text(side, run);
  while (!text.empty() && !IsDigit(text.back())) text.remove_suffix(1);
  while (!text.empty() && !IsDigit(text.front())) text.remove_prefix(1);
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon > 2) return false;
  return Fits(text.substr(colon), ":dd") && (colon + 3 == text.size() || !IsDigit(text[colon + 3]));
}

// "03 pm", "9:41 am": the half of the day differs.
bool IsHalfOfDay(const Side& side) {
  const Run run = RunAround(side, IsLetter);
  const std::string_view word = Text(side, run);
  std::size_t end = run.begin;
  while (end > 0 && side.text[end - 1] == ' ') --end;
  return (word == "am" || word == "pm") && end > 0 && IsDigit(side.text[end - 1]);
}

// Seconds or smaller parts of them since 1970, in our century's digits.
bool IsUnixTime(const Side& side) {
  const Run run = RunAround(side, IsDigit);
  const std::size_t digits = run.size();
  const bool usual = digits == 10 || digits == 13 || digits == 16 || digits == 19;
  return usual && side.text[run.begin] >= '1' && side.text[run.begin] <= '3';
}

bool IsNumericDate(const Side& side) {
  auto part = [](char c) { return IsDigit(c) || c == '-' || c == '/' || c == '.'; };
  std::string_view text = Text(side, RunAround(side, part));
  while (!text.empty() && !IsDigit(text.back())) text.remove_suffix(1);
  const std::size_t first = text.find_first_of("-/.");
  if (first == std::string_view::npos) return false;
  const char separator = text[first];
  const std::size_t second = text.find(separator, first + 1);
  if (second == std::string_view::npos) return false;
  const std::array<std::size_t, 3> parts = {first, second - first - 1, text.size() - second - 1};
  const std::string_view digits_between[] = {
      text.substr(0, first), text.substr(first + 1, parts[1]), text.substr(second + 1)};
  for (const std::string_view digits : digits_between) {
    if (digits.empty() || !std::all_of(digits.begin(), digits.end(), IsDigit)) return false;
  }
  const bool year_first = parts[0] == 4 && parts[1] <= 2 && parts[2] <= 2;
  const bool year_last = parts[0] <= 2 && parts[1] <= 2 && (parts[2] == 4 || parts[2] == 2);
  return year_first || (year_last && separator != '.') || (year_last && parts[2] == 4);
}

bool IsCalendarWord(std::string_view word) {
  static constexpr std::string_view kNames[] = {
      "january",   "february",  "march",   "april",    "may",      "june",   "july",
      "august",    "september", "october", "november", "december", "monday", "tuesday",
      "wednesday", "thursday",  "friday",  "saturday", "sunday"};
  for (const std::string_view name : kNames) {
    if (word == name || (word.size() >= 3 && word.size() <= 4 && name.starts_with(word))) {
      return true;
    }
  }
  return false;
}

bool IsYear(std::string_view digits) {
  return digits.size() == 4 && (digits.starts_with("19") || digits.starts_with("20"));
}

struct DatePart {
  bool name = false;
  bool number = false;
};

// A month, a weekday, a day ("3", "3rd") or a year.
DatePart DatePartOf(std::string_view word) {
  for (const std::string_view ordinal : {"st", "nd", "rd", "th"}) {
    if (word.size() > 2 && IsDigit(word[0]) && word.ends_with(ordinal)) word.remove_suffix(2);
  }
  if (word.empty()) return {};
  if (!std::all_of(word.begin(), word.end(), IsDigit)) return {IsCalendarWord(word), false};
  return {false, word.size() <= 2 || IsYear(word)};
}

// "Monday, November 30, 2026", "30 Nov 2026": words that are parts of dates, one after the other,
// at least a name and a number, and the difference lies in one of them.
bool IsWrittenDate(const Side& side) {
  auto gap = [](char c) { return c == ' ' || c == ',' || c == '.'; };
  Run word = RunAround(side, IsWord);
  DatePart all = DatePartOf(Text(side, word));
  if (!all.name && !all.number) return false;
  auto take = [&](const Run& next) {
    const DatePart part = DatePartOf(Text(side, next));
    all.name = all.name || part.name;
    all.number = all.number || part.number;
    return part.name || part.number;
  };
  const std::string& text = side.text;
  for (Run next{word.begin, word.begin}; next.begin > 0;) {
    while (next.begin > 0 && gap(text[next.begin - 1])) --next.begin;
    next.end = next.begin;
    while (next.begin > 0 && IsWord(text[next.begin - 1])) --next.begin;
    if (!take(next)) break;
  }
  for (Run next{word.end, word.end}; next.end < text.size();) {
    while (next.end < text.size() && gap(text[next.end])) ++next.end;
    next.begin = next.end;
    while (next.end < text.size() && IsWord(text[next.end])) ++next.end;
    if (!take(next)) break;
  }
  return all.name && all.number;
}

// What stands in the same line before the difference, and the word after it.
bool Labelled(const Side& side, std::initializer_list<std::string_view> labels) {
  constexpr std::size_t kReach = 40;
  const std::size_t begin = side.at > kReach ? side.at - kReach : 0;
  std::string_view near = std::string_view(side.text).substr(begin, side.at - begin + kReach);
  std::size_t here = side.at - begin;
  const std::size_t line = near.substr(0, here).rfind('\n');
  if (line != std::string_view::npos) {
    near.remove_prefix(line + 1);
    here -= line + 1;
  }
  near = near.substr(0, near.find('\n', here));
  return std::any_of(labels.begin(), labels.end(), [near](std::string_view label) {
    return near.find(label) != std::string_view::npos;
  });
}

// "cch=a1b2c;", "nonce: 8f14e45f", and long ones without a name: letters and digits mixed as no
// word does.
bool IsRandom(const Side& side) {
  const std::string_view text = Text(side, RunAround(side, IsToken));
  const auto digits = std::count_if(text.begin(), text.end(), IsDigit);
  const auto letters = std::count_if(text.begin(), text.end(), IsLetter);
  if (text.size() < 4 || digits + letters < 4) return false;
  const bool named = Labelled(side, {"cch=", "nonce", "request-id", "request_id", "requestid",
                                     "request id", "trace", "session_id", "session-id",
                                     "salt=", "hash=", "signature", "seed=", "_id=", "billing"});
  if (named) return digits > 0 || text.size() >= 8;
  const bool hex = std::all_of(text.begin(), text.end(),
                               [](char c) { return IsHex(c) || c == '-' || c == '_'; });
  return digits >= 2 && letters >= 2 && text.size() >= (hex ? 8u : 12u);
}

bool IsCounter(const Side& side) {
  auto part = [](char c) { return IsDigit(c) || c == ',' || c == '.'; };
  const std::string_view text = Text(side, RunAround(side, part));
  const auto digits = std::count_if(text.begin(), text.end(), IsDigit);
  if (digits == 0 || digits > 9) return false;
  return Labelled(side,
                  {"token", "left", "remain", "used", "usage", "budget", "turn", "step", "count",
                   "attempt", "iteration", "request #", "message #", "elapsed", "quota", "uptime"});
}

std::string Lower(std::string_view text) {
  std::string out(text);
  absl::AsciiStrToLower(&out);
  return out;
}

Side MakeSide(std::string_view before, std::string_view after, std::size_t same) {
  before = before.substr(before.size() - std::min(before.size(), kStampWindowBytes));
  Side side;
  side.text = Lower(before);
  side.at = side.text.size() + same;
  side.text += Lower(after.substr(0, kStampWindowBytes));
  return side;
}

}  // namespace

std::string_view ChangedStampName(ChangedStamp stamp) {
  switch (stamp) {
    case ChangedStamp::kNone:
      return "";
    case ChangedStamp::kDate:
      return "date";
    case ChangedStamp::kTime:
      return "time";
    case ChangedStamp::kUuid:
      return "uuid";
    case ChangedStamp::kRandom:
      return "random";
    case ChangedStamp::kCounter:
      return "counter";
  }
  return "";
}

std::string_view ChangedStampWords(std::string_view name) {
  if (name == "date") return "a date, which changes every day";
  if (name == "time") return "a clock time that changes in every request";
  if (name == "uuid") return "an id that changes in every request";
  if (name == "random") return "a random value that changes in every request";
  if (name == "counter") return "a counter that changes in every request";
  return "";
}

ChangedStamp ClassifyChange(std::string_view before, std::string_view stored,
                            std::string_view wanted) {
  stored = stored.substr(0, kStampWindowBytes);
  wanted = wanted.substr(0, kStampWindowBytes);
  const std::size_t most = std::min(stored.size(), wanted.size());
  std::size_t same = 0;
  while (same < most && stored[same] == wanted[same]) ++same;
  if (same == stored.size() && same == wanted.size()) return ChangedStamp::kNone;
  const Side a = MakeSide(before, stored, same);
  const Side b = MakeSide(before, wanted, same);
  // The most telling first: a UUID holds runs that look random, a random value may look like a
  // number.
  using Test = bool (*)(const Side&);
  static constexpr std::pair<Test, ChangedStamp> kTests[] = {
      {IsUuid, ChangedStamp::kUuid},        {IsClock, ChangedStamp::kTime},
      {IsHalfOfDay, ChangedStamp::kTime},   {IsNumericDate, ChangedStamp::kDate},
      {IsWrittenDate, ChangedStamp::kDate}, {IsUnixTime, ChangedStamp::kTime},
      {IsRandom, ChangedStamp::kRandom},    {IsCounter, ChangedStamp::kCounter}};
  for (const auto& [test, stamp] : kTests) {
    if (test(a) && test(b)) return stamp;
  }
  return ChangedStamp::kNone;
}

}  // namespace parkade
