// Frames of a segment: what makes a folder of segments describe itself. No I/O.
//
//   segment := header frame, rows frame, (extent header, stored bytes)*
//
// The rows frame is a copy of the catalogue rows that the batch will hold; an extent header stands
// before each extent. A segment without payload carries attributes, tombstones or the secret.
//
// A sealed segment has its rows frame and its stored bytes encrypted, with a key of its own; a
// block behind the header says which.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "src/format/catalogue.h"
#include "src/format/sealing.h"

namespace parkade {

// One catalogue row as it stands in RocksDB.
struct CatalogueRow {
  // Values are stored.
  enum class Family : std::uint8_t {
    kManifest = 0,
    kTokens = 1,
    kImage = 2,
    kUsage = 3,
    kIdentity = 4,
    kName = 5,
    kTombstone = 6,
    kMeta = 7,
  };
  Family family = Family::kManifest;
  std::string key;  // not empty
  std::string value;
};

// Size of the fixed extent header.
inline constexpr std::uint32_t kExtentHeaderBytes = 64;
// Stored bytes begin at multiples of this, so that O_DIRECT and mmap readers can use them.
inline constexpr std::uint32_t kExtentAlignment = 64;

// Sealed segments and containers have a version of their own, above that of plain ones: a program
// that can't read them says so.
inline constexpr std::uint32_t kSealedVersion = kFormatVersion + 1;

// What one new segment is sealed with: a random salt, so once for each. Null without a key.
SharedSealer NewSegmentSealer(const SharedSealKey& key);

// Size of the header and rows frames, a multiple of kExtentAlignment. It depends on the rows' sizes
// and on `sealed` only.
std::uint64_t SegmentHeadBytes(absl::Span<const CatalogueRow> rows, bool sealed = false);

// Header and rows frames. `payload_bytes`: everything that follows them. `sealer` null: plain.
// The offsets in the image rows are relative to the segment's begin, so the caller encodes rows
// with offsets it computed from SegmentHeadBytes.
std::string EncodeSegmentHead(std::uint64_t segment, absl::Span<const CatalogueRow> rows,
                              std::uint64_t payload_bytes, const Sealer* sealer = nullptr);
struct SegmentHead {
  std::uint64_t segment = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t head_bytes = 0;  // where the payload begins
  std::vector<CatalogueRow> rows;
  SharedSealer sealer;  // of its extents; null: plain
};
// `bytes` may be longer than the head; OutOfRange says how many bytes are needed when it is
// shorter (`needed` is set, to at most kMostHeadBytes). DataLoss: damaged or no segment at all.
// FailedPrecondition: sound, but of a later version, or sealed with another key than `key`, or
// plain where there is a key. `needed` must not be null; `key` null: plain segments.
inline constexpr std::uint64_t kMostHeadBytes = 64ull << 20;
absl::StatusOr<SegmentHead> DecodeSegmentHead(std::string_view bytes, std::uint64_t* needed,
                                              const SealKey* key = nullptr);
// Only what tells how a segment is sealed: its first kSegmentSealBytes bytes are enough. Null:
// plain. Statuses as above.
inline constexpr std::size_t kSegmentSealBytes = 128;
absl::StatusOr<SharedSealer> DecodeSegmentSealer(std::string_view bytes, const SealKey* key);
// Id of the key that a segment is sealed with, zero for a plain one. DataLoss: no segment.
absl::StatusOr<Digest128> DecodeSegmentKeyId(std::string_view bytes);

std::string EncodeExtentHeader(const ParkKey& key, const StoredExtent& extent);
// DataLoss: damaged, or the header of another extent. Of plain segments.
absl::Status CheckExtentHeader(std::string_view header, const ParkKey& key,
                               const StoredExtent& extent);

// Sealed segments: `from` holds the extent's stored bytes, `to` gets them sealed and may be
// from.data(). Returns the header.
std::string SealExtent(const Sealer& sealer, const ParkKey& key, const StoredExtent& extent,
                       absl::Span<const char> from, char* to);
// The way back. DataLoss: header or bytes are damaged, or another extent's; `to` is wiped then.
absl::Status OpenExtent(const Sealer& sealer, std::string_view header, const ParkKey& key,
                        const StoredExtent& extent, absl::Span<const char> from, char* to);

}  // namespace parkade
