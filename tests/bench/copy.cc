// Copiers: rows out of and into an engine's memory, against memcpy of the same bytes; where there
// is a card, out of and into its memory, against one large copy of page-locked memory.

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "absl/strings/str_format.h"
#include "src/device/stage_copier.h"
#include "src/engine/fake/fake_engine.h"
#include "tests/bench/copy_cuda.h"
#include "tests/bench/disk_cache.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kImageBytes = 1024 * kMib;
// The smallest that engines use.
constexpr std::uint32_t kPageRows = 16;

// All extents of the image one behind the other.
struct Image {
  FakeEngine& engine;
  std::vector<ExtentInfo> extents;
  TouchedMemory& bytes;

  absl::StatusOr<double> TimeExport() {
    const auto tokens = static_cast<std::uint32_t>(engine.tokens().size());
    if (absl::Status s = engine.BeginCapture(tokens); !s.ok()) return s;
    const double begin = NowSeconds();
    char* at = bytes.data();
    for (const ExtentInfo& extent : extents) {
      if (absl::Status s = engine.Export(extent, at); !s.ok()) return s;
      at += extent.raw_bytes;
    }
    const double seconds = NowSeconds() - begin;
    engine.EndCapture();
    return seconds;
  }

  absl::StatusOr<double> TimeImport() {
    const std::vector<Token> tokens = engine.tokens();
    const auto count = static_cast<std::uint32_t>(tokens.size());
    if (absl::Status s = engine.BeginImport(count, count); !s.ok()) return s;
    const double begin = NowSeconds();
    const char* at = bytes.data();
    for (const ExtentInfo& extent : extents) {
      const absl::Status imported =
          engine.Import(engine.stages(), extent, absl::MakeConstSpan(at, extent.raw_bytes));
      if (!imported.ok()) return imported;
      at += extent.raw_bytes;
    }
    const double seconds = NowSeconds() - begin;
    if (absl::Status s = engine.FinishImport(count); !s.ok()) return s;
    engine.SetTokens(tokens);
    return seconds;
  }
};

}  // namespace

std::vector<PlaneRows> PlanesIn(char* memory, const StateLayout& layout, std::uint32_t tokens,
                                std::uint32_t page_rows, std::uint64_t seed) {
  std::vector<PlaneRows> planes;
  std::mt19937_64 random(seed);
  for (const Plane& plane : layout.planes) {
    PlaneRows rows{memory, tokens, plane.row_bytes, plane.row_bytes, page_rows, 0, {}};
    if (page_rows > 0) {
      rows.page_stride = page_rows * plane.row_bytes;
      rows.pages.resize(tokens / page_rows);
      std::iota(rows.pages.begin(), rows.pages.end(), 0);
      std::shuffle(rows.pages.begin(), rows.pages.end(), random);
    }
    planes.push_back(std::move(rows));
    memory += tokens * plane.row_bytes;
  }
  return planes;
}

std::vector<PlaneRun> RunsOf(const std::vector<PlaneRows>& planes, const ExtentInfo& extent) {
  std::vector<PlaneRun> runs;
  std::uint64_t offset = 0;
  for (const PlaneRows& plane : planes) {
    const std::uint64_t bytes = extent.rows * plane.row_bytes;
    runs.push_back({&plane, extent.first * plane.row_bytes, bytes, offset});
    offset += bytes;
  }
  return runs;
}

absl::StatusOr<double> TimeRows(StageCopier& copier, const std::vector<PlaneRows>& planes,
                                const std::vector<ExtentInfo>& extents, char* packed, bool out) {
  const double begin = NowSeconds();
  for (const ExtentInfo& extent : extents) {
    const std::vector<PlaneRun> runs = RunsOf(planes, extent);
    const absl::Status copied =
        out ? copier.CopyOut(runs, packed) : copier.CopyIn(runs, packed, nullptr);
    if (!copied.ok()) return copied;
    packed += extent.raw_bytes;
  }
  if (absl::Status s = copier.Wait(); !s.ok()) return s;
  return NowSeconds() - begin;
}

absl::StatusOr<Outcome> RunCopy(const BenchOptions& options) {
  FakeEngineOptions engine_options;
  const StateLayout layout = MakeFakeLayout(18, 512, 0, 0, 0, 0);
  const std::uint64_t token_bytes = TokenBytes(layout, RowGroup::kFull);
  // Whole pages.
  const auto tokens = static_cast<std::uint32_t>(std::max(
                          1024.0, kImageBytes * options.scale / static_cast<double>(token_bytes))) /
                      kPageRows * kPageRows;
  engine_options.planes = layout.planes;
  engine_options.max_tokens = tokens;
  engine_options.cheap_rows = true;  // its pages stay, as an engine's do
  FakeEngine engine(engine_options);
  engine.Append(RandomTokens(tokens, options.seed));
  TouchedMemory bytes(tokens * token_bytes);
  TouchedMemory other(bytes.size());
  Image image{engine, CutIntoExtents(layout, engine.stages(), RowGroup::kFull, {0, tokens}), bytes};
  // The import takes what an export has left.
  if (absl::Status s = image.TimeExport().status(); !s.ok()) return s;
  const std::vector<PlaneRows> paged =
      PlanesIn(other.data(), layout, tokens, kPageRows, options.seed);
  const std::unique_ptr<StageCopier> copier = NewHostCopier();
  const auto time_paged = [&](bool out) {
    return TimeRows(*copier, paged, image.extents, bytes.data(), out);
  };
  const std::vector<Contestant> contestants = {
      {"export", [&] { return image.TimeExport(); }},
      {"import", [&] { return image.TimeImport(); }},
      {"paged_import", [&] { return time_paged(false); }},
      {"memcpy", [&]() -> absl::StatusOr<double> { return TimeColdCopy(other, bytes); }},
  };
  auto medians = MedianSeconds(contestants, kRounds, options.seed);
  if (!medians.ok()) return medians.status();
  if (absl::Status s = engine.Verify(); !s.ok()) return s;
  // Out of pages last: it writes over the image, with bytes that memcpy may have left in any order.
  auto paged_out = MedianSeconds({{"paged_export", [&] { return time_paged(true); }},
                                  {"memcpy", [&] { return TimeColdCopy(bytes, other); }}},
                                 kRounds, options.seed);
  if (!paged_out.ok()) return paged_out.status();
  Outcome outcome;
  outcome.notes.push_back(
      absl::StrFormat("%d tokens, %.0f MiB; pages of %d tokens, rows of 512 "
                      "bytes",
                      tokens, static_cast<double>(bytes.size()) / kMib, kPageRows));
  outcome.Add("export_vs_memcpy", (*medians)["memcpy"] / (*medians)["export"]);
  outcome.Add("import_vs_memcpy", (*medians)["memcpy"] / (*medians)["import"]);
  outcome.AtLeast("import_vs_memcpy", 0.8);
  outcome.AtLeast("export_vs_memcpy", 0.8);
  outcome.Add("paged_import_vs_memcpy", (*medians)["memcpy"] / (*medians)["paged_import"]);
  outcome.Add("paged_export_vs_memcpy", (*paged_out)["memcpy"] / (*paged_out)["paged_export"]);
  outcome.AtLeast("paged_import_vs_memcpy", 0.8);
  outcome.AtLeast("paged_export_vs_memcpy", 0.8);
  outcome.Add("memcpy_mib_per_s", static_cast<double>(bytes.size()) / kMib / (*medians)["memcpy"]);
  if (absl::Status s = AddCardCopies(layout, image.extents, tokens, options, &outcome); !s.ok()) {
    return s;
  }
  return outcome;
}

}  // namespace parkade::bench
