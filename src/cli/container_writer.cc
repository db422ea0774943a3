#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/cli/container_file.h"
#include "src/format/checksum.h"

namespace parkade {
namespace {

absl::Status ThereAlready(const std::string& path) {
  return absl::AlreadyExistsError(absl::StrCat(path, " is there already; --force replaces it"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ContainerWriter>> ContainerWriter::Create(const std::string& path,
                                                                         bool replace,
                                                                         SharedSealKey key) {
  std::unique_ptr<ContainerWriter> writer(new ContainerWriter());
  const std::size_t slash = path.rfind('/');
  const std::string folder = disk::ParentFolder(path);
  writer->path_ = path;
  writer->name_ = slash == std::string::npos ? path : path.substr(slash + 1);
  writer->replace_ = replace;
  writer->key_ = std::move(key);
  if (writer->name_.empty() || writer->name_ == "." || writer->name_ == "..") {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not the name of a file"));
  }
  writer->folder_ = disk::Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!writer->folder_.valid()) return disk::ErrnoStatus(errno, folder);
  struct stat info;
  if (::fstatat(writer->folder_.get(), writer->name_.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    // A device, a pipe or a link would be gone.
    if (!S_ISREG(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is there and is not a plain file"));
    }
    if (!replace) return ThereAlready(path);
  }
  const std::string random = ToHex(RandomDigest()).substr(0, 16);
  writer->temporary_name_ = absl::StrCat(writer->name_, ".tmp-", random);
  absl::StatusOr<disk::Fd> file =
      disk::OpenAt(writer->folder_, writer->temporary_name_, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.ok()) return file.status();
  writer->file_ = *std::move(file);
  return writer;
}

ContainerWriter::~ContainerWriter() {
  // swallow: what failed before was told; nothing can be done about a file that can't be removed.
  if (!committed_ && file_.valid()) (void)::unlinkat(folder_.get(), temporary_name_.c_str(), 0);
}

absl::Status ContainerWriter::Put(std::string_view bytes) {
  checksum_.Add(bytes);
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return disk::ErrnoStatus(written == 0 ? EIO : errno, path_);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status ContainerWriter::PutPadding() {
  static constexpr char kZeros[kExtentAlignment] = {};
  return Put({kZeros, (kExtentAlignment - bytes_ % kExtentAlignment) % kExtentAlignment});
}

absl::Status ContainerWriter::Begin(const ContainerHeader& header, const StoredIdentity& identity,
                                    const ConversationAttributes& attributes) {
  if (absl::Status s = Put(EncodeContainerHeader(header, key_ != nullptr)); !s.ok()) return s;
  return Put(EncodeContainerOpening(header, identity, attributes, key_));
}

absl::Status ContainerWriter::AddPark(const ParkRecord& record, std::vector<StoredExtent> extents,
                                      absl::Span<const std::string> stored) {
  const absl::StatusOr<ContainerPark> park = LayOutContainerPark(record, std::move(extents), key_);
  if (!park.ok()) return park.status();
  if (absl::Status s = PutPadding(); !s.ok()) return s;
  if (absl::Status s = Put(park->head); !s.ok()) return s;
  for (std::size_t i = 0; i < park->extents.size(); ++i) {
    // The head's size is a multiple of the alignment, so both count from the same places.
    if (absl::Status s = PutPadding(); !s.ok()) return s;
    const absl::Status put =
        PutExtent(park->sealer.get(), record.summary.key, park->extents[i], stored[i]);
    if (!put.ok()) return put;
  }
  ++parks_;
  tokens_ = std::max(tokens_, record.summary.end_token());
  return absl::OkStatus();
}

absl::Status ContainerWriter::PutExtent(const Sealer* sealer, const ParkKey& key,
                                        const StoredExtent& extent, const std::string& stored) {
  if (sealer == nullptr) {
    const absl::Status put = Put(EncodeExtentHeader(key, extent));
    return put.ok() ? Put(stored) : put;
  }
  std::string sealed(stored.size(), '\0');
  const absl::Status put = Put(SealExtent(*sealer, key, extent, stored, sealed.data()));
  return put.ok() ? Put(sealed) : put;
}

absl::Status ContainerWriter::Rename() {
  const int folder = folder_.get();
  const char* from = temporary_name_.c_str();
  const char* to = name_.c_str();
  if (replace_) {
    return ::renameat(folder, from, folder, to) == 0 ? absl::OkStatus()
                                                     : disk::ErrnoStatus(errno, path_);
  }
  if (::renameat2(folder, from, folder, to, RENAME_NOREPLACE) == 0) return absl::OkStatus();
  if (errno == EEXIST) return ThereAlready(path_);
  if (errno != EINVAL && errno != ENOSYS) return disk::ErrnoStatus(errno, path_);
  // A file system that can't do it in one step.
  if (::faccessat(folder, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return ThereAlready(path_);
  return ::renameat(folder, from, folder, to) == 0 ? absl::OkStatus()
                                                   : disk::ErrnoStatus(errno, path_);
}

absl::StatusOr<std::uint64_t> ContainerWriter::Commit() {
  if (absl::Status s = PutPadding(); !s.ok()) return s;
  ContainerTrailer trailer;
  trailer.parks = parks_;
  trailer.tokens = tokens_;
  trailer.file_bytes = bytes_ + kContainerTrailerBytes;
  trailer.checksum = checksum_.Value();
  if (absl::Status s = Put(EncodeContainerTrailer(trailer)); !s.ok()) return s;
  if (::fsync(file_.get()) != 0) return disk::ErrnoStatus(errno, path_);
  if (absl::Status s = Rename(); !s.ok()) return s;
  committed_ = true;
  if (absl::Status s = disk::SyncFolder(folder_, path_); !s.ok()) return s;
  return bytes_;
}

}  // namespace parkade
