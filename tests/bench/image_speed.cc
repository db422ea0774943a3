#include "tests/bench/image_speed.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "src/format/checksum.h"
#include "tests/bench/disk_cache.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"

namespace parkade::bench {
namespace {

constexpr std::uint64_t kMib = 1ull << 20;
// The copy reference holds two buffers besides the engine's rows; more than this it does not need
// to know the machine's speed.
constexpr std::uint64_t kMostCopyBytes = 2048 * kMib;

FakeEngineOptions EngineFor(const ImageSpec& image, std::uint32_t max_tokens, bool cheap) {
  FakeEngineOptions options;
  options.planes = image.layout.planes;
  options.stages = image.stages;
  options.max_tokens = max_tokens;
  options.cheap_rows = cheap;
  return options;
}

std::uint64_t BudgetFor(std::uint64_t bytes) { return bytes + bytes / 8 + 256 * kMib; }

absl::StatusOr<std::unique_ptr<DiskCache>> OpenCache(const std::string& directory,
                                                     const ImageSpec& image,
                                                     std::uint64_t budget_bytes) {
  DiskCacheOptions options;
  options.directory = directory;
  options.budget_bytes = budget_bytes;
  options.key = image.key;
  return DiskCache::Open(options);
}

// Parks an image whose rows do not compress, as real ones don't.
absl::StatusOr<Digest128> ParkImage(const std::string& directory, const ImageSpec& image,
                                    const std::vector<Token>& tokens) {
  absl::StatusOr<std::unique_ptr<DiskCache>> cache =
      OpenCache(directory, image, BudgetFor(image.bytes()));
  if (!cache.ok()) return cache.status();
  FakeEngine engine(EngineFor(image, image.tokens, false));
  absl::StatusOr<Digest128> identity = Register((*cache)->cache(), engine);
  if (!identity.ok()) return identity;
  engine.Append(tokens);
  if (absl::Status s = (*cache)->ParkDurably(engine); !s.ok()) return s;
  return identity;
}

// Proves once that what the timed restores import is what was parked.
absl::Status CheckRows(const std::string& directory, const ImageSpec& image,
                       const Digest128& identity, const std::vector<Token>& tokens) {
  absl::StatusOr<std::unique_ptr<DiskCache>> cache =
      OpenCache(directory, image, BudgetFor(image.bytes()));
  if (!cache.ok()) return cache.status();
  FakeEngine engine(EngineFor(image, image.tokens, false));
  const absl::StatusOr<double> seconds = (*cache)->TimeRestore(engine, identity, tokens);
  if (!seconds.ok()) return seconds.status();
  engine.SetTokens(tokens);
  return engine.Verify();
}

// An image in a directory of its own, and an engine that it is restored into.
class RestoreStage {
 public:
  static absl::StatusOr<std::unique_ptr<RestoreStage>> Make(const BenchOptions& options,
                                                            const ImageSpec& image) {
    absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
    if (!folder.ok()) return folder.status();
    std::unique_ptr<RestoreStage> stage(
        new RestoreStage(image, RandomTokens(image.tokens, options.seed), *std::move(folder)));
    const absl::StatusOr<Digest128> identity = ParkImage(stage->directory_, image, stage->tokens_);
    if (!identity.ok()) return identity.status();
    stage->identity_ = *identity;
    if (absl::Status s = CheckRows(stage->directory_, image, *identity, stage->tokens_); !s.ok()) {
      return s;
    }
    if (absl::Status s = DropPageCache(stage->directory_); !s.ok()) return s;
    // Its rows are touched here and stay, as an engine's memory is there before a restore begins.
    stage->engine_ = std::make_unique<FakeEngine>(EngineFor(image, image.tokens, true));
    stage->engine_->Append(stage->tokens_);
    return stage;
  }

  // The process is new each time, as far as the cache can tell.
  absl::StatusOr<double> Restore(const std::function<absl::Status(const std::string&)>& prepare) {
    if (absl::Status s = prepare(directory_); !s.ok()) return s;
    absl::StatusOr<std::unique_ptr<DiskCache>> cache =
        OpenCache(directory_, image_, BudgetFor(image_.bytes()));
    if (!cache.ok()) return cache.status();
    const std::uint64_t resident = ResidentBytes();
    const bool reset = ResetPeak();
    absl::StatusOr<double> seconds = (*cache)->TimeRestore(*engine_, identity_, tokens_);
    if (reset) {
      peak_extra_bytes_ = std::max(peak_extra_bytes_, static_cast<double>(PeakResidentBytes()) -
                                                          static_cast<double>(resident));
    }
    return seconds;
  }

