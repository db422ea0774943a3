// One image of 2 GiB, on one device; and a longer one in two stages.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/engine/fake/fake_engine.h"
#include "tests/bench/disk_cache.h"
#include "tests/bench/image_speed.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kImageBytes = 2048 * kMib;
constexpr double kSmallSpillBytes = 4.5 * kMib;
constexpr double kLargeSpillBytes = 1024 * kMib;
// A small spill takes milliseconds; a round times this many.
constexpr int kSmallSpills = 16;

// 19 layers of 500 bytes of K and 501 of V: 19,019 bytes a token, as in the report this is from.
constexpr double kSplitTokens = 329625;
constexpr int kSplitLayers = 19;

ImageSpec SequentialImage(double scale) {
  ImageSpec image;
  image.layout = MakeFakeLayout(18, 512, 0, 0, 0, 0);
  image.stages = MakeFakeStages(image.layout, {1});
  image.tokens = static_cast<std::uint32_t>(std::max(
      1024.0,
      kImageBytes * scale / static_cast<double>(TokenBytes(image.layout, RowGroup::kFull))));
  return image;
}

ImageSpec SplitImage(double scale, const std::vector<int>& shares) {
  ImageSpec image;
  for (int layer = 0; layer < kSplitLayers; ++layer) {
    for (const PlaneKind kind : {PlaneKind::kKey, PlaneKind::kValue}) {
      Plane plane;
      plane.kind = kind;
      plane.layer = static_cast<std::uint16_t>(layer);
      plane.element_type = 1;
      plane.row_bytes = kind == PlaneKind::kKey ? 500 : 501;
      image.layout.planes.push_back(plane);
    }
  }
  image.stages = MakeFakeStages(image.layout, shares);
  image.tokens = static_cast<std::uint32_t>(std::max(1024.0, kSplitTokens * scale));
  return image;
}

struct SpillSpeed {
  double small = 0;
  double large = 0;
};

absl::StatusOr<SpillSpeed> MeasureSpills(const BenchOptions& options, const ImageSpec& image) {
  const auto small = static_cast<std::uint64_t>(kSmallSpillBytes);
  const auto large =
      static_cast<std::uint64_t>(std::max(kSmallSpillBytes, kLargeSpillBytes * options.scale));
  const absl::StatusOr<double> small_ratio = MeasureSpill(options, image, small, kSmallSpills);
  if (!small_ratio.ok()) return small_ratio.status();
  const absl::StatusOr<double> large_ratio = MeasureSpill(options, image, large, 1);
  if (!large_ratio.ok()) return large_ratio.status();
  return SpillSpeed{*small_ratio, *large_ratio};
}

void AddFigures(const RestoreSpeed& restore, const SpillSpeed& spill, Outcome* outcome) {
  if (restore.cold_restore_vs_raw_read > 0) {
    outcome->Add("cold_restore_vs_raw_read", restore.cold_restore_vs_raw_read);
    outcome->Add("cold_restore_vs_best_read", restore.cold_restore_vs_best_read);
    outcome->Add("cold_restore_mib_per_s", restore.cold_mib_per_s);
  } else {
    outcome->notes.push_back("this file system has no O_DIRECT: no read reference");
  }
  outcome->Add("warm_restore_vs_memcpy", restore.warm_restore_vs_memcpy);
  outcome->Add("warm_restore_mib_per_s", restore.warm_mib_per_s);
  outcome->Add("memcpy_mib_per_s", restore.memcpy_mib_per_s);
  outcome->Add("checksum_share", restore.checksum_share);
  outcome->Add("small_spill_vs_raw_write", spill.small);
  outcome->Add("large_spill_vs_raw_write", spill.large);
  outcome->Add("spill_vs_raw_write", std::min(spill.small, spill.large));
  outcome->AtLeast("cold_restore_vs_raw_read", 0.95);
  outcome->AtLeast("warm_restore_vs_memcpy", 0.5);
  outcome->AtLeast("spill_vs_raw_write", 0.6);
  outcome->AtMost("checksum_share", 0.15);
}

std::string Describe(const ImageSpec& image) {
  return absl::StrFormat("%d tokens, %.0f MiB, %d stages", image.tokens,
                         static_cast<double>(image.bytes()) / kMib, image.stages.stages.size());
}

}  // namespace

absl::StatusOr<Outcome> RunSequential(const BenchOptions& options) {
  const ImageSpec image = SequentialImage(options.scale);
  Outcome outcome;
  outcome.notes.push_back(Describe(image));
  const absl::StatusOr<SpillSpeed> spill = MeasureSpills(options, image);
  if (!spill.ok()) return spill.status();
  const absl::StatusOr<RestoreSpeed> restore = MeasureRestore(options, image);
  if (!restore.ok()) return restore.status();
  AddFigures(*restore, *spill, &outcome);
  return outcome;
}

absl::StatusOr<Outcome> RunSplit(const BenchOptions& options) {
  const ImageSpec two = SplitImage(options.scale, {1, 1});
  Outcome outcome;
  outcome.notes.push_back(Describe(two));
  const absl::StatusOr<SpillSpeed> spill = MeasureSpills(options, two);
  if (!spill.ok()) return spill.status();
  const absl::StatusOr<RestoreSpeed> restore = MeasureRestore(options, two);
  if (!restore.ok()) return restore.status();
  // In the same rounds, so that a machine that slows down hurts nobody; a third of the size, as
  // both engines are in memory, and their files in the system's cache.
  const double third = options.scale / 3;
  const absl::StatusOr<double> ratio =
      CompareWarmRestores(options, SplitImage(third, {1, 1}), SplitImage(third, {1}));
  if (!ratio.ok()) return ratio.status();
  AddFigures(*restore, *spill, &outcome);
  outcome.Add("two_stages_vs_one", *ratio);
  outcome.AtLeast("two_stages_vs_one", 1 / 1.1);
  outcome.Add("peak_extra_mib", restore->peak_extra_mib);
  outcome.AtMost("peak_extra_mib", 256);
  return outcome;
}

absl::StatusOr<Outcome> RunSealed(const BenchOptions& options) {
  const ImageSpec plain = SequentialImage(options.scale / 2);
  ImageSpec sealed = plain;
  absl::StatusOr<SharedSealKey> key = SealKey::Parse(std::string(kSealKeyBytes, 'k'));
  if (!key.ok()) return key.status();
  sealed.key = *std::move(key);
  Outcome outcome;
  outcome.notes.push_back(Describe(plain));
  const absl::StatusOr<Comparison> ratio = Compare(options, sealed, plain);
  if (!ratio.ok()) return ratio.status();
  outcome.Add("sealed_warm_restore_vs_plain", ratio->warm_restore);
  outcome.Add("sealed_cold_restore_vs_plain", ratio->cold_restore);
  outcome.Add("sealed_spill_vs_plain", ratio->spill);
  return outcome;
}

}  // namespace parkade::bench
