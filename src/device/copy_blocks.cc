#include "src/device/copy_blocks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parkade {
namespace {

absl::Status Check(const PlaneRun& run) {
  const PlaneRows& plane = *run.plane;
  if (plane.row_bytes == 0 || plane.row_stride < plane.row_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of ", plane.row_bytes, " bytes, ", plane.row_stride, " bytes apart"));
  }
  const std::uint64_t size = plane.rows * plane.row_bytes;
  if (run.begin > size || run.bytes > size - run.begin) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bytes [", run.begin, ", ", run.begin + run.bytes, ") of a plane of ", size, " bytes"));
  }
  return absl::OkStatus();
}

class Expander {
 public:
  explicit Expander(std::vector<CopyBlock>* blocks) : blocks_(blocks) {}

  absl::Status Add(const PlaneRun& run) {
    if (absl::Status s = Check(run); !s.ok()) return s;
    const PlaneRows& plane = *run.plane;
    if (plane.page_rows == 0) {
      AddPiece(plane, plane.base, run.begin, run.bytes, run.host_offset);
      return absl::OkStatus();
    }
    const std::uint64_t page_bytes = plane.page_rows * plane.row_bytes;
    for (std::uint64_t done = 0; done < run.bytes;) {
      const std::uint64_t at = run.begin + done;
      const std::uint64_t page = at / page_bytes;
      const std::uint64_t within = at % page_bytes;
      const std::uint64_t bytes = std::min(run.bytes - done, page_bytes - within);
      if (page >= plane.pages.size() || plane.pages[page] < 0) {
        return absl::InvalidArgumentError(absl::StrCat("page ", page, " is not there"));
      }
      char* base = plane.base + static_cast<std::uint64_t>(plane.pages[page]) * plane.page_stride;
      AddPiece(plane, base, within, bytes, run.host_offset + done);
      done += bytes;
    }
    return absl::OkStatus();
  }

 private:
  // Bytes [begin, begin + bytes) of the rows that begin at `base`.
  void AddPiece(const PlaneRows& plane, char* base, std::uint64_t begin, std::uint64_t bytes,
                std::uint64_t host_offset) {
    const std::uint64_t width = plane.row_bytes;
    const std::uint64_t stride = plane.row_stride;
    if (stride == width) return AddRow(base + begin, host_offset, bytes);
    if (const std::uint64_t within = begin % width; within > 0 && bytes > 0) {
      const std::uint64_t head = std::min(bytes, width - within);
      AddRow(base + begin / width * stride + within, host_offset, head);
      begin += head;
      host_offset += head;
      bytes -= head;
    }
    char* row = base + begin / width * stride;
    if (const std::uint64_t rows = bytes / width; rows > 0) {
      blocks_->push_back({row, host_offset, stride, width, rows});
      row += rows * stride;
      host_offset += rows * width;
      bytes -= rows * width;
    }
    AddRow(row, host_offset, bytes);
  }

  void AddRow(char* device, std::uint64_t host_offset, std::uint64_t bytes) {
    if (bytes == 0) return;
    if (!blocks_->empty()) {
      CopyBlock& last = blocks_->back();
      if (last.rows == 1 && last.device + last.width == device &&
          last.host_offset + last.width == host_offset) {
        last.width += bytes;
        last.stride = last.width;
        return;
      }
    }
    blocks_->push_back({device, host_offset, bytes, bytes, 1});
  }

  std::vector<CopyBlock>* const blocks_;
};

}  // namespace

absl::Status ExpandRuns(absl::Span<const PlaneRun> runs, std::vector<CopyBlock>* blocks) {
  blocks->clear();
  Expander expander(blocks);
  for (const PlaneRun& run : runs) {
    if (absl::Status s = expander.Add(run); !s.ok()) {
      blocks->clear();
      return s;
    }
  }
  return absl::OkStatus();
}

std::vector<CopyBlock> CutToPieces(absl::Span<const CopyBlock> blocks, std::uint64_t most_bytes) {
  std::vector<CopyBlock> pieces;
  for (const CopyBlock& block : blocks) {
    const std::uint64_t most_rows = std::max<std::uint64_t>(1, most_bytes / block.width);
    for (std::uint64_t row = 0; row < block.rows; row += most_rows) {
      const std::uint64_t rows = std::min(most_rows, block.rows - row);
      char* device = block.device + row * block.stride;
      const std::uint64_t host_offset = block.host_offset + row * block.width;
      if (block.width <= most_bytes) {
        pieces.push_back({device, host_offset, block.stride, block.width, rows});
        continue;
      }
      for (std::uint64_t at = 0; at < block.width; at += most_bytes) {
        const std::uint64_t bytes = std::min(most_bytes, block.width - at);
        pieces.push_back({device + at, host_offset + at, bytes, bytes, 1});
      }
    }
  }
  return pieces;
}

}  // namespace parkade
