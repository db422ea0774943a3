// Every name in the directory of a disk tier; LAYOUT.md says what stands behind each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace parkade::disk {

inline constexpr std::string_view kLockName = "LOCK";
inline constexpr std::string_view kVersionName = "VERSION";
// Which key the directory is encrypted with; not there: it is not.
inline constexpr std::string_view kKeyName = "KEY";
inline constexpr std::string_view kCatalogueName = "catalogue";
// A catalogue that could not be opened, until what replaces it is complete.
inline constexpr std::string_view kDamagedPrefix = "catalogue.damaged-";
// There while RocksDB opens; found at a start, it says that the last start ended inside RocksDB.
inline constexpr std::string_view kOpeningName = "catalogue.opening";
inline constexpr std::string_view kSegmentsName = "segments";
inline constexpr std::string_view kTemporaryName = "temporary";
// The root of a file system of its own has this; it is left alone.
inline constexpr std::string_view kLostAndFoundName = "lost+found";

inline constexpr int kFanOut = 256;

// 16 lower-case hexadecimal digits and ".segment".
std::string SegmentFileName(std::uint64_t segment);
// Folder below `segments` that holds a segment: its number's low byte, two digits.
std::string FanOutName(std::uint64_t segment);
std::string FanOutName(int folder);
// "segments/ab/0123456789abcdab.segment", for messages and for the *at calls on the root.
std::string SegmentPath(std::uint64_t segment);

std::optional<std::uint64_t> ParseSegmentFileName(std::string_view name);

enum class TopLevelKind { kFile, kFolder, kIgnored, kUnknown };
TopLevelKind KindOfTopLevelName(std::string_view name);

}  // namespace parkade::disk
