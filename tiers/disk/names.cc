#include "tiers/disk/names.h"

#include <cstdio>

namespace parkade::disk {
namespace {

constexpr std::string_view kSegmentSuffix = ".segment";
constexpr std::size_t kNumberDigits = 16;

}  // namespace

std::string SegmentFileName(std::uint64_t segment) {
  char digits[kNumberDigits + 1];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(segment));
  return std::string(digits) + std::string(kSegmentSuffix);
}

std::string FanOutName(int folder) {
  char digits[3];
  std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(folder) & 0xffu);
  return digits;
}

std::string FanOutName(std::uint64_t segment) {
  return FanOutName(static_cast<int>(segment % kFanOut));
}

std::string SegmentPath(std::uint64_t segment) {
  return std::string(kSegmentsName) + "/" + FanOutName(segment) + "/" + SegmentFileName(segment);
}

std::optional<std::uint64_t> ParseSegmentFileName(std::string_view name) {
  if (name.size() != kNumberDigits + kSegmentSuffix.size()) return std::nullopt;
  if (name.substr(kNumberDigits) != kSegmentSuffix) return std::nullopt;
  std::uint64_t number = 0;
  for (const char c : name.substr(0, kNumberDigits)) {
    int digit;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return std::nullopt;
    }
    number = number << 4 | static_cast<std::uint64_t>(digit);
  }
  return number;
}

TopLevelKind KindOfTopLevelName(std::string_view name) {
  if (name == kLockName || name == kVersionName || name == kKeyName || name == kOpeningName) {
    return TopLevelKind::kFile;
  }
  if (name == kCatalogueName || name == kSegmentsName || name == kTemporaryName ||
      name.substr(0, kDamagedPrefix.size()) == kDamagedPrefix) {
    return TopLevelKind::kFolder;
  }
  if (name == kLostAndFoundName) return TopLevelKind::kIgnored;
  return TopLevelKind::kUnknown;
}

}  // namespace parkade::disk
