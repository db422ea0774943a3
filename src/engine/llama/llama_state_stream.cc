#include "src/engine/llama/llama_state_stream.h"

#include <cstring>
#include <exception>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ggml.h"
#include "llama-hparams.h"
#include "llama-io.h"
#include "llama-kv-cache.h"
#include "llama-memory.h"
#include "llama.h"

namespace parkade {
namespace {

static_assert(std::is_same_v<llama_pos, std::int32_t> &&
                  std::is_same_v<llama_token, std::int32_t> && LLAMA_TOKEN_NULL == kNoToken,
              "state_header.h writes these numbers without llama.cpp's headers");

class RecordingWriter : public llama_io_write_i {
 public:
  void write(const void* src, size_t size) override {
    const char* bytes = static_cast<const char*>(src);
    header_.insert(header_.end(), bytes, bytes + size);
    total_ += size;
  }
  void write_tensor(ggml_tensor* tensor, size_t offset, size_t size) override {
    runs_.push_back({tensor, offset, size});
    total_ += size;
  }
  size_t n_bytes() override { return total_; }

  const std::vector<char>& header() const { return header_; }
  const std::vector<TensorRun>& runs() const { return runs_; }

 private:
  std::vector<char> header_;
  std::vector<TensorRun> runs_;
  size_t total_ = 0;
};

// Answers from a header made by us; throws when llama.cpp reads past it, as its own readers do.
class RecordingReader : public llama_io_read_i {
 public:
  explicit RecordingReader(std::vector<char> header) : header_(std::move(header)) {}
  void read(void* dst, size_t size) override {
    if (size > header_.size() - next_) throw std::runtime_error("state stream is longer than ours");
    std::memcpy(dst, header_.data() + next_, size);
    next_ += size;
    total_ += size;
  }
  void read_tensor(ggml_tensor* tensor, size_t offset, size_t size) override {
    runs_.push_back({tensor, offset, size});
    total_ += size;
  }
  void discard() override { runs_.clear(); }
  size_t n_bytes() override { return total_; }

  bool finished() const { return next_ == header_.size(); }
  const std::vector<TensorRun>& runs() const { return runs_; }

 private:
  std::vector<char> header_;
  size_t next_ = 0;
  std::vector<TensorRun> runs_;
  size_t total_ = 0;
};

}  // namespace

absl::StatusOr<SectionRows> LocateRows(const MemorySection& section, std::int32_t sequence,
                                       std::uint32_t tokens, const TokenPlaces* places) {
  const llama_pos last = section.memory->seq_pos_max(sequence);
  if (absl::Status s = CheckPlaces(section, tokens, places); !s.ok()) return s;
  if (tokens == 0 || last != LastPosition(places, tokens)) {
    return absl::FailedPreconditionError(
        absl::StrCat("memory ends at position ", last, ", the sequence has ", tokens, " tokens"));
  }
  RecordingWriter writer;
  // Sequence -1 lifts the window mask, so rows beyond the window that are still there are seen; on
  // recurrent memory it would hand out other sequences' states.
  const bool kv = section.kind == MemorySection::Kind::kKv;
  try {
    section.memory->state_write(writer, kv ? -1 : sequence, 0);
  } catch (const std::exception& error) {
    return UnexpectedStream(section, error.what());
  }
  return kv ? ParseKvHeader(section, writer.header(), writer.runs(), sequence, tokens, places)
            : ParseStateHeader(section, writer.header(), writer.runs(), tokens, places);
}

bool WritesState(const MemorySection& section) {
  RecordingWriter writer;
  section.memory->state_write(writer, 0, 0);
  return writer.n_bytes() > 0;
}

std::uint32_t UsableCells(const MemorySection& section, std::int32_t sequence) {
  const auto& cells = static_cast<llama_kv_cache*>(section.memory)->get_cells(sequence);
  std::uint32_t usable = cells.size() - cells.get_used();
  if (section.mask_tokens == 0) return usable;
  const auto type = static_cast<llama_swa_type>(section.mask_type);
  for (std::uint32_t i = 0; i < cells.size(); ++i) {
    if (cells.is_empty(i) || cells.seq_count(i) != 1) continue;
    const llama_pos next = cells.seq_pos_max(cells.seq_get(i)) + 1;
    usable += llama_hparams::is_masked_swa(section.mask_tokens, type, cells.pos_get(i), next);
  }
  return usable;
}

absl::StatusOr<SectionRows> PlaceRows(const MemorySection& section, std::int32_t sequence,
                                      TokenRange range, const TokenPlaces* places) {
  const bool kv = section.kind == MemorySection::Kind::kKv;
  const std::uint32_t tokens = kv ? range.end : range.begin;
  if (absl::Status s = CheckPlaces(section, tokens, places); !s.ok()) return s;
  std::vector<char> header;
  if (kv) {
    // Asked first, so that a full cache is a quiet miss.
    const std::uint32_t usable = UsableCells(section, sequence);
    if (range.size() > usable) {
      return absl::ResourceExhaustedError(
          absl::StrCat(range.size(), " rows needed, ", usable, " cells free"));
    }
    const auto* cache = static_cast<llama_kv_cache*>(section.memory);
    header = KvHeader(section, cache->get_n_stream(), range, places);
  } else {
    header = StateHeader(section, range.begin, places);
  }
  RecordingReader reader(std::move(header));
  try {
    section.memory->state_read(reader, sequence, kv ? 0 : LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
  } catch (const std::exception& error) {
    section.memory->seq_rm(sequence, -1, -1);
    return absl::ResourceExhaustedError(absl::StrCat("llama.cpp refused: ", error.what()));
  }
  absl::StatusOr<SectionRows> rows = reader.finished()
                                         ? ParsePlacedRows(section, reader.runs(), range)
                                         : UnexpectedStream(section, "length when read");
  if (!rows.ok()) section.memory->seq_rm(sequence, -1, -1);
  return rows;
}

}  // namespace parkade
