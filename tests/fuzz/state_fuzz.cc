// The header of llama.cpp's state stream. Input: what the section looks like, the runs of its
// tensors, then the header.
#include <algorithm>
#include <vector>

#include "src/engine/llama/state_header.h"
#include "tests/fuzz/fuzz_target.h"

namespace parkade::fuzz {
namespace {

constexpr std::size_t kSlackBytes = 64 << 10;
constexpr std::size_t kGrowth = 64;
constexpr std::uint32_t kMostTokens = 512;

ggml_tensor* Tensor(std::size_t number) {
  return reinterpret_cast<ggml_tensor*>(static_cast<std::uintptr_t>(number + 1));
}

MemorySection Section(Input* input) {
  MemorySection section;
  const std::uint8_t shape = input->U8();
  const std::size_t planes = 1 + shape % 4;
  section.kind = (shape & 0x40) != 0 ? MemorySection::Kind::kState : MemorySection::Kind::kKv;
  section.wide = (shape & 0x80) != 0;
  section.layers = static_cast<std::uint32_t>((planes + 1) / 2);
  const std::uint8_t sizes = input->U8();
  for (std::size_t i = 0; i < planes; ++i) {
    WirePlane plane;
    plane.kind = i % 2 == 0 ? PlaneKind::kKey : PlaneKind::kValue;
    plane.layer = static_cast<std::uint16_t>(i / 2);
    plane.type = static_cast<std::int32_t>(i);
    plane.row_bytes = (sizes >> 2 * i & 3) * 32;
    section.planes.push_back(plane);
  }
  return section;
}

// Text, and an image in between where cells are wide.
TokenPlaces Places(const MemorySection& section, std::uint32_t tokens) {
  TokenPlaces places;
  for (std::uint32_t i = 0; i < tokens; ++i) {
    if (section.wide && i % 16 == 8) {
      const std::int32_t at = places.next();
      const CellPlace cell = {at, at, at + 1, kNoToken};
      places.AddMedia(absl::MakeConstSpan(&cell, 1), 2);
    } else {
      places.AddText(static_cast<std::int32_t>(i));
    }
  }
  return places;
}

std::vector<TensorRun> Runs(Input* input, const MemorySection& section) {
  std::vector<TensorRun> runs(input->U8() % 32);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::uint8_t cell = input->U8();
    const std::uint8_t cells = input->U8();
    const std::uint64_t row_bytes = section.planes[i % section.planes.size()].row_bytes;
    // One in 256 is no whole number of rows.
    runs[i] = {Tensor(i % section.planes.size()), cell * row_bytes,
               cells * row_bytes + (cells == 255 ? 1 : 0)};
  }
  return runs;
}

void CheckRows(const SectionRows& rows, const MemorySection& section, std::uint32_t tokens) {
  const bool state = section.kind == MemorySection::Kind::kState;
  FUZZ_CHECK(rows.range.begin <= tokens && rows.range.end == tokens + (state ? 1 : 0));
  FUZZ_CHECK(rows.cells.size() == rows.range.size());
  if (!rows.range.empty()) FUZZ_CHECK(rows.tensors.size() == section.planes.size());
}

void ParseAny(const MemorySection& section, absl::Span<const char> header,
              absl::Span<const TensorRun> runs, std::uint32_t tokens, const TokenPlaces* places) {
  const bool state = section.kind == MemorySection::Kind::kState;
  const auto rows = state ? ParseStateHeader(section, header, runs, tokens, places)
                          : ParseKvHeader(section, header, runs, 0, tokens, places);
  if (rows.ok()) CheckRows(*rows, section, tokens);
}

// What we write for a range, with its rows in one run each, is read as that range.
void RoundTrip(const MemorySection& section, std::uint32_t begin, std::uint32_t tokens,
               const TokenPlaces* places) {
  const bool state = section.kind == MemorySection::Kind::kState;
  const TokenRange range = state ? TokenRange{tokens, tokens + 1} : TokenRange{begin, tokens};
  if (range.empty()) return;
  std::vector<TensorRun> runs;
  bool bytes = false;
  for (std::size_t i = 0; i < section.planes.size(); ++i) {
    const std::uint64_t row_bytes = section.planes[i].row_bytes;
    bytes = bytes || row_bytes > 0;
    // A plane without bytes stands only where there is one row.
    if (row_bytes == 0 && range.size() != 1) return;
    runs.push_back({Tensor(i), 5 * row_bytes, range.size() * row_bytes});
  }
  const std::vector<char> header =
      state ? StateHeader(section, tokens, places) : KvHeader(section, 2, range, places);
  const auto rows = state ? ParseStateHeader(section, header, runs, tokens, places)
                          : ParseKvHeader(section, header, runs, 0, tokens, places);
  FUZZ_CHECK(rows.ok() == bytes);
  if (!bytes) return;
  CheckRows(*rows, section, tokens);
  FUZZ_CHECK(rows->range == range && rows->cells.front() == 5);
  const auto placed = ParsePlacedRows(section, runs, range);
  FUZZ_CHECK(placed.ok() && placed->cells == rows->cells && placed->tensors == rows->tensors);
}

}  // namespace
}  // namespace parkade::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parkade::fuzz;
  Input input(data, size);
  const parkade::MemorySection section = Section(&input);
  const std::uint32_t tokens = 1 + input.U16() % kMostTokens;
  const std::uint32_t begin = input.U16() % (tokens + 1);
  const std::vector<parkade::TensorRun> runs = Runs(&input, section);
  const std::string_view header = input.Rest();
  const parkade::TokenPlaces places = Places(section, tokens);
  const parkade::TokenPlaces* known = section.wide ? &places : nullptr;
  const AllocationWatch watch;
  ParseAny(section, {header.data(), header.size()}, runs, tokens, known);
  RoundTrip(section, begin, tokens, known);
  FUZZ_CHECK(watch.largest_bytes() <= kSlackBytes + kGrowth * (size + tokens));
  return 0;
}