  std::string segments() const { return directory_ + "/segments"; }
  double peak_extra_bytes() const { return peak_extra_bytes_; }

 private:
  RestoreStage(const ImageSpec& image, std::vector<Token> tokens, TemporaryFolder folder)
      : image_(image),
        tokens_(std::move(tokens)),
        folder_(std::move(folder)),
        directory_(folder_.path() + "/tier") {}

  const ImageSpec image_;
  const std::vector<Token> tokens_;
  const TemporaryFolder folder_;
  const std::string directory_;
  Digest128 identity_;
  std::unique_ptr<FakeEngine> engine_;
  double peak_extra_bytes_ = 0;
};

// Seconds of one spill of `tokens` in a directory of its own.
absl::StatusOr<double> TimeSpills(const std::string& parent, const ImageSpec& image,
                                  std::uint32_t tokens, int repeats, std::uint64_t seed) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(parent);
  if (!folder.ok()) return folder.status();
  const std::uint64_t bytes = tokens * TokenBytes(image.layout, RowGroup::kFull);
  absl::StatusOr<std::unique_ptr<DiskCache>> cache =
      OpenCache(folder->path() + "/tier", image, BudgetFor(bytes * repeats));
  if (!cache.ok()) return cache.status();
  FakeEngine engine(EngineFor(image, tokens, false));
  if (absl::Status s = Register((*cache)->cache(), engine).status(); !s.ok()) return s;
  double seconds = 0;
  for (int i = 0; i < repeats; ++i) {
    engine.Clear();
    engine.Append(RandomTokens(tokens, seed + i));
    if (absl::Status s = SyncFileSystem(parent); !s.ok()) return s;
    const double begin = NowSeconds();
    if (absl::Status s = (*cache)->ParkDurably(engine); !s.ok()) return s;
    seconds += NowSeconds() - begin;
  }
  return seconds;
}

absl::StatusOr<double> TimeReferenceWrites(const std::string& parent, TouchedMemory& data,
                                           int repeats) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(parent);
  if (!folder.ok()) return folder.status();
  const std::string log = folder->path() + "/log";
  const int log_fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log_fd < 0) return absl::UnavailableError(log);
  const auto close_log = absl::MakeCleanup([log_fd] { ::close(log_fd); });
  double seconds = 0;
  for (int i = 0; i < repeats; ++i) {
    if (absl::Status s = SyncFileSystem(parent); !s.ok()) return s;
    const absl::StatusOr<double> one = TimeDurableWrite(absl::StrCat(folder->path(), "/file", i),
                                                        data.data(), data.size(), log_fd);
    if (!one.ok()) return one.status();
    seconds += *one;
  }
  return seconds;
}

// What checking an extent takes where it is checked: read just now through the page cache into a
// buffer that is used again. Only the checks are timed.
absl::StatusOr<double> TimeChecksums(const std::string& folder) {
  if (absl::Status s = WarmPageCache(folder); !s.ok()) return s;
  double seconds = 0;
  Digest128 all;
  const absl::Status read = ReadInPieces(folder, kExtentBytes, [&](absl::Span<const char> extent) {
    const double begin = NowSeconds();
    const Digest128 digest = Checksum(extent);
    seconds += NowSeconds() - begin;
    all = {all.high ^ digest.high, all.low ^ digest.low};
  });
  if (!read.ok()) return read;
  if (all.IsZero()) return absl::InternalError("checksums that cancel out");
  return seconds;
}

}  // namespace

std::uint64_t ImageSpec::bytes() const { return tokens * TokenBytes(layout, RowGroup::kFull); }

