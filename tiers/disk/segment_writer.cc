#include "tiers/disk/segment_writer.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>

namespace parkade::disk {
namespace {

// Fails only for lack of space: elsewhere the file just grows as it is written.
absl::Status Allocate(const Fd& fd, std::uint64_t size_bytes, const std::string& name) {
  if (size_bytes == 0) return absl::OkStatus();
  if (fd.door().Allocate(fd.get(), static_cast<off_t>(size_bytes)) == 0) return absl::OkStatus();
  if (errno == ENOSPC || errno == EDQUOT) return ErrnoStatus(errno, name);
  return absl::OkStatus();
}

absl::Status WriteSealed(const Fd& fd, const ParkSegment& park,
                         absl::Span<const ExtentBytes> payload, const std::string& name) {
  if (absl::Status s = WriteAll(fd, park.pieces, name); !s.ok()) return s;
  std::string frame;
  for (std::size_t i = 0; i < park.extents.size(); ++i) {
    const StoredExtent& extent = park.extents[i];
    frame.resize(kExtentHeaderBytes + extent.stored_bytes);
    const std::string header =
        SealExtent(*park.sealer, park.key, extent,
                   {park.StoredBytes(i, payload), extent.stored_bytes}, &frame[kExtentHeaderBytes]);
    frame.replace(0, header.size(), header);
    // What lies between the frames was allocated and reads as zero.
    if (absl::Status s =
            WriteAll(fd, {{frame.data(), frame.size()}}, name, extent.offset - kExtentHeaderBytes);
        !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

}  // namespace

CatalogueRow SegmentWriter::StartNumbers(std::uint64_t lowest) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  const std::uint64_t first = std::max(lowest, ms << kStampShift);
  next_ = first;
  set_aside_ = first + kNumbersSetAside;
  return {Family::kMeta, std::string(kNextSegmentKey), EncodeNumber(set_aside_)};
}

bool SegmentWriter::SetNumbersAside(std::uint64_t number, CatalogueRow* row) {
  std::uint64_t known = set_aside_.load();
  while (number >= known) {
    const std::uint64_t wanted = number + kNumbersSetAside;
    if (!set_aside_.compare_exchange_weak(known, wanted)) continue;
    *row = {Family::kMeta, std::string(kNextSegmentKey), EncodeNumber(wanted)};
    return true;
  }
  return false;
}

absl::StatusOr<std::uint64_t> SegmentWriter::Write(const SegmentRef& ref,
                                                   std::vector<iovec> pieces) {
  return Write(ref, [&pieces](const Fd& fd, const std::string& name) {
    return WriteAll(fd, std::move(pieces), name);
  });
}

absl::StatusOr<std::uint64_t> SegmentWriter::Write(const ParkSegment& park,
                                                   absl::Span<const ExtentBytes> payload) {
  if (park.sealer == nullptr) return Write(park.ref, park.pieces);
  return Write(park.ref, [&](const Fd& fd, const std::string& name) {
    return WriteSealed(fd, park, payload, name);
  });
}

absl::StatusOr<std::uint64_t> SegmentWriter::Write(const SegmentRef& ref, const Fill& fill) {
  const std::string name = SegmentFileName(ref.segment);
  absl::StatusOr<std::uint64_t> block_bytes = WriteTemporary(ref, name, fill);
  if (!block_bytes.ok()) {
    // swallow: what is left in the temporary folder goes at the next open.
    (void)directory_->door().Unlink(directory_->temporary().get(), name.c_str(), 0);
    return block_bytes;
  }
  if (absl::Status s = Publish(ref.segment, name); !s.ok()) {
    (void)directory_->door().Unlink(directory_->temporary().get(), name.c_str(), 0);
    // swallow: a file that no row names goes at the next open.
    (void)directory_->Unlink(ref.segment);
    return s;
  }
  written_bytes_.fetch_add(ref.size_bytes, std::memory_order_relaxed);
  return block_bytes;
}

absl::StatusOr<std::uint64_t> SegmentWriter::Write(const RowsSegment& segment) {
  return Write(segment.ref,
               std::vector<iovec>{{const_cast<char*>(segment.head.data()), segment.head.size()}});
}

absl::StatusOr<std::uint64_t> SegmentWriter::WriteTemporary(const SegmentRef& ref,
                                                            const std::string& name,
                                                            const Fill& fill) {
  absl::StatusOr<Fd> fd = OpenAt(directory_->temporary(), name, O_WRONLY | O_CREAT | O_EXCL);
  if (!fd.ok()) return fd.status();
  Reach("segment.created");
  if (absl::Status s = Allocate(*fd, ref.size_bytes, name); !s.ok()) return s;
  if (absl::Status s = fill(*fd, name); !s.ok()) return s;
  Reach("segment.written");
  if (absl::Status s = SyncData(*fd, name); !s.ok()) return s;
  Reach("segment.synced");
  struct stat info;
  if (fd->door().StatOpen(fd->get(), &info) != 0) return ErrnoStatus(errno, name);
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

absl::Status SegmentWriter::Publish(std::uint64_t segment, const std::string& name) {
  if (absl::Status s = directory_->EnsureFolder(segment); !s.ok()) return s;
  Reach("folder.made");
  const std::string temporary = std::string(kTemporaryName) + "/" + name;
  const std::string final_name = SegmentPath(segment);
  // RENAME_NOREPLACE is not known everywhere; numbers are unique, so nothing is there to replace.
  const int root = directory_->root().get();
  if (directory_->door().Rename(root, temporary.c_str(), root, final_name.c_str()) != 0) {
    return ErrnoStatus(errno, final_name);
  }
  Reach("segment.renamed");
  if (absl::Status s = directory_->SyncSegmentFolder(segment); !s.ok()) return s;
  Reach("folder.synced");
  return absl::OkStatus();
}

}  // namespace parkade::disk
