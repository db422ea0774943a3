#include "tiers/disk/payload_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace parkade::disk {
namespace {

// What devices and file systems ask of O_DIRECT is never more than this.
constexpr std::uint64_t kSector = 4096;
// Below this, one read through the cache costs less than finding out.
constexpr std::uint64_t kSmallestDirect = 256u << 10;
constexpr std::uint64_t kLookEvery = 256u << 10;
// Linux takes up no more of one hint than the device's largest request or readahead.
constexpr std::uint64_t kAdviseBytes = 1u << 20;

}  // namespace

absl::StatusOr<PayloadFile> PayloadFile::Open(const Fd& folder, const std::string& name) {
  absl::StatusOr<Fd> cached = OpenAt(folder, name, O_RDONLY);
  if (!cached.ok()) return cached.status();
  struct stat info;
  if (folder.door().StatOpen(cached->get(), &info) != 0) return ErrnoStatus(errno, name);
  absl::StatusOr<Fd> direct = OpenAt(folder, name, O_RDONLY | O_DIRECT);
  // swallow: a file system without such reads; all of them go through the cache.
  if (!direct.ok()) direct = Fd();
  PayloadFile file(*std::move(cached), *std::move(direct), name);
  file.size_bytes_ = static_cast<std::uint64_t>(info.st_size);
  if (!file.direct_.valid() || file.size_bytes_ == 0) return file;
  void* pages = ::mmap(nullptr, file.size_bytes_, PROT_READ, MAP_SHARED, file.cached_.get(), 0);
  // swallow: all bytes go through the cache then, too.
  if (pages != MAP_FAILED) file.pages_ = static_cast<const unsigned char*>(pages);
  return file;
}

PayloadFile::PayloadFile(PayloadFile&& other) noexcept
    : cached_(std::move(other.cached_)),
      direct_(std::move(other.direct_)),
      name_(std::move(other.name_)),
      size_bytes_(other.size_bytes_),
      pages_(std::exchange(other.pages_, nullptr)) {}

PayloadFile::~PayloadFile() {
  if (pages_ != nullptr) ::munmap(const_cast<unsigned char*>(pages_), size_bytes_);
}

absl::Status PayloadFile::Read(absl::Span<char> to, std::uint64_t offset) const {
  return ReadExactly(cached_, to.data(), to.size(), offset, name_);
}

// Looks at some of the pages: to look at all of them costs a tenth of reading them. A read with
// RWF_NOWAIT would tell, too, but begins to read ahead what is not there.
bool PayloadFile::IsBestPastCache(std::uint64_t offset, std::uint64_t bytes) const {
  if (pages_ == nullptr || bytes < kSmallestDirect || offset + bytes > size_bytes_) return false;
  const std::uint64_t last = (offset + bytes - 1) / kSector * kSector;
  for (std::uint64_t at = offset / kSector * kSector;; at = std::min(at + kLookEvery, last)) {
    unsigned char resident = 1;
    // swallow: what can't be told is read through the cache.
    if (::mincore(const_cast<unsigned char*>(pages_) + at, 1, &resident) != 0) return false;
    if ((resident & 1) == 0) return true;
    if (at == last) return false;
  }
}

std::optional<std::size_t> PayloadFile::ReadPastCache(absl::Span<char> buffer, std::uint64_t offset,
                                                      std::uint64_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
  const std::size_t shift = (kSector - address % kSector) % kSector;
  const std::uint64_t begin = offset / kSector * kSector;
  const std::size_t skipped = offset - begin;
  const std::size_t asked = (skipped + bytes + kSector - 1) / kSector * kSector;
  if (buffer.size() < shift + asked) return std::nullopt;
  std::size_t done = 0;
  while (done < skipped + bytes) {
    const ssize_t got = direct_.door().Read(direct_.get(), buffer.data() + shift + done,
                                            asked - done, static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    // swallow: a read through the cache tells better what is wrong.
    if (got <= 0) return std::nullopt;
    done += static_cast<std::size_t>(got);
    // Only the file's last read ends within a sector.
    if (done < skipped + bytes && done % kSector != 0) return std::nullopt;
  }
  return shift + skipped;
}

void PayloadFile::FillCache(std::uint64_t offset, std::uint64_t bytes) const {
  for (std::uint64_t at = offset; at < offset + bytes; at += kAdviseBytes) {
    // swallow: a hint.
    if (::posix_fadvise(cached_.get(), static_cast<off_t>(at), kAdviseBytes, POSIX_FADV_WILLNEED) !=
        0) {
      return;
    }
  }
}

}  // namespace parkade::disk
