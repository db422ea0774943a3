// Frames of a segment: what makes a folder of segments describe itself. No I/O.
//
//   segment := header frame, rows frame, (extent header, stored bytes)*
//
// The rows frame is a copy of the catalogue rows that the batch will hold; an extent header stands
// before each extent. A segment without payload carries attributes, tombstones or the secret.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "src/format/catalogue.h"

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

// Size of the header and rows frames, a multiple of kExtentAlignment. It depends on the rows' sizes
// only.
std::uint64_t SegmentHeadBytes(absl::Span<const CatalogueRow> rows);

// Header and rows frames. `payload_bytes`: everything that follows them.
// The offsets in the image rows are relative to the segment's begin, so the caller encodes rows
// with offsets it computed from SegmentHeadBytes.
std::string EncodeSegmentHead(std::uint64_t segment, absl::Span<const CatalogueRow> rows,
                              std::uint64_t payload_bytes);
struct SegmentHead {
  std::uint64_t segment = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t head_bytes = 0;  // where the payload begins
  std::vector<CatalogueRow> rows;
};
// `bytes` may be longer than the head; OutOfRange says how many bytes are needed when it is
// shorter (`needed` is set, to at most kMostHeadBytes). DataLoss: damaged or no segment at all.
// FailedPrecondition: sound, but of a later version. `needed` must not be null.
inline constexpr std::uint64_t kMostHeadBytes = 64ull << 20;
absl::StatusOr<SegmentHead> DecodeSegmentHead(std::string_view bytes, std::uint64_t* needed);

std::string EncodeExtentHeader(const ParkKey& key, const StoredExtent& extent);
// DataLoss: damaged, or the header of another extent.
absl::Status CheckExtentHeader(std::string_view header, const ParkKey& key,
                               const StoredExtent& extent);

}  // namespace parkade
