// Rows of one stage, between the memory of its device and packed bytes in the host's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace parkade {

// Where a plane's rows lie in the memory of a copier's device: flat, or in pages.
struct PlaneRows {
  char* base = nullptr;
  std::uint32_t rows = 0;  // [0, rows) may be copied
  std::uint64_t row_bytes = 0;
  std::uint64_t row_stride = 0;  // bytes from a row to the next one, at least row_bytes
  // Paged: row r is row r % page_rows of page pages[r / page_rows], and page p begins
  // p * page_stride bytes after `base`. 0: flat, row r begins r * row_stride bytes after `base`.
  std::uint32_t page_rows = 0;
  std::uint64_t page_stride = 0;
  std::vector<std::int32_t> pages;  // negative: that page is not there
};

// A run of a plane's bytes, its rows put one behind the other: row r begins at r * row_bytes. In
// the host's memory it lies `host_offset` bytes after what the call is given.
struct PlaneRun {
  const PlaneRows* plane = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  std::uint64_t host_offset = 0;
};

// Of one stage. Thread compatible. Copies are made in the order of the calls and may still be under
// way when these return; Wait ends that. What `runs` point to is not needed after the call.
class StageCopier {
 public:
  virtual ~StageCopier() = default;  // waits

  // As shown: "host", "cuda0".
  virtual const std::string& name() const = 0;

  // Out of the device, after all that the engine had queued on its stream. `host` must live until
  // Wait. InvalidArgument: a run leaves its plane's rows or names a page that is not there; nothing
  // is copied then.
  virtual absl::Status CopyOut(absl::Span<const PlaneRun> runs, char* host) = 0;
  // Into the device. `host` lives as long as `owner`, which is let go, on any thread, when the
  // bytes have been read. Null: until Wait.
  virtual absl::Status CopyIn(absl::Span<const PlaneRun> runs, const char* host,
                              std::shared_ptr<const void> owner) = 0;
  // Until all is copied. On an error of the device the destinations of all calls since the last
  // Wait hold undefined bytes; all owners are let go. Unavailable: the device answers no more, and
  // every later call fails alike.
  virtual absl::Status Wait() = 0;
};

// For planes in the host's memory: copies at once, any alignment.
std::unique_ptr<StageCopier> NewHostCopier();

}  // namespace parkade
