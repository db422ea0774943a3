#include "src/cli/container_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/format/checksum.h"
#include "src/format/heap_buffer.h"

namespace parkade {
namespace {

// The same status with the file and the place in front.
absl::Status At(const absl::Status& status, const std::string& path, std::uint64_t offset) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": at byte ", offset, ": ", status.message()));
}

}  // namespace

// Reads on from an offset, and hashes what it reads.
class ContainerFile::Walker {
 public:
  explicit Walker(ContainerFile* file) : file_(*file), reading_(file->header_, file->trailer_) {}

  absl::Status Run(const Visit& visit, const WorkWatch& watch) {
    const std::uint64_t all = file_.trailer_.file_bytes;
    begin_ = offset_;
    if (absl::Status s = CheckHeader(); !s.ok()) return s;
    absl::StatusOr<SegmentHead> head = ReadHead();
    if (!head.ok()) return head.status();
    if (absl::Status s = reading_.Open(*head); !s.ok()) return Fault(s);
    file_.identity_ = reading_.identity();
    file_.attributes_ = reading_.attributes();
    while (reading_.parks() < file_.trailer_.parks) {
      if (absl::Status s = ReportWork(watch, offset_, all); !s.ok()) return s;
      if (absl::Status s = SkipPadding(); !s.ok()) return s;
      if (absl::Status s = WalkPark(visit); !s.ok()) return s;
    }
    if (absl::Status s = SkipPadding(); !s.ok()) return s;
    if (absl::Status s = reading_.Close(); !s.ok()) return Fault(s);
    if (offset_ != Limit()) return Fault(absl::DataLossError("bytes after the last park"));
    if (!(checksum_.Value() == file_.trailer_.checksum)) {
      return At(absl::DataLossError("the checksum of the file differs"), file_.path_, 0);
    }
    return ReportWork(watch, all, all);
  }

 private:
  std::uint64_t Limit() const { return file_.trailer_.file_bytes - kContainerTrailerBytes; }

  // Damage in what began at begin_.
  absl::Status Fault(const absl::Status& status) const { return At(status, file_.path_, begin_); }

