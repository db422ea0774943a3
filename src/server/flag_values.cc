#include "src/server/flag_values.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "src/server/user_file.h"

namespace parkade {
namespace {

constexpr std::size_t kMostFileBytes = 1 << 20;

// Debian's Abseil has a string_view of its own.
absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\v\f";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Shows a text in an error line: control characters replaced, not too long.
std::string Quoted(std::string_view text) {
  constexpr std::size_t kMostShown = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kMostShown)) {
    out.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c);
  }
  return out.append(text.size() > kMostShown ? "...'" : "'");
}

std::string Bound(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.10g", value);
  return text;
}

absl::Status Wrong(std::string_view where, std::string_view text, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(View(where), ": ", Quoted(text), " is not ", View(expected)));
}

std::string Expected(const FlagSpec& flag) {
  const bool whole = flag.kind == FlagKind::kInteger;
  std::string out = whole ? "a whole number" : "'auto' or a number";
  if (!flag.unit.empty()) out.append(" of ").append(flag.unit);
  return out.append(" from ").append(Bound(flag.least)).append(" to ").append(Bound(flag.most));
}

absl::StatusOr<FlagValue> ParsePath(const FlagSpec& flag, std::string_view text,
                                    std::string_view where) {
  FlagValue value;
  if (text.empty()) return absl::InvalidArgumentError(absl::StrCat(View(where), ": needs a path"));
  if (text.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(View(where), ": a path has no NUL bytes"));
  }
  if (text == "~" || text.substr(0, 2) == "~/") {
    return absl::InvalidArgumentError(absl::StrCat(View(where), ": nothing expands the ~ in ",
                                                   Quoted(text), "; write the whole path"));
  }
  if (text != flag.default_text) value.path = std::string(text);
  return value;
}

absl::StatusOr<FlagValue> ParseAddress(const FlagSpec& flag, std::string_view text,
                                       std::string_view where) {
  FlagValue value;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) > 0x20 && c != 0x7f) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(View(where), ": an address has no blanks or control characters"));
  }
  if (text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(View(where), ": needs an address"));
  }
  if (text != flag.default_text) value.path = std::string(text);
  return value;
}

absl::StatusOr<FlagValue> ParseCodec(std::string_view text, std::string_view where) {
  FlagValue value;
  if (text == "auto") {
    value.codec = CodecChoice::kAuto;
  } else if (text == "none") {
    value.codec = CodecChoice::kNone;
  } else if (text == "lz4") {
    value.codec = CodecChoice::kLz4;
  } else if (text == "zstd") {
    value.codec = CodecChoice::kZstd;
  } else {
    return Wrong(where, text, "one of auto, none, lz4, zstd");
  }
  return value;
}

absl::StatusOr<FlagValue> ParseGib(const FlagSpec& flag, std::string_view text,
                                   std::string_view where) {
  FlagValue value;
  if (text == "auto") return value;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value.gib, std::chars_format::fixed);
  if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(value.gib) ||
      value.gib < flag.least || value.gib > flag.most) {
    return Wrong(where, text, Expected(flag));
  }
  return value;
}

class FlagFile {
 public:
  explicit FlagFile(const std::string& path) : path_(path) {}

  absl::Status AddLine(std::string_view line) {
    ++line_number_;
    line = Trim(line);
    if (line.empty() || line.front() == '#') return absl::OkStatus();
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return Error("expected 'key = value'; a comment begins with '#'");
    }
    const std::string_view key = Trim(line.substr(0, equals));
    if (key.substr(0, 1) == "-") {
      return Error(absl::StrCat("write the key ", Quoted(key), " without the leading dashes"));
    }
    const FlagSpec* flag = FindFlag(key);
    if (flag == nullptr || !flag->in_file) {
      return Error(absl::StrCat("unknown key ", Quoted(key), "; ",
                                "'parkade-server --help' lists the keys (without the dashes)"));
    }
    const auto [first, inserted] = lines_.emplace(flag->name, line_number_);
    if (!inserted) {
      return Error(absl::StrCat("key ", Quoted(key), " was already set on line ", first->second,
                                "; remove one of the two"));
    }
    absl::StatusOr<FlagValue> value =
        ParseFlagValue(*flag, Trim(line.substr(equals + 1)),
                       absl::StrCat(path_, ":", line_number_, ": ", View(flag->name)));
    if (!value.ok()) return value.status();
    values_.emplace(flag->name, *std::move(value));
    return absl::OkStatus();
  }

  FlagValues Take() { return std::move(values_); }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ":", line_number_, ": ", what));
  }

  const std::string path_;
  int line_number_ = 0;
  std::map<std::string_view, int> lines_;
  FlagValues values_;
};

}  // namespace

absl::StatusOr<FlagValue> ParseFlagValue(const FlagSpec& flag, std::string_view text,
                                         std::string_view where) {
  switch (flag.kind) {
    case FlagKind::kPath:
      return ParsePath(flag, text, where);
    case FlagKind::kAddress:
      return ParseAddress(flag, text, where);
    case FlagKind::kCodec:
      return ParseCodec(text, where);
    case FlagKind::kGib:
      return ParseGib(flag, text, where);
    case FlagKind::kInteger:
      break;
  }
  FlagValue value;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value.integer);
  if (parsed.ec != std::errc() || parsed.ptr != end ||
      static_cast<double>(value.integer) < flag.least ||
      static_cast<double>(value.integer) > flag.most) {
    return Wrong(where, text, Expected(flag));
  }
  return value;
}

absl::StatusOr<FlagValues> ParseFlagText(const std::string& name, std::string_view text) {
  FlagFile parsed(name);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (absl::Status status = parsed.AddLine(text.substr(0, end)); !status.ok()) return status;
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return parsed.Take();
}

absl::StatusOr<FlagValues> ReadFlagFile(const std::string& path) {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--conversation-cache-config: ", what));
  };
  const absl::StatusOr<UserFile> file = ReadUserFile(path, kMostFileBytes);
  if (absl::IsInvalidArgument(file.status())) {
    return error(absl::StrCat(Quoted(path), " ", file.status().message()));
  }
  if (!file.ok()) {
    return error(absl::StrCat("can't read ", Quoted(path), "; name a file that exists"));
  }
  if (file->content.size() > kMostFileBytes) {
    return error(absl::StrCat(Quoted(path), " is larger than 1 MiB; not a configuration"));
  }
  return ParseFlagText(path, file->content);
}

}  // namespace parkade
