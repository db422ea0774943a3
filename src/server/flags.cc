#include "src/server/flags.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/server/flag_values.h"

namespace parkade {
namespace {

constexpr std::uint64_t kMib = 1ull << 20;
constexpr double kGib = 1ull << 30;
constexpr std::uint64_t kDefaultMibWithDisk = 1024;
constexpr std::string_view kOurPrefix = "conversation-cache-";

std::uint64_t Bytes(std::int64_t mib) { return static_cast<std::uint64_t>(mib) * kMib; }

struct CommandLine {
  FlagValues values;
  std::optional<std::int64_t> cache_ram_mib;
};

// An argument cut into the flag it names and, after '=', its value.
struct FlagArgument {
  std::string name;  // without dashes, '_' as '-'; empty: not a long flag
  std::optional<std::string> value;
};

FlagArgument SplitArgument(std::string_view argument) {
  FlagArgument out;
  if (argument == "-cram") {
    out.name = "cache-ram";
    return out;
  }
  if (argument.substr(0, 2) != "--") return out;
  const std::size_t equals = argument.find('=');
  out.name =
      std::string(argument.substr(2, equals == std::string_view::npos ? equals : equals - 2));
  std::replace(out.name.begin(), out.name.end(), '_', '-');
  if (equals != std::string_view::npos) out.value = std::string(argument.substr(equals + 1));
  return out;
}

bool IsOurs(std::string_view name) {
  return name == "cache-ram" || name == "conversation-cache" ||
         name.substr(0, kOurPrefix.size()) == kOurPrefix;
}

absl::Status ReadCacheRam(std::string_view text, CommandLine* line) {
  FlagSpec as_ours = *FindFlag("conversation-cache-mib");
  as_ours.least = -1;
  absl::StatusOr<FlagValue> value = ParseFlagValue(as_ours, text, "--cache-ram");
  if (!value.ok()) return value.status();
  line->cache_ram_mib = value->integer;
  return absl::OkStatus();
}

absl::Status ReadFlag(const FlagArgument& argument, const std::string& value, CommandLine* line) {
  if (argument.name == "cache-ram") return ReadCacheRam(value, line);
  const FlagSpec* flag = FindFlag(argument.name);
  absl::StatusOr<FlagValue> parsed =
      ParseFlagValue(*flag, value, absl::StrCat("--", argument.name));
  if (!parsed.ok()) return parsed.status();
  line->values.insert_or_assign(flag->name, *std::move(parsed));
  return absl::OkStatus();
}

absl::StatusOr<CommandLine> TakeOurs(int argc, const char* const* argv, ParsedFlags* flags) {
  CommandLine line;
  for (int i = 0; i < argc; ++i) {
    FlagArgument argument = SplitArgument(argv[i]);
    if (i == 0 || !IsOurs(argument.name)) {
      flags->rest.emplace_back(argv[i]);
      const std::string& last = flags->rest.back();
      if (last == "-h" || last == "--help" || last == "--usage") flags->help_wanted = true;
      continue;
    }
    if (argument.name != "cache-ram" && FindFlag(argument.name) == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", argument.name, ": unknown flag; 'parkade-server --help' lists the flags"));
    }
    if (!argument.value.has_value()) {
      if (i + 1 >= argc || std::string_view(argv[i + 1]).substr(0, 2) == "--") {
        return absl::InvalidArgumentError(absl::StrCat("--", argument.name, ": needs a value"));
      }
      argument.value = argv[++i];
    }
    if (absl::Status read = ReadFlag(argument, *argument.value, &line); !read.ok()) return read;
  }
  return line;
}

const char* CodecText(CodecChoice codec) {
  switch (codec) {
    case CodecChoice::kNone:
      return "none";
    case CodecChoice::kLz4:
      return "lz4";
    case CodecChoice::kZstd:
      return "zstd";
    case CodecChoice::kAuto:
      break;
  }
  return "auto";
}

// The whole meaning of the flags; `values` holds those that were given.
void Apply(const FlagValues& values, ParsedFlags* flags) {
  for (const auto& [name, value] : values) {
    if (name == "conversation-cache-mib") {
      flags->cache.ram_budget_bytes = Bytes(value.integer);
    } else if (name == "conversation-cache-slots") {
      flags->cache.ram_slots = static_cast<std::uint32_t>(value.integer);
    } else if (name == "conversation-cache-min-free-mib") {
      flags->cache.ram_min_free_bytes = Bytes(value.integer);
    } else if (name == "conversation-cache-disk") {
      flags->disk.directory = value.path;
    } else if (name == "conversation-cache-disk-gib") {
      // Up: what FlagsText makes of it must not be less than the least that is allowed.
      flags->disk.budget_bytes = static_cast<std::uint64_t>(std::ceil(value.gib * kGib));
    } else if (name == "conversation-cache-disk-min-free-mib") {
      flags->disk.min_free_bytes = Bytes(value.integer);
    } else if (name == "conversation-cache-min-tokens") {
      flags->cache.min_tokens = static_cast<std::uint32_t>(value.integer);
    } else if (name == "conversation-cache-codec") {
      flags->disk.codec = value.codec;
    } else if (name == "conversation-cache-key-file") {
      flags->disk.key_file = value.path;
    } else if (name == "conversation-cache-remote") {
      flags->remote.address = value.path;
    } else if (name == "conversation-cache-remote-ttl-s") {
      flags->remote.ttl_s = value.integer;
    } else if (name == "conversation-cache-remote-deadline-ms") {
      flags->remote.deadline_ms = value.integer;
    }
  }
}

void ApplyCacheRam(const CommandLine& line, bool ours_given, ParsedFlags* flags) {
  if (!line.cache_ram_mib.has_value()) return;
  const std::int64_t mib = *line.cache_ram_mib;
  if (ours_given) {
    flags->notices.push_back(absl::StrCat("--cache-ram ", mib,
                                          " has no effect: --conversation-cache-mib ",
                                          flags->cache.ram_budget_bytes / kMib, " is given"));
    return;
  }
  if (mib < 0) {
    const double most_mib = FindFlag("conversation-cache-mib")->most;
    flags->cache.ram_budget_bytes = Bytes(static_cast<std::int64_t>(most_mib));
    flags->notices.push_back(
        absl::StrCat("--cache-ram -1: the conversation cache is limited only by the ",
                     flags->cache.ram_min_free_bytes / kMib, " MiB of memory it leaves free"));
    return;
  }
  flags->cache.ram_budget_bytes = Bytes(mib);
  flags->notices.push_back(
      absl::StrCat("--cache-ram ", mib, " is read as --conversation-cache-mib ", mib));
}

// What says something of the remote tier needs one; and that one needs a tier of this machine,
// which holds what is on its way to it.
absl::Status CheckRemoteFlags(const FlagValues& values, ParsedFlags* flags) {
  if (flags->remote.address.empty()) {
    for (const std::string_view name :
         {"conversation-cache-remote-ttl-s", "conversation-cache-remote-deadline-ms"}) {
      if (values.count(name) == 0) continue;
      flags->notices.push_back(absl::StrCat("--", std::string(name),
                                            " has no effect without --conversation-cache-remote"));
    }
    return absl::OkStatus();
  }
  if (flags->cache.ram_budget_bytes > 0 || !flags->disk.directory.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--conversation-cache-remote: needs a RAM or a disk tier beside it; give "
      "--conversation-cache-mib N or --conversation-cache-disk PATH");
}

// What says something of a disk tier needs one. Given as off, it is known to have no effect.
absl::Status CheckDiskFlags(const FlagValues& values, ParsedFlags* flags) {
  if (!flags->disk.directory.empty()) return absl::OkStatus();
  const bool remote = !flags->remote.address.empty();
  const bool off = values.count("conversation-cache-disk") > 0;
  for (const std::string_view name :
       {"conversation-cache-disk-gib", "conversation-cache-disk-min-free-mib",
        "conversation-cache-codec", "conversation-cache-key-file"}) {
    if (values.count(name) == 0) continue;
    const bool preference =
        name == "conversation-cache-codec" || name == "conversation-cache-key-file";
    if (remote && preference) continue;
    // Codec and key are preferences: they may stand in a file that several servers share.
    if (!off && !preference) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", std::string(name),
                       ": there is no disk tier; name its directory with "
                       "--conversation-cache-disk PATH"));
    }
    flags->notices.push_back(absl::StrCat("--", std::string(name),
                                          " has no effect without --conversation-cache-disk",
                                          preference ? " or --conversation-cache-remote" : ""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParsedFlags> ParseFlags(int argc, const char* const* argv) {
  ParsedFlags flags;
  absl::StatusOr<CommandLine> line = TakeOurs(argc, argv, &flags);
  if (!line.ok()) return line.status();
  flags.any_given = !line->values.empty();

  FlagValues values = line->values;
  if (const auto config = values.find("conversation-cache-config"); config != values.end()) {
    absl::StatusOr<FlagValues> from_file = ReadFlagFile(config->second.path);
    if (!from_file.ok()) return from_file.status();
    values.merge(*from_file);
  }
  Apply(values, &flags);
  const bool mib_given = values.count("conversation-cache-mib") > 0;
  if (!mib_given && !flags.disk.directory.empty()) {
    flags.cache.ram_budget_bytes = kDefaultMibWithDisk * kMib;
  }
  ApplyCacheRam(*line, mib_given, &flags);
  if (absl::Status disk = CheckDiskFlags(values, &flags); !disk.ok()) return disk;
  if (absl::Status remote = CheckRemoteFlags(values, &flags); !remote.ok()) return remote;
  return flags;
}

absl::StatusOr<std::string> FlagsText(const ParsedFlags& flags) {
  const std::string& directory = flags.disk.directory;
  const std::string& key_file = flags.disk.key_file;
  for (const auto& [name, path] :
       {std::pair<absl::string_view, const std::string&>("disk", directory),
        {"key-file", key_file},
        {"remote", flags.remote.address}}) {
    const bool blank = !path.empty() && (path.front() == ' ' || path.back() == ' ');
    if (!blank && std::none_of(path.begin(), path.end(), absl::ascii_iscntrl) && path != "off") {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("in router mode --conversation-cache-", name,
                     " takes no path that begins or ends in a blank or holds control characters"));
  }
  char gib[32] = "auto";
  if (flags.disk.budget_bytes > 0) {
    // Exact: a power of two divides, and a double has the digits.
    std::snprintf(gib, sizeof(gib), "%.17g", static_cast<double>(flags.disk.budget_bytes) / kGib);
  }
  std::string text;
  absl::StrAppend(&text, "conversation-cache-mib = ", flags.cache.ram_budget_bytes / kMib, "\n");
  absl::StrAppend(&text, "conversation-cache-slots = ", flags.cache.ram_slots, "\n");
  absl::StrAppend(
      &text, "conversation-cache-min-free-mib = ", flags.cache.ram_min_free_bytes / kMib, "\n");
  absl::StrAppend(&text, "conversation-cache-disk = ", directory.empty() ? "off" : directory, "\n");
  absl::StrAppend(&text, "conversation-cache-disk-gib = ", gib, "\n");
  absl::StrAppend(
      &text, "conversation-cache-disk-min-free-mib = ", flags.disk.min_free_bytes / kMib, "\n");
  absl::StrAppend(&text, "conversation-cache-min-tokens = ", flags.cache.min_tokens, "\n");
  absl::StrAppend(&text, "conversation-cache-codec = ", CodecText(flags.disk.codec), "\n");
  absl::StrAppend(&text, "conversation-cache-key-file = ", key_file.empty() ? "off" : key_file,
                  "\n");
  const std::string& address = flags.remote.address;
  absl::StrAppend(&text, "conversation-cache-remote = ", address.empty() ? "off" : address, "\n");
  absl::StrAppend(&text, "conversation-cache-remote-ttl-s = ", flags.remote.ttl_s, "\n");
  absl::StrAppend(&text, "conversation-cache-remote-deadline-ms = ", flags.remote.deadline_ms,
                  "\n");
  return text;
}

absl::StatusOr<ParsedFlags> ParseFlagsText(int argc, const char* const* argv, std::string_view text,
                                           const std::string& name) {
  ParsedFlags flags;
  if (absl::StatusOr<CommandLine> line = TakeOurs(argc, argv, &flags); !line.ok()) {
    return line.status();
  }
  absl::StatusOr<FlagValues> values = ParseFlagText(name, text);
  if (!values.ok()) return values.status();
  Apply(*values, &flags);
  return flags;
}

}  // namespace parkade
