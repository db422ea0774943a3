// Parks made of nothing: valid records whose bytes tell what they are, so that a mix-up of
// conversations, parks or extents shows without keeping a copy of what was stored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "parkade/image.h"
#include "parkade/tier.h"

namespace parkade::test {

struct SamplePark {
  ParkRecord record;
  std::vector<ExtentBytes> payload;

  const ParkKey& key() const { return record.summary.key; }
};

struct SampleParkSpec {
  ParkKey key;
  StateLayout layout;
  StageMap stages;
  std::uint32_t first_token = 0;
  std::uint32_t token_count = 0;
  std::vector<TokenRange> window_rows;
  std::vector<std::uint32_t> checkpoints;
  ConversationId parent;
  std::uint32_t parent_tokens = 0;
  std::uint64_t variant = 0;  // other bytes and tokens under the same key
};

// Identity and digest that belong to a layout; put it before the park is stored.
StoredIdentity SampleIdentity(const StateLayout& layout);
Digest128 SampleIdentityDigest(const StateLayout& layout);

// Tokens, page hashes, extents (cut as CutIntoExtents cuts) with right checksums, and their bytes.
SamplePark MakeSamplePark(const SampleParkSpec& spec);

// A park of one token row of `payload_bytes` bytes (even): for budgets and races.
SamplePark MakePlainPark(const ParkKey& key, std::uint64_t payload_bytes,
                         std::uint64_t variant = 0);
// The layout of plain parks of that size.
StateLayout PlainLayout(std::uint64_t payload_bytes);

// OK when these are the bytes that a sample park of any variant has as this extent; else what is
// wrong with them.
absl::Status CheckSampleBytes(const ParkKey& key, std::uint32_t extent,
                              absl::Span<const char> bytes);

}  // namespace parkade::test
