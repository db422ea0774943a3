// Values of the store: bytes <-> fields. No I/O; KEYS.md is the specification. Decoders accept
// exactly what it says: DataLoss is damage, FailedPrecondition a later version or another key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/image.h"
#include "src/format/catalogue.h"
#include "src/format/sealing.h"

namespace parkade::remote {

// One park on the way to a position, with the part of its tokens that lies on that way.
struct ChainStep {
  Digest128 row;
  ConversationId label;   // conversation that its writer stored it for
  std::uint32_t end = 0;  // of the tokens that are shared: below the park's own end in a fork
  friend bool operator==(const ChainStep&, const ChainStep&) = default;
};

// Steps in order. A chain names at most this many: what lies before is in the first one's row.
inline constexpr std::size_t kMostSteps = 64;
struct Chain {
  bool whole = true;  // false: there are steps before the first one
  std::vector<ChainStep> steps;
  friend bool operator==(const Chain&, const Chain&) = default;
};
// The last kMostSteps of them.
Chain Shortened(Chain chain);

std::string EncodeBoundary(const Chain& chain);
absl::StatusOr<Chain> DecodeBoundary(std::string_view value);

// A park as its writer stored it: the key is the writer's, page hashes are zero.
struct RowValue {
  ParkRecord record;
  std::vector<StoredExtent> extents;  // by ordinal; offsets mean nothing
  std::vector<std::string> headers;   // sealed ones: of every extent, with its tag
  SharedSealer sealer;                // null: plain
  Chain before;                       // what the park stands on
};
// `row` is a part of the value, so that values under exchanged keys are found. InvalidArgument when
// a reader would refuse it.
absl::StatusOr<std::string> EncodeRow(const Digest128& row, const RowValue& value);
absl::StatusOr<RowValue> DecodeRow(const Digest128& row, std::string_view bytes,
                                   const SealKey* key);

}  // namespace parkade::remote
