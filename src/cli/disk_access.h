// A directory of a disk tier, with no server behind it. `key`: as DiskTierOptions's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "parkade/tier.h"
#include "src/cli/http_client.h"
#include "src/format/sealing.h"

namespace parkade {

// Whether there is something that looks like a disk tier.
bool HoldsTier(const std::string& directory);

// For looking and taking away: no budget, so that nothing is evicted, and nothing is created.
// NotFound when there is no disk tier; other statuses as OpenDiskTier's. One line each.
absl::StatusOr<std::unique_ptr<Tier>> OpenExistingTier(const std::string& directory,
                                                       const SharedSealKey& key = nullptr);

// For putting in: created when it is not there. 0 GiB: no budget but free space.
absl::StatusOr<std::unique_ptr<Tier>> OpenTierForImport(const std::string& directory,
                                                        double budget_gib,
                                                        std::uint64_t min_free_mib,
                                                        const SharedSealKey& key = nullptr);

// The cache over the directory as a server would open it, answering what the server's routes
// under /conversations answer. Budgets, which the server's command line has, are null. The
// directory is held until the last copy goes.
absl::StatusOr<HttpCall> OpenDiskApi(const std::string& directory,
                                     const SharedSealKey& key = nullptr);

}  // namespace parkade
