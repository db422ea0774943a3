// The remote tier's entries in the suite, each over a store of this process's own: one server and
// one cluster, begun when the first test needs them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parkade/options.h"
#include "parkade/shared_tier.h"
#include "src/format/sealing.h"
#include "tests/conformance/tier_under_test.h"
#include "tests/support/redis_server.h"

namespace parkade::test {

// Begins when it is called first, and ends with the process.
RedisServer& TheRedisServer();
// Of three masters.
RedisCluster& TheRedisCluster();

// One machine's view of what stands under the prefix. Null, and a failure of the test: it does not
// open.
std::unique_ptr<SharedTier> OpenRemote(const std::string& prefix, SharedSealKey key, int port,
                                       CodecChoice codec = CodecChoice::kNone);

// Skipped where there is no server to run.
std::vector<TierUnderTest> RemoteTiers();
TierUnderTest RemoteClusterUnderTest();

}  // namespace parkade::test
