// The remote tier: parks in Redis or Valkey, a single server or a cluster, for all machines that
// are given the same address and prefix. KEYS.md says what stands there, README.md what it
// promises.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "parkade/options.h"
#include "parkade/shared_tier.h"
#include "src/format/sealing.h"
#include "tiers/remote/redis.h"
#include "tiers/remote/url.h"

namespace parkade {

struct RemoteTierOptions {
  remote::RemoteUrl url;  // its password filled in
  remote::RedisOptions redis;
  absl::Duration ttl = absl::Hours(24 * 7);  // of everything that is stored; renewed on use
  // Longest wait for the first byte of an answer.
  absl::Duration deadline = absl::Milliseconds(500);
  CodecChoice codec = CodecChoice::kNone;  // kAuto: also by the speed of the link
  SharedSealKey key;  // not null: all machines have it, and values are encrypted
};

// Succeeds whether or not the store can be reached. InvalidArgument: the address can't be one.
absl::StatusOr<std::unique_ptr<SharedTier>> OpenRemoteTier(const RemoteTierOptions& options);

}  // namespace parkade
