// Disk as a tier: RocksDB is the catalogue, immutable segments hold the bytes. See LAYOUT.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "parkade/options.h"
#include "parkade/tier.h"
#include "src/format/sealing.h"
#include "tiers/disk/file_door.h"

namespace parkade {

struct DiskTierOptions {
  std::string directory;                         // created 0700
  std::uint64_t budget_bytes = 0;                // physical; 0: auto (INTERFACE, disk-gib)
  std::uint64_t min_free_bytes = 4096ull << 20;  // floor of free space
  CodecChoice codec = CodecChoice::kAuto;
  SharedSealKey key;  // null: nothing is encrypted
  // Called at named points of writing and removing; tests kill the process there. Null: nothing.
  std::function<void(std::string_view point)> failpoint;
  // What stands between the tier and its files; it outlives the tier. Null: nothing does.
  disk::FileDoor* files = nullptr;
};

// One clear line in the status when the directory can't be used: InvalidArgument (not a directory,
// foreign files, other owner), FailedPrecondition (another process holds it; newer format; other
// key), ResourceExhausted (no space). Nothing in the directory is touched then. Unavailable: a file
// can't be opened now (no descriptor is left); nothing is given up for that.
absl::StatusOr<std::unique_ptr<Tier>> OpenDiskTier(const DiskTierOptions& options);

struct VerifyReport {
  std::uint64_t segments = 0, extents = 0, bytes = 0;
  std::uint64_t damaged_segments = 0, damaged_rows = 0, orphan_files = 0;
  bool catalogue_rebuilt = false;
  std::vector<std::string> findings;  // one line each: what, where
};
// Reads and checks every byte. `repair`: damaged segments are removed, conversations end at the
// last boundary before them, and a catalogue that can't be opened is rebuilt from segments.
// `progress` gets bytes done and bytes in all; may be null. `key`: as given to the tier.
absl::StatusOr<VerifyReport> VerifyDiskTier(
    const std::string& directory, bool repair,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress,
    const SharedSealKey& key = nullptr);

}  // namespace parkade
