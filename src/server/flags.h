// The flags that parkade-server has on top of llama-server's own: one table, read from the command
// line and from a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parkade/options.h"

namespace parkade {

enum class FlagKind {
  kInteger,  // whole number from `least` to `most`
  kGib,      // number from `least` to `most`, fractions allowed, or "auto"
  kCodec,    // auto, none, lz4 or zstd
  kPath,     // not empty; "off" where that is the default
  kAddress,  // as kPath, and never shown in a message: it may hold a password
};

// One flag. The same name is the key in a configuration file.
struct FlagSpec {
  std::string_view name;          // without the leading dashes
  std::string_view value_name;    // as help shows it
  std::string_view unit;          // empty: none
  std::string_view default_text;  // what one would write to get the default; empty: no default
  FlagKind kind;
  double least;  // bounds of numbers, both included
  double most;
  bool in_file;  // may stand in a configuration file
  std::string_view help;
};

// In the order of the help text. Lives as long as the program.
absl::Span<const FlagSpec> FlagTable();

// What the disk tier is opened with; main hands it on field by field.
struct DiskFlags {
  std::string directory;           // empty: no disk tier
  std::uint64_t budget_bytes = 0;  // 0: auto
  std::uint64_t min_free_bytes = 4096ull << 20;
  CodecChoice codec = CodecChoice::kAuto;
  std::string key_file;  // empty: nothing is encrypted
};

// The same for the remote tier.
struct RemoteFlags {
  std::string address;  // as it was given; empty: no remote tier
  std::int64_t ttl_s = 604800;
  std::int64_t deadline_ms = 500;
};

struct ParsedFlags {
  // In force now: command line before file before default.
  CacheOptions cache;
  DiskFlags disk;
  RemoteFlags remote;
  // The command line without our flags and without --cache-ram; rest[0] is the program's name.
  std::vector<std::string> rest;
  // One of our flags was given, on the command line or in a file (--cache-ram is not ours). Then a
  // cache that can't work is an error and not a warning.
  bool any_given = false;
  // -h, --help or --usage is among `rest`.
  bool help_wanted = false;
  // For people, one line each, no line end: what was read as something else or has no effect.
  std::vector<std::string> notices;
};

// Takes our flags out of a command line: `--flag value` and `--flag=value`, '_' for '-' as
// llama-server allows, the last one wins. Reads the file that --conversation-cache-config names.
// Everything that is wrong is InvalidArgument with one line that says where and what to write.
// No other side effects; nothing but that file is opened.
absl::StatusOr<ParsedFlags> ParseFlags(int argc, const char* const* argv);

// What is in force as the text of a configuration file. InvalidArgument: the directory's name can't
// stand in one.
absl::StatusOr<std::string> FlagsText(const ParsedFlags& flags);
// The other way, for a process that a router has started: only `text` counts. What the command line
// says of --cache-ram is the router's own and is taken out. Errors name the text `name`.
absl::StatusOr<ParsedFlags> ParseFlagsText(int argc, const char* const* argv, std::string_view text,
                                           const std::string& name);

// The help text of our flags, lines of at most 100 columns, ending in a line end.
std::string FlagsHelp();

}  // namespace parkade
