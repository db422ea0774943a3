// A container on a disk: written whole or not at all, read from front to back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "src/cli/work_watch.h"
#include "src/format/container.h"
#include "src/format/running_checksum.h"
#include "tiers/disk/file_io.h"

namespace parkade {

// The file has its name only after Commit; until then, and after a failure, there is nothing.
// One thread.
class ContainerWriter {
 public:
  // AlreadyExists when `path` is there and not `replace`. The file is created beside it, 0600.
  // `key` not null: everything but header and trailer is encrypted with it.
  static absl::StatusOr<std::unique_ptr<ContainerWriter>> Create(const std::string& path,
                                                                 bool replace, SharedSealKey key);
  ~ContainerWriter();

  absl::Status Begin(const ContainerHeader& header, const StoredIdentity& identity,
                     const ConversationAttributes& attributes);
  // `stored[i]` holds the stored bytes of extent i.
  absl::Status AddPark(const ParkRecord& record, std::vector<StoredExtent> extents,
                       absl::Span<const std::string> stored);
  // Trailer, sync, rename, sync of the folder. Returns the file's size.
  absl::StatusOr<std::uint64_t> Commit();

 private:
  ContainerWriter() = default;
  absl::Status Put(std::string_view bytes);
  absl::Status PutPadding();
  absl::Status PutExtent(const Sealer* sealer, const ParkKey& key, const StoredExtent& extent,
                         const std::string& stored);
  absl::Status Rename();

  std::string path_;
  std::string name_;
  std::string temporary_name_;
  bool replace_ = false;
  bool committed_ = false;
  SharedSealKey key_;
  disk::Fd folder_;
  disk::Fd file_;
  std::uint64_t bytes_ = 0;
  std::uint32_t parks_ = 0;
  std::uint32_t tokens_ = 0;
  RunningChecksum checksum_;
};

// One thread.
class ContainerFile {
 public:
  // Reads header, opening and trailer. DataLoss (no container, damaged, cut off) and
  // FailedPrecondition (of a later version, encrypted with another key than `key`) name the file
  // and the place. A plain file is read whatever the key.
  static absl::StatusOr<ContainerFile> Open(const std::string& path,
                                            const SharedSealKey& key = nullptr);

  const ContainerHeader& header() const { return header_; }
  const ContainerTrailer& trailer() const { return trailer_; }
  // Known after a Walk.
  const StoredIdentity& identity() const { return identity_; }
  const ConversationAttributes& attributes() const { return attributes_; }

  // Reads and checks every byte in order; `visit` gets each park with its raw bytes, which have
  // their checksums. At most one park is in memory. `watch` gets bytes of the file.
  using Visit = std::function<absl::Status(const ParkRecord&, absl::Span<const ExtentBytes>)>;
  absl::Status Walk(const Visit& visit, const WorkWatch& watch);

 private:
  class Walker;
  ContainerFile() = default;

  std::string path_;
  disk::Fd file_;
  SharedSealKey key_;  // null: the file is plain
  ContainerHeader header_;
  ContainerTrailer trailer_;
  StoredIdentity identity_;
  ConversationAttributes attributes_;
};

}  // namespace parkade
