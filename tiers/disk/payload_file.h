// A segment that is read for its payload: what the system's cache holds comes from there, the rest
// straight from the medium.
//
// Filling the cache costs a read more than half of its speed where memory has to be found first
// (always in a virtual machine that gives free memory back), and pushes out what others need, the
// model's file above all. What was read past the cache may be put into free memory later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tiers/disk/file_io.h"

namespace parkade::disk {

// Thread safe.
class PayloadFile {
 public:
  // What a buffer for ReadPastCache must have beyond the bytes wanted: devices read whole sectors,
  // to addresses of whole sectors.
  static constexpr std::size_t kSlackBytes = 3 * 4096;

  static absl::StatusOr<PayloadFile> Open(const Fd& folder, const std::string& name);
  PayloadFile(PayloadFile&& other) noexcept;
  PayloadFile& operator=(PayloadFile&&) = delete;
  ~PayloadFile();

  // Exactly to.size() bytes, through the cache. The file's end or an I/O error before that:
  // DataLoss.
  absl::Status Read(absl::Span<char> to, std::uint64_t offset) const;

  // Whether a read of that part is better done past the cache: the cache lacks it, it is long
  // enough, and the file system can.
  bool IsBestPastCache(std::uint64_t offset, std::uint64_t bytes) const;
  // Reads `bytes` bytes to somewhere in `buffer`, which has room for kSlackBytes more, and returns
  // where they begin. Nothing: not to be had this way; Read says why.
  std::optional<std::size_t> ReadPastCache(absl::Span<char> buffer, std::uint64_t offset,
                                           std::uint64_t bytes) const;

  // Asks the system to read a part of the file into its cache; returns before it has.
  void FillCache(std::uint64_t offset, std::uint64_t bytes) const;
  // When it was opened; segments don't grow.
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  PayloadFile(Fd cached, Fd direct, std::string name)
      : cached_(std::move(cached)), direct_(std::move(direct)), name_(std::move(name)) {}

  Fd cached_;
  Fd direct_;  // invalid where the file system has no such reads
  std::string name_;
  std::uint64_t size_bytes_ = 0;
  // The file, mapped so that mincore can tell what the cache holds; never looked into, where a page
  // that can't be read would end the process. Null: there is nothing to choose.
  const unsigned char* pages_ = nullptr;
};

}  // namespace parkade::disk
