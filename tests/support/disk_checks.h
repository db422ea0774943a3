// What has to hold of a disk tier's directory however the last process ended. Each function adds
// GoogleTest's failures to the test that calls it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tiers/disk/disk_tier.h"

namespace parkade::test {

std::vector<ParkSummary> Summaries(Tier& tier);

// Looks at an extent's decoded bytes, whose checksum is right. May be null.
using ExtentCheck =
    std::function<absl::Status(const ParkKey& key, std::uint32_t extent, absl::Span<const char>)>;
// Reads a park: DataLoss where it lacks a token, an extent or a byte, or a checksum is another one.
absl::Status CheckPark(Tier& tier, const ParkSummary& summary, const ExtentCheck& check = nullptr);

// Every park is whole, no conversation has a gap, and no fork stands on what is not there.
void ExpectWholeOrAbsent(Tier& tier, const std::vector<ParkSummary>& summaries,
                         const ExtentCheck& check = nullptr);
// The next two: nobody has the directory open.
void ExpectNoFileWithoutOwner(const DiskTierOptions& options);
// A catalogue made from nothing but the segments, in the new folder `scratch` on the same file
// system, names the same parks. The folder is removed.
void ExpectCatalogueEqualsScan(const DiskTierOptions& options, const std::string& scratch,
                               const std::vector<ParkSummary>& summaries);

}  // namespace parkade::test
