#include "tiers/disk/segment_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parkade::disk {
namespace {

constexpr std::size_t kFirstHeadBytes = 16u << 10;
constexpr std::size_t kKeptBuffers = 4;
// Linux takes up no more of one hint than the device's largest request or readahead.
constexpr off_t kAdviseBytes = 1 << 20;

}  // namespace

absl::StatusOr<SegmentHead> SegmentReader::ReadHead(std::uint64_t segment) const {
  const std::string path = SegmentPath(segment);
  absl::StatusOr<SegmentFile> file = directory_->Stat(segment);
  if (!file.ok()) return file.status();
  absl::StatusOr<Fd> fd = OpenAt(directory_->root(), path, O_RDONLY);
  if (!fd.ok()) return fd.status();
  std::uint64_t wanted = kFirstHeadBytes;
  for (int round = 0; round < 3; ++round) {
    std::string bytes(std::min(wanted, file->size_bytes), '\0');
    if (absl::Status s = ReadExactly(fd->get(), bytes.data(), bytes.size(), 0, path); !s.ok()) {
      return s;
    }
    std::uint64_t needed = 0;
    absl::StatusOr<SegmentHead> head = DecodeSegmentHead(bytes, &needed);
    if (absl::IsOutOfRange(head.status()) && needed <= file->size_bytes) {
      wanted = needed;
      continue;
    }
    if (absl::IsOutOfRange(head.status())) {
      return absl::DataLossError(absl::StrCat(path, ": shorter than its head"));
    }
    if (!head.ok()) {
      return absl::Status(head.status().code(), absl::StrCat(path, ": ", head.status().message()));
    }
    if (head->segment != segment) {
      return absl::DataLossError(absl::StrCat(path, ": holds another segment's bytes"));
    }
    if (head->head_bytes + head->payload_bytes != file->size_bytes) {
      return absl::DataLossError(absl::StrCat(path, ": is ", file->size_bytes, " bytes, not ",
                                              head->head_bytes + head->payload_bytes));
    }
    return head;
  }
  return absl::DataLossError(absl::StrCat(path, ": its head has no end"));
}

absl::Status SegmentReader::ReadExtent(std::uint64_t segment, const StoredExtent& extent,
                                       absl::Span<char> raw) {
  absl::StatusOr<SharedFd> fd = Open(segment);
  if (!fd.ok()) return fd.status();
  const std::string path = SegmentPath(segment);
  read_bytes_.fetch_add(extent.stored_bytes, std::memory_order_relaxed);
  if (extent.codec == Codec::kRaw) {
    return ReadExactly((*fd)->get(), raw.data(), raw.size(), extent.offset, path);
  }
  std::string stored = TakeBuffer(extent.stored_bytes);
  absl::Status status =
      ReadExactly((*fd)->get(), stored.data(), extent.stored_bytes, extent.offset, path);
  if (status.ok()) {
    status = Decompress(extent.codec, std::string_view(stored.data(), extent.stored_bytes), raw);
  }
  GiveBuffer(std::move(stored));
  return status;
}

absl::Status SegmentReader::ReadStored(std::uint64_t segment, const StoredExtent& extent,
                                       std::string* header, std::string* stored) {
  absl::StatusOr<SharedFd> fd = Open(segment);
  if (!fd.ok()) return fd.status();
  const std::string path = SegmentPath(segment);
  header->resize(kExtentHeaderBytes);
  stored->resize(extent.stored_bytes);
  read_bytes_.fetch_add(kExtentHeaderBytes + extent.stored_bytes, std::memory_order_relaxed);
  if (extent.offset < kExtentHeaderBytes) return absl::DataLossError(path + ": offset too small");
  if (absl::Status s = ReadExactly((*fd)->get(), header->data(), header->size(),
                                   extent.offset - kExtentHeaderBytes, path);
      !s.ok()) {
    return s;
  }
  return ReadExactly((*fd)->get(), stored->data(), stored->size(), extent.offset, path);
}

void SegmentReader::Advise(std::uint64_t segment) {
  absl::StatusOr<SharedFd> fd = Open(segment);
  struct stat info;
  // swallow: a hint.
  if (!fd.ok() || ::fstat((*fd)->get(), &info) != 0) return;
  for (off_t at = 0; at < info.st_size; at += kAdviseBytes) {
    if (::posix_fadvise((*fd)->get(), at, kAdviseBytes, POSIX_FADV_WILLNEED) != 0) return;
  }
}

void SegmentReader::Drop(std::uint64_t segment) {
  SharedFd closing;  // closed after the lock is free
  absl::MutexLock lock(&mutex_);
  auto it = open_.find(segment);
  if (it == open_.end()) return;
  closing = std::move(it->second.fd);
  recent_.erase(it->second.place);
  open_.erase(it);
}

absl::StatusOr<SegmentReader::SharedFd> SegmentReader::Open(std::uint64_t segment) {
  {
    absl::MutexLock lock(&mutex_);
    auto it = open_.find(segment);
    if (it != open_.end()) {
      recent_.splice(recent_.begin(), recent_, it->second.place);
      return it->second.fd;
    }
  }
  absl::StatusOr<Fd> opened = OpenAt(directory_->root(), SegmentPath(segment), O_RDONLY);
  if (absl::IsNotFound(opened.status())) return absl::DataLossError(opened.status().message());
  if (!opened.ok()) return opened.status();
  auto fd = std::make_shared<const Fd>(std::move(opened).value());
  SharedFd closing;
  absl::MutexLock lock(&mutex_);
  auto [it, inserted] = open_.try_emplace(segment);
  if (!inserted) return it->second.fd;
  recent_.push_front(segment);
  it->second = {fd, recent_.begin()};
  if (open_.size() > kOpenSegments) {
    auto oldest = open_.find(recent_.back());
    closing = std::move(oldest->second.fd);
    open_.erase(oldest);
    recent_.pop_back();
  }
  return fd;
}

std::string SegmentReader::TakeBuffer(std::size_t size) {
  std::string buffer;
  {
    absl::MutexLock lock(&mutex_);
    if (!buffers_.empty()) {
      buffer = std::move(buffers_.back());
      buffers_.pop_back();
    }
  }
  if (buffer.size() < size) buffer.resize(size);
  return buffer;
}

void SegmentReader::GiveBuffer(std::string buffer) {
  absl::MutexLock lock(&mutex_);
  if (buffers_.size() < kKeptBuffers) buffers_.push_back(std::move(buffer));
}

}  // namespace parkade::disk
