// A chat that goes on: what the serving thread copies and the disk writes for a turn's new rows.

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/disk_cache.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

constexpr double kBaseTokens = 10000;
constexpr int kTurns = 20;
constexpr std::uint32_t kTurnTokens = 200;

struct Kind {
  const char* name;
  StateLayout layout;
};

struct Cost {
  double copied = 0;   // per byte of new rows and checkpoints
  double written = 0;  // the same
};

absl::StatusOr<Cost> Measure(const BenchOptions& options, const StateLayout& layout) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  absl::StatusOr<std::unique_ptr<DiskCache>> opened =
      DiskCache::Open({folder->path() + "/tier", 4096ull << 20});
  if (!opened.ok()) return opened.status();
  DiskCache& cache = **opened;
  const auto base = static_cast<std::uint32_t>(std::max(1000.0, kBaseTokens * options.scale));
  FakeEngineOptions engine_options;
  engine_options.planes = layout.planes;
  engine_options.window_tokens = layout.window_tokens;
  engine_options.max_tokens = base + kTurns * kTurnTokens;
  FakeEngine engine(engine_options);
  if (absl::Status s = Register(cache.cache(), engine).status(); !s.ok()) return s;
  std::mt19937_64 random(options.seed);
  engine.Append(RandomTokens(base, random()));
  if (absl::Status s = cache.ParkDurably(engine); !s.ok()) return s;

  const WriteMeter writes;
  const std::uint64_t copied_before = engine.copied_bytes();
  for (int turn = 0; turn < kTurns; ++turn) {
    engine.Append(RandomTokens(kTurnTokens, random()));
    if (absl::Status s = cache.ParkDurably(engine); !s.ok()) return s;
  }
  const absl::StatusOr<std::uint64_t> written = writes.bytes();
  if (!written.ok()) return written.status();
  const std::uint64_t turn_bytes =
      kTurnTokens * (TokenBytes(layout, RowGroup::kFull) + TokenBytes(layout, RowGroup::kWindow)) +
      TokenBytes(layout, RowGroup::kState);
  const double fresh = static_cast<double>(kTurns * turn_bytes);
  return Cost{static_cast<double>(engine.copied_bytes() - copied_before) / fresh,
              static_cast<double>(*written) / fresh};
}

}  // namespace

// Rows as large as Gemma 3 270M's, once all kept, once with its window, once as a hybrid model with
// recurrent state.
absl::StatusOr<Outcome> RunCapture(const BenchOptions& options) {
  const Kind kinds[] = {
      {"full", MakeFakeLayout(18, 512, 0, 0, 0, 0)},
      {"window", MakeFakeLayout(18, 512, 15, 512, 0, 0)},
      {"recurrent", MakeFakeLayout(6, 512, 0, 0, 12, 256u << 10)},
  };
  Outcome outcome;
  Cost worst;
  for (const Kind& kind : kinds) {
    const absl::StatusOr<Cost> cost = Measure(options, kind.layout);
    if (!cost.ok()) return cost.status();
    outcome.Add(absl::StrCat(kind.name, "_copied_per_new_row_byte"), cost->copied);
    outcome.Add(absl::StrCat(kind.name, "_written_per_new_row_byte"), cost->written);
    worst.copied = std::max(worst.copied, cost->copied);
    worst.written = std::max(worst.written, cost->written);
  }
  outcome.notes.push_back("the worst of three kinds of model; checkpoints count as new rows");
  outcome.Add("copied_per_new_row_byte", worst.copied);
  outcome.Add("written_per_new_row_byte", worst.written);
  outcome.AtMost("copied_per_new_row_byte", 1.1);
  outcome.AtMost("written_per_new_row_byte", 1.2);
  return outcome;
}

}  // namespace parkade::bench
