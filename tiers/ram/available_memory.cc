#include "tiers/ram/available_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tiers/ram/ram_tier.h"

namespace parkade::ram {
namespace {

constexpr absl::Duration kReadInterval = absl::Milliseconds(100);
// v1 writes "no limit" as the largest number of whole pages, whatever the page size.
constexpr std::uint64_t kNoLimitBytes = 1ull << 62;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::vector<absl::string_view> Lines(std::string_view text) {
  return absl::StrSplit(View(text), '\n', absl::SkipEmpty());
}

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool ListHas(absl::string_view list, absl::string_view word) {
  for (absl::string_view entry : absl::StrSplit(list, ',')) {
    if (entry == word) return true;
  }
  return false;
}

struct Mount {
  std::string root;   // which folder of the hierarchy is mounted
  std::string point;  // where
};

// Spaces and a few more are written as a backslash and three octal digits.
std::string Unescape(absl::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::optional<Mount> FindMount(std::string_view mountinfo, CgroupVersion version) {
  for (absl::string_view line : Lines(mountinfo)) {
    const std::vector<absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() != 2) continue;
    const std::vector<absl::string_view> front = absl::StrSplit(halves[0], ' ');
    const std::vector<absl::string_view> back = absl::StrSplit(halves[1], ' ');
    if (front.size() < 6 || back.size() < 3) continue;
    const bool wanted = version == CgroupVersion::kV2
                            ? back[0] == "cgroup2"
                            : back[0] == "cgroup" && ListHas(back[2], "memory");
    if (wanted) return Mount{Unescape(front[3]), Unescape(front[4])};
  }
  return std::nullopt;
}

std::optional<std::string> FindPath(std::string_view cgroup, CgroupVersion version) {
  for (absl::string_view line : Lines(cgroup)) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const bool wanted = version == CgroupVersion::kV2 ? fields[0] == "0" && fields[1].empty()
                                                      : ListHas(fields[1], "memory");
    if (wanted) return std::string(fields[2]);
  }
  return std::nullopt;
}

// The path below the mount. A container may see its path from the host's root while its own group
// is what is mounted; then the mount is the group.
std::string PathBelow(const Mount& mount, const std::string& path) {
  if (mount.root == "/") return path;
  if (path == mount.root) return "/";
  if (absl::StartsWith(path, mount.root + "/")) return path.substr(mount.root.size());
  return "/";
}

std::optional<std::uint64_t> ReadLimit(CgroupVersion version, const std::string& folder) {
  std::optional<std::uint64_t> limit;
  const std::vector<std::string> names = version == CgroupVersion::kV2
                                             ? std::vector<std::string>{"memory.max", "memory.high"}
                                             : std::vector<std::string>{"memory.limit_in_bytes"};
  for (const std::string& name : names) {
    const auto text = ReadFile(absl::StrCat(folder, "/", name));
    if (!text) continue;
    const auto one = ParseCgroupLimit(*text);
    if (one) limit = std::min(*one, limit.value_or(*one));
  }
  return limit;
}

// What the innermost group with a limit leaves; nothing when no group has one.
std::optional<std::uint64_t> CgroupRest(const std::string& root, const CgroupPlace& place) {
  const bool v2 = place.version == CgroupVersion::kV2;
  std::string path = place.path == "/" ? "" : place.path;
  while (true) {
    const std::string folder = absl::StrCat(root, place.mount, path);
    if (const auto limit = ReadLimit(place.version, folder)) {
      const auto used_text =
          ReadFile(absl::StrCat(folder, v2 ? "/memory.current" : "/memory.usage_in_bytes"));
      std::uint64_t used = 0;
      if (!used_text || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*used_text), &used)) {
        return std::nullopt;
      }
      const auto stat = ReadFile(absl::StrCat(folder, "/memory.stat"));
      used -= std::min(used, stat ? ParseReclaimable(place.version, *stat) : 0);
      return *limit - std::min(*limit, used);
    }
    if (path.empty()) return std::nullopt;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

std::optional<std::uint64_t> ParseMemAvailable(std::string_view meminfo) {
  for (absl::string_view line : Lines(meminfo)) {
    if (!absl::ConsumePrefix(&line, "MemAvailable:") || !absl::ConsumeSuffix(&line, " kB")) {
      continue;
    }
    std::uint64_t kib = 0;
    if (absl::SimpleAtoi(line, &kib) && kib < kNoLimitBytes >> 10) return kib << 10;
  }
  return std::nullopt;
}

std::optional<CgroupPlace> ParseCgroupPlace(std::string_view cgroup, std::string_view mountinfo) {
  for (const CgroupVersion version : {CgroupVersion::kV1, CgroupVersion::kV2}) {
    const auto mount = FindMount(mountinfo, version);
    const auto path = FindPath(cgroup, version);
    if (mount && path) return CgroupPlace{version, mount->point, PathBelow(*mount, *path)};
  }
  return std::nullopt;
}

std::optional<std::uint64_t> ParseCgroupLimit(std::string_view text) {
  std::uint64_t limit = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(View(text)), &limit)) return std::nullopt;
  if (limit >= kNoLimitBytes) return std::nullopt;
  return limit;
}

std::uint64_t ParseReclaimable(CgroupVersion version, std::string_view memory_stat) {
  // v1's plain counters leave child groups out, its limit does not.
  const std::vector<absl::string_view> wanted =
      version == CgroupVersion::kV2
          ? std::vector<absl::string_view>{"active_file", "inactive_file", "slab_reclaimable"}
          : std::vector<absl::string_view>{"total_active_file", "total_inactive_file"};
  std::uint64_t bytes = 0;
  for (absl::string_view line : Lines(memory_stat)) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    std::uint64_t value = 0;
    if (fields.size() == 2 && std::find(wanted.begin(), wanted.end(), fields[0]) != wanted.end() &&
        absl::SimpleAtoi(fields[1], &value)) {
      bytes += value;
    }
  }
  return bytes;
}

std::uint64_t AvailableBytesUnder(const std::string& root) {
  std::uint64_t available = kUnknownBytes;
  if (const auto meminfo = ReadFile(root + "/proc/meminfo")) {
    available = ParseMemAvailable(*meminfo).value_or(kUnknownBytes);
  }
  const auto cgroup = ReadFile(root + "/proc/self/cgroup");
  const auto mountinfo = ReadFile(root + "/proc/self/mountinfo");
  if (!cgroup || !mountinfo) return available;
  const auto place = ParseCgroupPlace(*cgroup, *mountinfo);
  if (!place) return available;
  return std::min(available, CgroupRest(root, *place).value_or(kUnknownBytes));
}

AvailableMemory::AvailableMemory(std::function<std::uint64_t()> read,
                                 std::function<absl::Time()> clock)
    : read_(std::move(read)),
      clock_(std::move(clock)),
      next_(clock_() + kReadInterval),
      bytes_(read_()) {}

std::uint64_t AvailableMemory::Bytes() const {
  const absl::Time now = clock_();
  {
    absl::MutexLock lock(&mu_);
    if (now < next_) return bytes_;
    next_ = now + kReadInterval;
  }
  const std::uint64_t bytes = read_();
  absl::MutexLock lock(&mu_);
  bytes_ = bytes;
  return bytes;
}

}  // namespace parkade::ram

namespace parkade {

std::uint64_t SystemAvailableBytes() { return ram::AvailableBytesUnder(""); }

}  // namespace parkade
