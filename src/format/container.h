// One conversation in one file: bytes <-> fields. No I/O. FORMAT.md, section "Containers", is the
// specification.
//
//   container := header, opening segment, (park segment)*, trailer
//
// A writer encodes the header, the opening and each park in turn and hashes what it writes. A
// reader decodes the trailer first, then goes through a ContainerReading from the front. Statuses
// are those of catalogue.h: DataLoss is damage, FailedPrecondition a later version.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/image.h"
#include "parkade/tier.h"
#include "src/format/catalogue.h"
#include "src/format/segment.h"

namespace parkade {

inline constexpr std::uint32_t kContainerHeaderBytes = 64;
inline constexpr std::uint32_t kContainerTrailerBytes = 64;
inline constexpr std::uint32_t kLeastContainerBytes =
    kContainerHeaderBytes + kContainerTrailerBytes;
// At most 255 bytes and no control character; an empty one is none.
bool IsContainerName(std::string_view name);

struct ContainerHeader {
  ConversationId conversation;
  Digest128 identity;
};
// `sealed`: the segments that follow are.
std::string EncodeContainerHeader(const ContainerHeader& header, bool sealed = false);
// `bytes`: the file's first 64. DataLoss also for a file that is no container. `sealed` may be
// null.
absl::StatusOr<ContainerHeader> DecodeContainerHeader(std::string_view bytes,
                                                      bool* sealed = nullptr);

struct ContainerTrailer {
  std::uint32_t parks = 0;
  std::uint32_t tokens = 0;
  std::uint64_t file_bytes = 0;  // the trailer included
  Digest128 checksum;            // XXH3-128 of everything before the trailer
};
std::string EncodeContainerTrailer(const ContainerTrailer& trailer);
// `bytes`: the last 64 of a file of `file_bytes`.
absl::StatusOr<ContainerTrailer> DecodeContainerTrailer(std::string_view bytes,
                                                        std::uint64_t file_bytes);

// The first segment: what the conversation needs besides its parks.
// `key` null: not sealed; the same for every segment of a container.
std::string EncodeContainerOpening(const ContainerHeader& header, const StoredIdentity& identity,
                                   const ConversationAttributes& attributes,
                                   const SharedSealKey& key = nullptr);

// Where everything of a park goes. `extents`: in order, with codec and stored_bytes; ordinals and
// offsets are set here. The key's park is its number in the container, the record's page hashes are
// left out. InvalidArgument when a reader would refuse it.
struct ContainerPark {
  std::string head;
  std::vector<StoredExtent> extents;
  SharedSealer sealer;  // of the extents
};
absl::StatusOr<ContainerPark> LayOutContainerPark(const ParkRecord& record,
                                                  std::vector<StoredExtent> extents,
                                                  const SharedSealKey& key = nullptr);

// What a reader knows so far, and the rules that hold between the parts. After a failed call
// nothing more may be asked.
class ContainerReading {
 public:
  ContainerReading(const ContainerHeader& header, const ContainerTrailer& trailer)
      : header_(header), trailer_(trailer) {}

  // The opening segment's head; then the park segments' in order.
  absl::Status Open(const SegmentHead& head);
  // The park's record; its page hashes are zero. `extents` says where the bytes are from the
  // segment's begin, by ordinal.
  struct Park {
    ParkRecord record;
    std::vector<StoredExtent> extents;
  };
  absl::StatusOr<Park> Next(const SegmentHead& head);
  // After the last park.
  absl::Status Close() const;

  const ContainerHeader& header() const { return header_; }
  const ContainerTrailer& trailer() const { return trailer_; }
  const StoredIdentity& identity() const { return identity_; }
  const ConversationAttributes& attributes() const { return attributes_; }
  std::uint32_t parks() const { return parks_; }

 private:
  absl::Status CheckSummary(const ParkSummary& summary) const;
  absl::Status CheckExtents(const Park& park, const SegmentHead& head) const;

  ContainerHeader header_;
  ContainerTrailer trailer_;
  StoredIdentity identity_;
  ConversationAttributes attributes_;
  std::uint32_t parks_ = 0;
  std::uint32_t tokens_ = 0;
};

}  // namespace parkade
