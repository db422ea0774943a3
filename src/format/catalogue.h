// Bytes <-> fields of everything that is stored: the rows of the catalogue, and the frames of a
// segment. No I/O. FORMAT.md is the specification; a decoder accepts exactly what it says and turns
// anything else into DataLoss with one line that says what was wrong, except that sound bytes of a
// later version are FailedPrecondition: nobody may take them for damage and remove them. Decoders
// never read outside their input and bound every count before they allocate. Encoders don't check:
// what breaks a rule of FORMAT.md (page hashes, ascending ranges, planes in order) does not decode.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parkade/identity.h"
#include "parkade/image.h"
#include "parkade/options.h"
#include "parkade/tier.h"

namespace parkade {

inline constexpr std::uint32_t kFormatVersion = 1;

// ---- row values; every value ends with a 64-bit XXH3 of what precedes it ----

// `manifest`: the whole ParkSummary but its key.
std::string EncodeManifest(const ParkSummary& summary);
absl::StatusOr<ParkSummary> DecodeManifest(const ParkKey& key, std::string_view value);

// `tokens`: LZ4 of little-endian token ids.
std::string EncodeTokens(absl::Span<const Token> tokens);
absl::StatusOr<std::vector<Token>> DecodeTokens(std::string_view value);

// Where an extent's stored bytes are. File names and offsets belong to the disk tier.
struct StoredExtent {
  ExtentInfo info;
  std::uint32_t ordinal = 0;  // index in ParkRecord::extents
  Codec codec = Codec::kRaw;
  std::uint32_t stored_bytes = 0;
  std::uint64_t offset = 0;  // of the stored bytes in the segment
};

// `image`: the extents of one stage in one park, ordinals ascending. The size depends on the number
// of extents only, so offsets may be filled in once the size of the segment's head is known.
std::string EncodeImage(std::uint64_t segment, absl::Span<const StoredExtent> extents);
struct ImageRow {
  std::uint64_t segment = 0;
  std::vector<StoredExtent> extents;
};
absl::StatusOr<ImageRow> DecodeImage(std::string_view value);

std::string EncodeIdentity(const StoredIdentity& identity);
absl::StatusOr<StoredIdentity> DecodeIdentity(std::string_view value);

std::string EncodeAttributes(const ConversationAttributes& attributes);
absl::StatusOr<ConversationAttributes> DecodeAttributes(const ConversationId& id,
                                                        std::string_view value);

// ---- keys: big-endian, so that RocksDB's order is conversation, (stage,) park ----

std::string ManifestKey(const ParkKey& key);                      // 20 bytes; also `tokens`
std::string ImageKey(const ParkKey& key, std::uint16_t stage);    // conversation|stage|park
std::string ConversationKey(const ConversationId& conversation);  // 16 bytes
absl::StatusOr<ParkKey> ParseManifestKey(std::string_view key);
absl::StatusOr<std::pair<ParkKey, std::uint16_t>> ParseImageKey(std::string_view key);
absl::StatusOr<ConversationId> ParseConversationKey(std::string_view key);

// ---- codec ----

// Stored form of raw bytes under a choice: kAuto keeps raw unless a sample of at most 64 KiB
// shrinks by 5 % or more; kZstd shuffles bytes first where that shrinks the sample further. Returns
// the codec really used; `stored` is empty for kRaw.
Codec Compress(CodecChoice choice, absl::Span<const char> raw, std::string* stored);
// What part of its size kZstd is likely to save, by the same sample: 0 to 1. Takes about a
// millisecond.
double ZstdSavedShare(absl::Span<const char> raw);
// Exactly raw_bytes into `raw`, or DataLoss.
absl::Status Decompress(Codec codec, std::string_view stored, absl::Span<char> raw);

}  // namespace parkade
