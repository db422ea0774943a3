#include "src/engine/llama/state_header.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parkade {
namespace {

// Reads the fixed-size numbers of a recorded header. After the first failed read everything is 0.
class HeaderCursor {
 public:
  explicit HeaderCursor(absl::Span<const char> header) : header_(header) {}
  template <typename T>
  T Read() {
    T value{};
    if (failed_ || sizeof(T) > header_.size() - next_) {
      failed_ = true;
      return value;
    }
    std::memcpy(&value, header_.data() + next_, sizeof(T));
    next_ += sizeof(T);
    return value;
  }
  bool failed() const { return failed_; }
  bool finished() const { return !failed_ && next_ == header_.size(); }

 private:
  const absl::Span<const char> header_;
  std::size_t next_ = 0;
  bool failed_ = false;
};

// Takes the runs of one plane off `runs` until `rows` rows are covered. The first plane fixes the
// rows' places; every other plane must lie the same way.
absl::Status TakeRuns(const MemorySection& section, const WirePlane& plane, std::uint64_t rows,
                      absl::Span<const TensorRun> runs, std::size_t* next, bool first_plane,
                      SectionRows* out) {
  ggml_tensor* tensor = nullptr;
  std::uint64_t row = 0;
  while (row < rows) {
    if (*next >= runs.size()) return UnexpectedStream(section, "too few tensor rows");
    const TensorRun& run = runs[(*next)++];
    if (tensor != nullptr && tensor != run.tensor) {
      return UnexpectedStream(section, "one plane in two tensors");
    }
    tensor = run.tensor;
    if (plane.row_bytes == 0) {
      // Nothing can be counted here; llama.cpp hands one run of no bytes for each range of cells,
      // and state, the only section with such planes, has one row.
      if (run.bytes != 0 || rows != 1) return UnexpectedStream(section, "bytes in an empty plane");
      break;
    }
    if (run.bytes == 0 || run.bytes % plane.row_bytes != 0 || run.offset % plane.row_bytes != 0) {
      return UnexpectedStream(section, "a run that is no whole number of rows");
    }
    const std::uint64_t count = run.bytes / plane.row_bytes;
    const std::uint64_t begin = run.offset / plane.row_bytes;
    if (count > rows - row) return UnexpectedStream(section, "too many tensor rows");
    for (std::uint64_t i = 0; i < count; ++i, ++row) {
      const auto cell = static_cast<std::uint32_t>(begin + i);
      if (first_plane) {
        out->cells.push_back(cell);
      } else if (out->cells[row] != cell) {
        return UnexpectedStream(section, "planes that lie differently");
      }
    }
  }
  out->tensors.push_back(tensor);
  return absl::OkStatus();
}

// True until a plane with bytes has fixed the rows' places.
bool PlacesUnknown(const SectionRows& rows) { return rows.cells.empty(); }

absl::Status ParsePlanes(const MemorySection& section, std::uint64_t rows, HeaderCursor* cursor,
                         absl::Span<const TensorRun> runs, std::size_t* next_run,
                         SectionRows* out) {
  if (cursor->Read<std::uint32_t>() != 0) return UnexpectedStream(section, "transposed values");
  if (cursor->Read<std::uint32_t>() != section.layers)
    return UnexpectedStream(section, "layer count");
  for (const WirePlane& plane : section.planes) {
    // The second convolution history carries no type of its own.
    if (plane.kind != PlaneKind::kExtra && cursor->Read<std::int32_t>() != plane.type) {
      return UnexpectedStream(section, absl::StrCat("type of layer ", plane.layer));
    }
    if (cursor->Read<std::uint64_t>() != plane.row_bytes) {
      return UnexpectedStream(section, absl::StrCat("row size of layer ", plane.layer));
    }
    absl::Status status = TakeRuns(section, plane, rows, runs, next_run, PlacesUnknown(*out), out);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The place of a token; `places` null: its position is its number.
CellPlace PlaceOf(const TokenPlaces* places, std::uint32_t token) {
  if (places != nullptr) return (*places)[token];
  const auto position = static_cast<std::int32_t>(token);
  return {position, position, position, kNoToken};
}

struct KvCell {
  std::int32_t position = 0;
  std::int32_t x = 0;
  std::int32_t y = 0;
  std::uint32_t index = 0;  // in stream order
};

// Rows of the sequence in one stream, turned into the gap-free run that ends before `tokens`.
absl::Status KeepTail(const std::vector<KvCell>& mine, std::uint32_t tokens,
                      const TokenPlaces* places, SectionRows* rows) {
  constexpr std::uint32_t kNone = 0xffffffffu;
  std::vector<std::uint32_t> by_token(tokens, kNone);
  std::uint32_t hint = 0;
  for (const KvCell& cell : mine) {
    const std::uint32_t token = places != nullptr
                                    ? places->Find(cell.position, cell.x, cell.y, &hint)
                                    : static_cast<std::uint32_t>(cell.position);
    if (cell.position < 0 || token >= tokens) {
      return absl::FailedPreconditionError(
          absl::StrCat("memory holds position ", cell.position, " of ", tokens, " tokens"));
    }
    std::uint32_t& place = by_token[token];
    if (place != kNone) {
      return absl::FailedPreconditionError(
          absl::StrCat("memory holds position ", cell.position, " twice"));
    }
    place = rows->cells[cell.index];
  }
  std::uint32_t begin = tokens;
  while (begin > 0 && by_token[begin - 1] != kNone) --begin;
  rows->range = {begin, tokens};
  rows->cells.assign(by_token.begin() + begin, by_token.end());
  return absl::OkStatus();
}

// The header that llama.cpp would have written for rows of `range`, for one sequence.
class HeaderBuilder {
 public:
  template <typename T>
  void Put(T value) {
    const char* bytes = reinterpret_cast<const char*>(&value);
    header_.insert(header_.end(), bytes, bytes + sizeof(T));
  }
  void PutPlanes(const MemorySection& section) {
    Put<std::uint32_t>(0);  // not transposed
    Put<std::uint32_t>(section.layers);
    for (const WirePlane& plane : section.planes) {
      if (plane.kind != PlaneKind::kExtra) Put<std::int32_t>(plane.type);
      Put<std::uint64_t>(plane.row_bytes);
    }
  }
  void Reserve(std::size_t bytes) { header_.reserve(bytes); }
  std::vector<char> Take() { return std::move(header_); }

 private:
  std::vector<char> header_;
};

}  // namespace

absl::Status UnexpectedStream(const MemorySection& section, std::string_view what) {
  return absl::InternalError(
      absl::StrCat(section.kind == MemorySection::Kind::kKv ? "KV" : "recurrent",
                   " state stream of this llama.cpp is not the expected one: ", std::string(what)));
}

std::int32_t LastPosition(const TokenPlaces* places, std::uint32_t tokens) {
  return tokens == 0 ? -1 : PlaceOf(places, tokens - 1).position;
}

absl::Status CheckPlaces(const MemorySection& section, std::uint32_t tokens,
                         const TokenPlaces* places) {
  const bool known = places == nullptr ? !section.wide : places->size() >= tokens;
  return known ? absl::OkStatus()
               : absl::FailedPreconditionError("the tokens' places are not known");
}

absl::StatusOr<SectionRows> ParseKvHeader(const MemorySection& section,
                                          absl::Span<const char> header,
                                          absl::Span<const TensorRun> runs, std::int32_t sequence,
                                          std::uint32_t tokens, const TokenPlaces* places) {
  HeaderCursor cursor(header);
  SectionRows result;
  result.range = {tokens, tokens};
  std::size_t next_run = 0;
  bool found = false;
  const auto streams = cursor.Read<std::uint32_t>();
  for (std::uint32_t stream = 0; stream < streams && !cursor.failed(); ++stream) {
    const auto count = cursor.Read<std::uint32_t>();
    if (count == 0) continue;
    std::vector<KvCell> mine;
    for (std::uint32_t i = 0; i < count && !cursor.failed(); ++i) {
      KvCell cell{cursor.Read<std::int32_t>(), 0, 0, i};
      const auto owners = cursor.Read<std::uint32_t>();
      if (section.wide) {
        cell.x = cursor.Read<std::int32_t>();
        cell.y = cursor.Read<std::int32_t>();
        cursor.Read<std::int32_t>();
      }
      bool owned = false;
      for (std::uint32_t k = 0; k < owners && !cursor.failed(); ++k) {
        owned |= cursor.Read<std::int32_t>() == sequence;
      }
      if (owned) mine.push_back(cell);
    }
    SectionRows rows;
    absl::Status status = ParsePlanes(section, count, &cursor, runs, &next_run, &rows);
    if (!status.ok()) return status;
    // Planes without bytes alone would say nothing of where rows are.
    if (rows.cells.size() != count) return UnexpectedStream(section, "no plane with bytes");
    if (mine.empty()) continue;
    if (found) return UnexpectedStream(section, "one sequence in two streams");
    found = true;
    status = KeepTail(mine, tokens, places, &rows);
    if (!status.ok()) return status;
    result = std::move(rows);
  }
  if (!cursor.finished() || next_run != runs.size()) {
    return UnexpectedStream(section, "length");
  }
  return result;
}

absl::StatusOr<SectionRows> ParseStateHeader(const MemorySection& section,
                                             absl::Span<const char> header,
                                             absl::Span<const TensorRun> runs, std::uint32_t tokens,
                                             const TokenPlaces* places) {
  HeaderCursor cursor(header);
  const auto count = cursor.Read<std::uint32_t>();
  if (count != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("recurrent memory holds ", count, " states of the sequence"));
  }
  const auto position = cursor.Read<std::int32_t>();
  if (cursor.Read<std::uint32_t>() != 0)
    return UnexpectedStream(section, "sequence ids of a state");
  if (position != LastPosition(places, tokens)) {
    return absl::FailedPreconditionError(
        absl::StrCat("recurrent state is at position ", position, " of ", tokens, " tokens"));
  }
  SectionRows rows;
  std::size_t next_run = 0;
  absl::Status status = ParsePlanes(section, 1, &cursor, runs, &next_run, &rows);
  if (!status.ok()) return status;
  if (!cursor.finished() || next_run != runs.size() || rows.cells.size() != 1) {
    return UnexpectedStream(section, "length");
  }
  rows.range = {tokens, tokens + 1};
  return rows;
}

std::vector<char> KvHeader(const MemorySection& section, std::uint32_t streams, TokenRange range,
                           const TokenPlaces* places) {
  HeaderBuilder header;
  const std::size_t cell_bytes = section.wide ? 24 : 12;
  header.Reserve(64 + cell_bytes * range.size() + 12 * section.planes.size() + 4 * streams);
  header.Put<std::uint32_t>(streams);
  // llama.cpp puts cells of whichever stream into the stream of the sequence that it reads for.
  header.Put<std::uint32_t>(range.size());
  for (std::uint32_t token = range.begin; token < range.end; ++token) {
    const CellPlace place = PlaceOf(places, token);
    header.Put<std::int32_t>(place.position);
    header.Put<std::uint32_t>(1);
    if (section.wide) {
      header.Put<std::int32_t>(place.x);
      header.Put<std::int32_t>(place.y);
      header.Put<std::int32_t>(place.token);
    }
    header.Put<std::int32_t>(0);
  }
  header.PutPlanes(section);
  for (std::uint32_t stream = 1; stream < streams; ++stream) header.Put<std::uint32_t>(0);
  return header.Take();
}

std::vector<char> StateHeader(const MemorySection& section, std::uint32_t tokens,
                              const TokenPlaces* places) {
  HeaderBuilder header;
  header.Put<std::uint32_t>(1);
  header.Put<std::int32_t>(LastPosition(places, tokens));
  header.Put<std::uint32_t>(0);
  header.PutPlanes(section);
  return header.Take();
}

absl::StatusOr<SectionRows> ParsePlacedRows(const MemorySection& section,
                                            absl::Span<const TensorRun> runs, TokenRange range) {
  SectionRows rows;
  rows.range = range;
  std::size_t next_run = 0;
  for (const WirePlane& plane : section.planes) {
    absl::Status status =
        TakeRuns(section, plane, range.size(), runs, &next_run, PlacesUnknown(rows), &rows);
    if (!status.ok()) return status;
  }
  if (next_run != runs.size() || rows.cells.size() != range.size()) {
    return UnexpectedStream(section, "length when read");
  }
  return rows;
}

}  // namespace parkade