absl::StatusOr<RestoreSpeed> MeasureRestore(const BenchOptions& options, const ImageSpec& image) {
  const absl::StatusOr<std::unique_ptr<RestoreStage>> made = RestoreStage::Make(options, image);
  if (!made.ok()) return made.status();
  RestoreStage& stage = **made;
  // The reference reads the same files: others might lie better on the medium, or in a cache below.
  const bool direct =
      !absl::IsUnimplemented(TimeDirectRead(stage.segments(), Pages::kOrdinary).status());
  const std::uint64_t copy_bytes = std::min(image.bytes(), kMostCopyBytes);
  TouchedMemory from(copy_bytes);
  TouchedMemory to(copy_bytes);
  std::vector<Contestant> contestants = {
      {"warm", [&] { return stage.Restore(WarmPageCache); }},
      {"memcpy", [&]() -> absl::StatusOr<double> { return TimeColdCopy(to, from); }},
      {"checksum", [&] { return TimeChecksums(stage.segments()); }},
  };
  if (direct) {
    contestants.push_back({"cold", [&] { return stage.Restore(DropPageCache); }});
    const auto raw_read = [&stage](Pages pages) -> absl::StatusOr<double> {
      if (absl::Status s = DropPageCache(stage.segments()); !s.ok()) return s;
      return TimeDirectRead(stage.segments(), pages);
    };
    contestants.push_back({"raw read", [raw_read] { return raw_read(Pages::kOrdinary); }});
    contestants.push_back({"best read", [raw_read] { return raw_read(Pages::kLarge); }});
  }
  auto medians = MedianSeconds(contestants, kRounds, options.seed);
  if (!medians.ok()) return medians.status();
  const double mib = static_cast<double>(image.bytes()) / kMib;
  RestoreSpeed speed;
  speed.warm_mib_per_s = mib / (*medians)["warm"];
  speed.memcpy_mib_per_s = static_cast<double>(copy_bytes) / kMib / (*medians)["memcpy"];
  speed.checksum_share = (*medians)["checksum"] / (*medians)["warm"];
  speed.warm_restore_vs_memcpy = speed.warm_mib_per_s / speed.memcpy_mib_per_s;
  if (direct) {
    speed.cold_mib_per_s = mib / (*medians)["cold"];
    speed.cold_restore_vs_raw_read = (*medians)["raw read"] / (*medians)["cold"];
    speed.cold_restore_vs_best_read = (*medians)["best read"] / (*medians)["cold"];
  }
  speed.peak_extra_mib = stage.peak_extra_bytes() / kMib;
  return speed;
}

absl::StatusOr<double> CompareWarmRestores(const BenchOptions& options, const ImageSpec& image,
                                           const ImageSpec& reference) {
  const absl::StatusOr<std::unique_ptr<RestoreStage>> one = RestoreStage::Make(options, image);
  if (!one.ok()) return one.status();
  const absl::StatusOr<std::unique_ptr<RestoreStage>> other =
      RestoreStage::Make(options, reference);
  if (!other.ok()) return other.status();
  auto medians = MedianSeconds({{"image", [&] { return (*one)->Restore(WarmPageCache); }},
                                {"reference", [&] { return (*other)->Restore(WarmPageCache); }}},
                               kRounds, options.seed);
  if (!medians.ok()) return medians.status();
  return (*medians)["reference"] / (*medians)["image"];
}

absl::StatusOr<Comparison> Compare(const BenchOptions& options, const ImageSpec& image,
                                   const ImageSpec& reference) {
  std::vector<std::unique_ptr<RestoreStage>> stages;
  std::vector<Contestant> contestants;
  std::uint64_t seed = options.seed;
  for (const ImageSpec* spec : {&image, &reference}) {
    absl::StatusOr<std::unique_ptr<RestoreStage>> made = RestoreStage::Make(options, *spec);
    if (!made.ok()) return made.status();
    RestoreStage* const stage = made->get();
    stages.push_back(*std::move(made));
    const std::string who = spec == &image ? "image " : "reference ";
    contestants.push_back({who + "warm", [stage] { return stage->Restore(WarmPageCache); }});
    contestants.push_back({who + "cold", [stage] { return stage->Restore(DropPageCache); }});
    contestants.push_back({who + "spill", [&options, &seed, spec] {
                             return TimeSpills(options.directory, *spec, spec->tokens, 1, ++seed);
                           }});
  }
  auto medians = MedianSeconds(contestants, kRounds, options.seed);
  if (!medians.ok()) return medians.status();
  const auto ratio = [&medians](const std::string& what) {
    return (*medians)["reference " + what] / (*medians)["image " + what];
  };
  return Comparison{ratio("warm"), ratio("cold"), ratio("spill")};
}

absl::StatusOr<double> MeasureSpill(const BenchOptions& options, const ImageSpec& image,
                                    std::uint64_t bytes, int repeats) {
  const std::uint64_t token_bytes = TokenBytes(image.layout, RowGroup::kFull);
  const auto tokens = static_cast<std::uint32_t>(std::max<std::uint64_t>(64, bytes / token_bytes));
  TouchedMemory data(tokens * token_bytes);
  std::uint64_t seed = options.seed;
  const std::vector<Contestant> contestants = {
      {"spill",
       [&] { return TimeSpills(options.directory, image, tokens, repeats, seed += repeats); }},
      {"raw write", [&] { return TimeReferenceWrites(options.directory, data, repeats); }},
  };
  auto medians = MedianSeconds(contestants, kRounds, options.seed);
  if (!medians.ok()) return medians.status();
  return (*medians)["raw write"] / (*medians)["spill"];
}

}  // namespace parkade::bench
