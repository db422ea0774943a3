// Catalogue rows as the disk tier stores them: which segment a row belongs to, and what one park's
// segment holds. LAYOUT.md is the specification. No I/O.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parkade/image.h"
#include "parkade/options.h"
#include "parkade/tier.h"
#include "src/format/catalogue.h"
#include "src/format/segment.h"

namespace parkade::disk {

using Family = CatalogueRow::Family;
inline constexpr int kFamilies = 8;

// Names the segment file a row is copied in, and that file's size. Rows of the families manifest,
// name and tombstone, and the secret, begin with one: segment u64, size u64, 64-bit XXH3 over both
// and all that follows; little endian.
struct SegmentRef {
  std::uint64_t segment = 0;
  std::uint64_t size_bytes = 0;
  friend bool operator==(const SegmentRef&, const SegmentRef&) = default;
};
inline constexpr std::size_t kRefBytes = 24;

std::string WrapRef(const SegmentRef& ref, std::string_view inner);
struct RefRow {
  SegmentRef ref;
  std::string_view inner;  // points into the value
};
// DataLoss when the value is short or its checksum is wrong.
absl::StatusOr<RefRow> UnwrapRef(std::string_view value);

// ---- meta ----
inline constexpr std::string_view kSecretKey = "secret";       // RefRow of 16 bytes
inline constexpr std::string_view kNextSegmentKey = "next";    // u64: numbers below may be taken
inline constexpr std::string_view kFormatKey = "format";       // u64
inline constexpr std::string_view kCheckChainsKey = "chains";  // there: conversations may have gaps
std::string EncodeNumber(std::uint64_t number);
absl::StatusOr<std::uint64_t> DecodeNumber(std::string_view value);
std::string EncodeSecret(const Digest128& secret);
absl::StatusOr<Digest128> DecodeSecret(std::string_view inner);
// 16 bytes, high half first; big endian.
std::string DigestKey(const Digest128& digest);
absl::StatusOr<Digest128> ParseDigestKey(std::string_view key);

// ---- tombstone: the segments of the parks that a Forget removed ----
std::string EncodeTombstone(absl::Span<const std::uint64_t> segments);
absl::StatusOr<std::vector<std::uint64_t>> DecodeTombstone(std::string_view inner);

// What decoding a segment's head in a directory answers, where `status` is what format/segment.h
// answered to these first bytes: a segment that is not sealed as the directory's own are came from
// elsewhere, which costs it alone (DataLoss). A later version stays FailedPrecondition.
absl::Status StatusInDirectory(absl::Status status, std::string_view bytes);

// ---- one park ----

// What is written for a park. Pieces point into the payload that was given and into `head`,
// `headers` and `compressed`; the object is moved, never copied, while they are in use.
struct ParkSegment {
  SegmentRef ref;
  ParkKey key;
  SharedSealer sealer;  // not null: pieces are the head alone, extents are sealed while written
  std::vector<CatalogueRow> rows;     // for the batch
  std::vector<StoredExtent> extents;  // by ordinal
  std::string head;
  std::vector<std::string> headers;
  std::vector<std::string> compressed;  // by ordinal; empty: raw
  std::vector<iovec> pieces;

  // What is stored of an extent, before it is sealed: extents[i].stored_bytes bytes.
  const char* StoredBytes(std::size_t i, absl::Span<const ExtentBytes> payload) const {
    return extents[i].codec == Codec::kRaw ? payload[i]->data() : compressed[i].data();
  }
};
// `copied_rows` are written into the segment's head besides the park's own rows. `sealer` null: the
// segment is not encrypted.
// InvalidArgument when payload and record do not fit together.
absl::StatusOr<ParkSegment> BuildParkSegment(std::uint64_t segment, const ParkRecord& record,
                                             absl::Span<const ExtentBytes> payload,
                                             CodecChoice codec,
                                             absl::Span<const CatalogueRow> copied_rows,
                                             SharedSealer sealer = nullptr);

// A segment without payload: its whole content. Values that begin with a SegmentRef get this one.
struct RowsSegment {
  SegmentRef ref;
  std::vector<CatalogueRow> rows;
  std::string head;
};
// `inner` values are wrapped.
RowsSegment BuildRowsSegment(std::uint64_t segment, absl::Span<const CatalogueRow> inner_rows,
                             const SharedSealer& sealer = nullptr);

// Extents by ordinal from the image rows of one park. DataLoss when one is missing or twice there.
absl::StatusOr<std::vector<StoredExtent>> JoinImageRows(std::uint64_t segment,
                                                        absl::Span<const std::string> values);

}  // namespace parkade::disk
