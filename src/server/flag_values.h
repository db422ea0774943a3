// Texts of flags and configuration files -> checked values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/options.h"
#include "src/server/flags.h"

namespace parkade {

// A checked value of one flag; which member counts depends on the flag's kind.
struct FlagValue {
  std::int64_t integer = 0;  // kInteger
  double gib = 0;            // kGib; 0: auto
  CodecChoice codec = CodecChoice::kAuto;
  std::string path;  // kPath and kAddress; empty: off
};

using FlagValues = std::map<std::string_view, FlagValue>;  // by FlagSpec::name

// Nullptr: no such flag.
const FlagSpec* FindFlag(std::string_view name);

// `where` begins the error line, e.g. "--conversation-cache-mib" or "FILE:3: conversation-...".
absl::StatusOr<FlagValue> ParseFlagValue(const FlagSpec& flag, std::string_view text,
                                         std::string_view where);

// Lines `key = value`; empty lines and lines that begin with '#' are comments. `name` begins the
// error lines.
absl::StatusOr<FlagValues> ParseFlagText(const std::string& name, std::string_view text);
// The text of a file of at most 1 MiB, which must be a plain one.
absl::StatusOr<FlagValues> ReadFlagFile(const std::string& path);

}  // namespace parkade
