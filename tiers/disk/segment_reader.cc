#include "tiers/disk/segment_reader.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tiers/disk/rows.h"

namespace parkade::disk {
namespace {

constexpr std::size_t kFirstHeadBytes = 16u << 10;
constexpr std::size_t kKeptBuffers = 4;
// More segments than this are not remembered for refilling: 64 GiB.
constexpr std::size_t kMostUncached = 1024;

// The bytes somewhere inside a larger buffer.
class PartOfBuffer : public ExtentBuffer {
 public:
  PartOfBuffer(std::shared_ptr<ExtentBuffer> whole, std::size_t begin, std::size_t size)
      : ExtentBuffer(whole->data() + begin, size), whole_(std::move(whole)) {}

 private:
  const std::shared_ptr<ExtentBuffer> whole_;
};

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
    if (absl::Status s = ReadExactly(*fd, bytes.data(), bytes.size(), 0, path); !s.ok()) {
      return s;
    }
    std::uint64_t needed = 0;
    absl::StatusOr<SegmentHead> head = DecodeSegmentHead(bytes, &needed, directory_->key().get());
    if (absl::IsOutOfRange(head.status()) && needed <= file->size_bytes) {
      wanted = needed;
      continue;
    }
    if (absl::IsOutOfRange(head.status())) {
      return absl::DataLossError(absl::StrCat(path, ": shorter than its head"));
    }
    if (!head.ok()) {
      const absl::Status status = StatusInDirectory(head.status(), bytes);
      return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
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

absl::StatusOr<ExtentBytes> SegmentReader::ReadExtent(
    std::uint64_t segment, const ParkKey& key, const StoredExtent& extent,
    const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) {
  const absl::StatusOr<SharedFile> file = Open(segment);
  if (!file.ok()) return file.status();
  const std::size_t size = extent.info.raw_bytes;
  const bool past_cache =
      extent.codec == Codec::kRaw && (*file)->file.IsBestPastCache(extent.offset, size);
  std::shared_ptr<ExtentBuffer> buffer =
      allocate(past_cache ? size + PayloadFile::kSlackBytes : size);
  if (buffer->size() < size) {
    return absl::InvalidArgumentError("the buffer is smaller than what was asked for");
  }
  read_bytes_.fetch_add(extent.stored_bytes, std::memory_order_relaxed);
  const absl::StatusOr<std::size_t> begin = Read(**file, segment, key, extent, past_cache,
                                                 absl::MakeSpan(buffer->data(), buffer->size()));
  if (!begin.ok()) return begin.status();
  if (buffer->size() == size) return ExtentBytes(std::move(buffer));
  return ExtentBytes(std::make_shared<PartOfBuffer>(std::move(buffer), *begin, size));
}

// A sealed extent is read with its header, which stands right before it and holds the tag.
absl::StatusOr<std::size_t> SegmentReader::Read(const Segment& segment, std::uint64_t number,
                                                const ParkKey& key, const StoredExtent& extent,
                                                bool past_cache, absl::Span<char> buffer) {
  const std::size_t size = extent.info.raw_bytes;
  const std::size_t before = segment.sealer == nullptr ? 0 : kExtentHeaderBytes;
  std::optional<std::size_t> begin;
  if (past_cache) {
    begin = segment.file.ReadPastCache(buffer, extent.offset - before, before + size);
  }
  NoteRead(number, begin.has_value());
  if (extent.codec != Codec::kRaw) {
    const absl::Status read = ReadPacked(segment, key, extent, buffer.subspan(0, size));
    if (!read.ok()) return read;
    return 0;
  }
  std::string header(before, '\0');
  if (begin.has_value()) {
    header.assign(buffer.data() + *begin, before);
    *begin += before;
  } else {
    begin = 0;
    absl::Status read;
    if (before > 0) read = segment.file.Read(absl::MakeSpan(header), extent.offset - before);
    if (read.ok()) read = segment.file.Read(buffer.subspan(0, size), extent.offset);
    if (!read.ok()) return read;
  }
  if (segment.sealer == nullptr) return *begin;
  char* const bytes = buffer.data() + *begin;
  const absl::Status opened =
      OpenExtent(*segment.sealer, header, key, extent, {bytes, size}, bytes);
  if (!opened.ok()) return opened;
  return *begin;
}

absl::Status SegmentReader::ReadPacked(const Segment& segment, const ParkKey& key,
                                       const StoredExtent& extent, absl::Span<char> raw) {
  const std::size_t before = segment.sealer == nullptr ? 0 : kExtentHeaderBytes;
  const std::size_t size = before + extent.stored_bytes;
  std::string stored = TakeBuffer(size);
  absl::Status status =
      segment.file.Read(absl::MakeSpan(stored.data(), size), extent.offset - before);
  if (status.ok() && segment.sealer != nullptr) {
    char* const bytes = stored.data() + before;
    status = OpenExtent(*segment.sealer, std::string_view(stored.data(), before), key, extent,
                        {bytes, extent.stored_bytes}, bytes);
  }
  if (status.ok()) {
    status = Decompress(extent.codec, std::string_view(stored.data() + before, extent.stored_bytes),
                        raw);
  }
  GiveBuffer(std::move(stored));
  return status;
}

void SegmentReader::NoteRead(std::uint64_t segment, bool past_cache) {
  absl::MutexLock lock(&mutex_);
  last_read_ = absl::Now();
  if (!past_cache) return;
  const auto known = std::find_if(uncached_.rbegin(), uncached_.rend(),
                                  [segment](const Uncached& u) { return u.segment == segment; });
  if (known == uncached_.rend() && uncached_.size() < kMostUncached) {
    uncached_.push_back({segment, 0});
  }
}

absl::Time SegmentReader::last_read() const {
  absl::MutexLock lock(&mutex_);
  return last_read_;
}

std::uint64_t SegmentReader::RefillCache(std::uint64_t bytes) {
  std::uint64_t asked = 0;
  while (asked < bytes) {
    Uncached next;
    {
      absl::MutexLock lock(&mutex_);
      if (uncached_.empty()) return asked;
      next = uncached_.front();
      uncached_.pop_front();
    }
    // swallow: removed meanwhile; there is nothing to have in the cache.
    const absl::StatusOr<SharedFile> file = Open(next.segment);
    if (!file.ok()) continue;
    const std::uint64_t part = std::min((*file)->file.size_bytes() - next.done, bytes - asked);
    (*file)->file.FillCache(next.done, part);
    asked += part;
    if (next.done + part == (*file)->file.size_bytes()) continue;
    absl::MutexLock lock(&mutex_);
    uncached_.push_front({next.segment, next.done + part});
  }
  return asked;
}

void SegmentReader::Advise(std::uint64_t segment) {
  // swallow: a hint.
  const absl::StatusOr<SharedFile> file = Open(segment);
  if (file.ok()) (*file)->file.FillCache(0, (*file)->file.size_bytes());
}

void SegmentReader::Drop(std::uint64_t segment) {
  SharedFile closing;  // closed after the lock is free
  absl::MutexLock lock(&mutex_);
  auto it = open_.find(segment);
  if (it == open_.end()) return;
  closing = std::move(it->second.file);
  recent_.erase(it->second.place);
  open_.erase(it);
}

void SegmentReader::DropAll() {
  absl::flat_hash_map<std::uint64_t, Entry> closing;  // closed after the lock is free
  absl::MutexLock lock(&mutex_);
  closing.swap(open_);
  recent_.clear();
  uncached_.clear();
}

absl::StatusOr<SegmentReader::SharedFile> SegmentReader::Open(std::uint64_t segment) {
  {
    absl::MutexLock lock(&mutex_);
    auto it = open_.find(segment);
    if (it != open_.end()) {
      recent_.splice(recent_.begin(), recent_, it->second.place);
      return it->second.file;
    }
  }
  absl::StatusOr<PayloadFile> opened = PayloadFile::Open(directory_->root(), SegmentPath(segment));
  if (absl::IsNotFound(opened.status())) return absl::DataLossError(opened.status().message());
  if (!opened.ok()) return opened.status();
  absl::StatusOr<SharedSealer> sealer = ReadSealer(*opened);
  if (!sealer.ok()) return sealer.status();
  auto file = std::make_shared<const Segment>(Segment{*std::move(opened), *std::move(sealer)});
  SharedFile closing;
  absl::MutexLock lock(&mutex_);
  auto [it, inserted] = open_.try_emplace(segment);
  if (!inserted) return it->second.file;
  recent_.push_front(segment);
  it->second = {file, recent_.begin()};
  if (open_.size() > kOpenSegments) {
    auto oldest = open_.find(recent_.back());
    closing = std::move(oldest->second.file);
    open_.erase(oldest);
    recent_.pop_back();
  }
  return file;
}

absl::StatusOr<SharedSealer> SegmentReader::ReadSealer(const PayloadFile& file) const {
  if (directory_->key() == nullptr) return SharedSealer();
  std::string front(kSegmentSealBytes, '\0');
  if (absl::Status s = file.Read(absl::MakeSpan(front), 0); !s.ok()) return s;
  absl::StatusOr<SharedSealer> sealer = DecodeSegmentSealer(front, directory_->key().get());
  if (!sealer.ok()) return StatusInDirectory(sealer.status(), front);
  return sealer;
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