  absl::Status Read(char* data, std::size_t bytes) {
    if (bytes > Limit() - offset_) {
      return Fault(absl::DataLossError("goes on after the end of the file"));
    }
    const absl::Status read = disk::ReadExactly(file_.file_, data, bytes, offset_, file_.path_);
    if (!read.ok()) return read;
    checksum_.Add({data, bytes});
    offset_ += bytes;
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadString(std::size_t bytes) {
    // Compared before anything is allocated for it.
    if (bytes > Limit() - offset_) {
      return Fault(absl::DataLossError("goes on after the end of the file"));
    }
    std::string text(bytes, '\0');
    if (absl::Status s = Read(text.data(), bytes); !s.ok()) return s;
    return text;
  }

  absl::Status CheckHeader() {
    const absl::StatusOr<std::string> bytes = ReadString(kContainerHeaderBytes);
    if (!bytes.ok()) return bytes.status();
    if (*bytes != EncodeContainerHeader(file_.header_, file_.key_ != nullptr)) {
      return Fault(absl::DataLossError("the header has changed"));
    }
    return absl::OkStatus();
  }

  absl::Status SkipPadding() {
    begin_ = offset_;
    const absl::StatusOr<std::string> zeros =
        ReadString((kExtentAlignment - offset_ % kExtentAlignment) % kExtentAlignment);
    if (!zeros.ok()) return zeros.status();
    if (zeros->find_first_not_of('\0') != std::string::npos) {
      return Fault(absl::DataLossError("padding is not zero"));
    }
    begin_ = offset_;
    return absl::OkStatus();
  }

  absl::StatusOr<SegmentHead> ReadHead() {
    begin_ = offset_;
    std::uint64_t needed = 0;
    absl::StatusOr<SegmentHead> head = DecodeSegmentHead("", &needed, file_.key_.get());
    std::string bytes;
    while (absl::IsOutOfRange(head.status())) {
      const absl::StatusOr<std::string> more = ReadString(needed - bytes.size());
      if (!more.ok()) return more.status();
      bytes += *more;
      head = DecodeSegmentHead(bytes, &needed, file_.key_.get());
    }
    if (!head.ok()) return Fault(head.status());
    return head;
  }

  absl::Status WalkPark(const Visit& visit) {
    absl::StatusOr<SegmentHead> head = ReadHead();
    if (!head.ok()) return head.status();
    absl::StatusOr<ContainerReading::Park> park = reading_.Next(*head);
    if (!park.ok()) return Fault(park.status());
    std::vector<ExtentBytes> payload;
    for (const StoredExtent& extent : park->extents) {
      absl::StatusOr<ExtentBytes> raw =
          ReadExtent(head->sealer.get(), park->record.summary.key, extent);
      if (!raw.ok()) return raw.status();
      payload.push_back(*std::move(raw));
    }
    return visit ? visit(park->record, payload) : absl::OkStatus();
  }

  absl::StatusOr<ExtentBytes> ReadExtent(const Sealer* sealer, const ParkKey& key,
                                         const StoredExtent& extent) {
    if (absl::Status s = SkipPadding(); !s.ok()) return s;
    const absl::StatusOr<std::string> header = ReadString(kExtentHeaderBytes);
    if (!header.ok()) return header.status();
    if (sealer == nullptr) {
      if (absl::Status s = CheckExtentHeader(*header, key, extent); !s.ok()) return Fault(s);
    }
    begin_ = offset_;
    // Sealed bytes are opened where they are read to; their header is checked with them.
    const auto open = [&](char* bytes) {
      return sealer == nullptr
                 ? absl::OkStatus()
                 : OpenExtent(*sealer, *header, key, extent, {bytes, extent.stored_bytes}, bytes);
    };
    // Compared before anything is allocated for it.
    if (extent.stored_bytes > Limit() - offset_) {
      return Fault(absl::DataLossError("goes on after the end of the file"));
    }
    std::shared_ptr<ExtentBuffer> raw = MakeHeapBuffer(extent.info.raw_bytes);
    const auto span = absl::MakeSpan(raw->data(), raw->size());
    absl::Status status;
    if (extent.codec == Codec::kRaw) {
      status = Read(raw->data(), raw->size());
      if (!status.ok()) return status;
      status = open(raw->data());
    } else {
      absl::StatusOr<std::string> stored = ReadString(extent.stored_bytes);
      if (!stored.ok()) return stored.status();
      status = open(stored->data());
      if (status.ok()) status = Decompress(extent.codec, *stored, span);
    }
    if (status.ok() && !(Checksum(span) == extent.info.checksum)) {
      status = absl::DataLossError(absl::StrCat("the checksum of extent ", extent.ordinal,
                                                " of park ", key.park, " differs"));
    }
    if (!status.ok()) return Fault(status);
    return ExtentBytes(std::move(raw));
  }

  ContainerFile& file_;
  ContainerReading reading_;
  RunningChecksum checksum_;
  std::uint64_t offset_ = 0;
  std::uint64_t begin_ = 0;
};

absl::StatusOr<ContainerFile> ContainerFile::Open(const std::string& path,
                                                  const SharedSealKey& key) {
  ContainerFile container;
  container.path_ = path;
  // O_NONBLOCK: a pipe is refused, not waited for.
  container.file_ = disk::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!container.file_.valid()) {
    if (errno != ELOOP) return disk::ErrnoStatus(errno, path);
    return absl::InvalidArgumentError(path + " is a symbolic link; name the file itself");
  }
  struct stat info;
  if (::fstat(container.file_.get(), &info) != 0) return disk::ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(path + " is not a file");
  const auto file_bytes = static_cast<std::uint64_t>(info.st_size);
  std::string bytes(std::min<std::uint64_t>(file_bytes, kContainerHeaderBytes), '\0');
  absl::Status read = disk::ReadExactly(container.file_, bytes.data(), bytes.size(), 0, path);
  if (!read.ok()) return read;
  bool sealed = false;
  const absl::StatusOr<ContainerHeader> header = DecodeContainerHeader(bytes, &sealed);
  if (!header.ok()) return At(header.status(), path, 0);
  if (sealed && key == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is encrypted; give its key file"));
  }
  if (sealed) container.key_ = key;
  container.header_ = *header;
  if (file_bytes < kLeastContainerBytes) {
    return At(absl::DataLossError("the file is cut off"), path, file_bytes);
  }
  const std::uint64_t end = file_bytes - kContainerTrailerBytes;
  read = disk::ReadExactly(container.file_, bytes.data(), bytes.size(), end, path);
  if (!read.ok()) return read;
  const absl::StatusOr<ContainerTrailer> trailer = DecodeContainerTrailer(bytes, file_bytes);
  if (!trailer.ok()) {
    return At(absl::DataLossError(
                  absl::StrCat("the file is cut off or damaged: ", trailer.status().message())),
              path, end);
  }
  container.trailer_ = *trailer;
  return container;
}

absl::Status ContainerFile::Walk(const Visit& visit, const WorkWatch& watch) {
  return Walker(this).Run(visit, watch);
}

}  // namespace parkade
