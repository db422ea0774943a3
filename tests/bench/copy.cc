// The host copier: rows out of and into an engine's memory, against memcpy of the same bytes.

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/str_format.h"
#include "src/engine/fake/fake_engine.h"
#include "tests/bench/disk_cache.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kImageBytes = 1024 * kMib;

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

absl::StatusOr<Outcome> RunCopy(const BenchOptions& options) {
  FakeEngineOptions engine_options;
  const StateLayout layout = MakeFakeLayout(18, 512, 0, 0, 0, 0);
  const std::uint64_t token_bytes = TokenBytes(layout, RowGroup::kFull);
  const auto tokens = static_cast<std::uint32_t>(
      std::max(1024.0, kImageBytes * options.scale / static_cast<double>(token_bytes)));
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
  const std::vector<Contestant> contestants = {
      {"export", [&] { return image.TimeExport(); }},
      {"import", [&] { return image.TimeImport(); }},
      {"memcpy", [&]() -> absl::StatusOr<double> { return TimeColdCopy(other, bytes); }},
  };
  auto medians = MedianSeconds(contestants, kRounds, options.seed);
  if (!medians.ok()) return medians.status();
  if (absl::Status s = engine.Verify(); !s.ok()) return s;
  Outcome outcome;
  outcome.notes.push_back(absl::StrFormat("%d tokens, %.0f MiB; no CUDA copier in this build",
                                          tokens, static_cast<double>(bytes.size()) / kMib));
  outcome.Add("export_vs_memcpy", (*medians)["memcpy"] / (*medians)["export"]);
  outcome.Add("import_vs_memcpy", (*medians)["memcpy"] / (*medians)["import"]);
  outcome.Add("memcpy_mib_per_s", static_cast<double>(bytes.size()) / kMib / (*medians)["memcpy"]);
  return outcome;
}

}  // namespace parkade::bench
