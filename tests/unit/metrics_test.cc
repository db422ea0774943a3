#include "src/metrics/metrics.h"

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace parkade {
namespace {

const BuildInfo kBuild = {"0.1.0", "b1", "7.8.3", "gemma"};

// Series with labels, as written -> value.
std::map<std::string, double> Samples(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t space = line.rfind(' ');
    EXPECT_TRUE(samples.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second)
        << line;
  }
  return samples;
}

double Sum(const std::map<std::string, double>& samples, const std::string& name) {
  double sum = 0;
  for (const auto& [series, value] : samples) {
    if (series.substr(0, series.find('{')) == name) sum += value;
  }
  return sum;
}

// Names of the `# TYPE` lines -> type.
std::map<std::string, std::string> Types(const std::string& text) {
  std::map<std::string, std::string> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, keyword, name, type;
    words >> hash >> keyword >> name >> type;
    if (hash == "#" && keyword == "TYPE") types[name] = type;
  }
  return types;
}

std::set<std::string> LabelNames(const std::string& series) {
  std::set<std::string> names;
  for (std::size_t equals = series.find("=\""); equals != std::string::npos;
       equals = series.find("=\"", equals + 1)) {
    const std::size_t begin = series.find_last_of("{,", equals) + 1;
    names.insert(series.substr(begin, equals - begin));
  }
  names.erase("le");
  return names;
}

MetricsSnapshot TwoTiers() {
  MetricsSnapshot snapshot;
  TierInfo ram;
  ram.kind = TierKind::kRam;
  ram.usage = {1000, 2000, 0, 3000, 500, 400, 0, "up"};
  ram.conversations = 3;
  ram.pinned_bytes = 70;
  TierInfo disk;
  disk.kind = TierKind::kDisk;
  disk.usage = {123456789012345, 1ull << 45, 11, 12, 13, 14, 0, "read_only: no space"};
  disk.conversations = 9;
  snapshot.tiers = {ram, disk};
  snapshot.queue.spill_queue_bytes = 4096;
  return snapshot;
}

LookupRecord Record() {
  LookupRecord record;
  record.prompt_tokens = 1000;
  record.reused_tokens = 900;
  record.outcome = LookupOutcome::kPartial;
  record.hit_tokens[static_cast<int>(Source::kRam)] = 600;
  record.hit_tokens[static_cast<int>(Source::kDisk)] = 300;
  record.miss_tokens[static_cast<int>(MissReason::kDiverged)] = 90;
  record.miss_tokens[static_cast<int>(MissReason::kNew)] = 10;
  record.lookup_seconds = 0.0003;
  record.restore_seconds = 0.4;
  return record;
}

TEST(Metrics, CountersExistWithZeroFromTheStart) {
  Metrics metrics(kBuild);
  const auto samples = Samples(metrics.Scrape());
  for (const char* tier : {"slot", "ram", "disk", "remote"}) {
    EXPECT_EQ(samples.at(std::string("parkade_hit_tokens_total{tier=\"") + tier + "\"}"), 0);
  }
  for (const char* reason :
       {"new", "cold", "diverged", "identity", "evicted", "corrupt", "incomplete", "checkpoint",
        "remote", "too_short", "unsupported", "disabled"}) {
    EXPECT_EQ(samples.at(std::string("parkade_miss_tokens_total{reason=\"") + reason + "\"}"), 0);
  }
  for (const char* outcome : {"full", "partial", "miss"}) {
    EXPECT_EQ(samples.at(std::string("parkade_lookups_total{outcome=\"") + outcome + "\"}"), 0);
  }
  for (const char* reason : {"too_short", "queue_full", "no_space", "too_large", "unsupported"}) {
    EXPECT_EQ(samples.at(std::string("parkade_skipped_parks_total{reason=\"") + reason + "\"}"), 0);
  }
  for (const char* tier : {"ram", "disk", "remote"}) {
    for (const char* reason :
         {"budget", "slots", "min_free", "ttl", "manual", "corrupt", "superseded"}) {
      const std::string labels = std::string("{reason=\"") + reason + "\",tier=\"" + tier + "\"}";
      EXPECT_EQ(samples.at("parkade_evictions_total" + labels), 0);
      EXPECT_EQ(samples.at("parkade_evicted_bytes_total" + labels), 0);
    }
    const std::string labels = std::string("{tier=\"") + tier + "\"}";
    EXPECT_EQ(samples.at("parkade_corrupt_total" + labels), 0);
    EXPECT_EQ(samples.at("parkade_read_bytes_total" + labels), 0);
    EXPECT_EQ(samples.at("parkade_written_bytes_total" + labels), 0);
    EXPECT_EQ(samples.at("parkade_restore_seconds_count" + labels), 0);
    EXPECT_EQ(samples.at("parkade_spill_seconds_count" + labels), 0);
  }
  EXPECT_EQ(samples.at("parkade_lookup_tokens_total"), 0);
  EXPECT_EQ(samples.at("parkade_saved_seconds_total"), 0);
  EXPECT_EQ(samples.at("parkade_stage_restored_bytes_total{stage=\"0\"}"), 0);
  EXPECT_EQ(samples.at("parkade_time_to_first_token_seconds_count{tier=\"none\"}"), 0);
}

TEST(Metrics, LookupMovesItsCountersOnceAndTheIdentityHolds) {
  Metrics metrics(kBuild);
  metrics.OnLookup(Record());
  LookupRecord miss;
  miss.prompt_tokens = 50;
  miss.miss_tokens[static_cast<int>(MissReason::kCold)] = 50;
  metrics.OnLookup(miss);

  const auto samples = Samples(metrics.Scrape());
  EXPECT_EQ(samples.at("parkade_lookup_tokens_total"), 1050);
  EXPECT_EQ(samples.at("parkade_lookups_total{outcome=\"partial\"}"), 1);
  EXPECT_EQ(samples.at("parkade_lookups_total{outcome=\"miss\"}"), 1);
  EXPECT_EQ(samples.at("parkade_lookups_total{outcome=\"full\"}"), 0);
  EXPECT_EQ(samples.at("parkade_hit_tokens_total{tier=\"ram\"}"), 600);
  EXPECT_EQ(samples.at("parkade_hit_tokens_total{tier=\"disk\"}"), 300);
  EXPECT_EQ(samples.at("parkade_miss_tokens_total{reason=\"diverged\"}"), 90);
  EXPECT_EQ(samples.at("parkade_miss_tokens_total{reason=\"cold\"}"), 50);
  EXPECT_EQ(Sum(samples, "parkade_hit_tokens_total") + Sum(samples, "parkade_miss_tokens_total"),
            samples.at("parkade_lookup_tokens_total"));
  EXPECT_EQ(samples.at("parkade_lookup_seconds_count"), 2);
  EXPECT_EQ(samples.at("parkade_lookup_seconds_bucket{le=\"0.00025\"}"), 1);
  EXPECT_EQ(samples.at("parkade_lookup_seconds_bucket{le=\"0.0005\"}"), 2);
}

TEST(Metrics, IdentityHoldsAtEveryScrape) {
  Metrics metrics(kBuild);
  std::thread writer([&] {
    for (int i = 0; i < 2000; ++i) metrics.OnLookup(Record());
  });
  for (int i = 0; i < 20; ++i) {
    const auto samples = Samples(metrics.Scrape());
    EXPECT_EQ(Sum(samples, "parkade_hit_tokens_total") + Sum(samples, "parkade_miss_tokens_total"),
              samples.at("parkade_lookup_tokens_total"));
  }
  writer.join();
  EXPECT_EQ(Samples(metrics.Scrape()).at("parkade_lookup_tokens_total"), 2000000);
}

TEST(Metrics, EveryOtherEventIsCounted) {
  Metrics metrics(kBuild);
  ParkEvent park;
  park.capture_seconds = 0.02;
  metrics.OnPark(park);
  metrics.OnSpill(TierKind::kDisk, 100, 0.05);
  metrics.OnRestore(TierKind::kDisk, 200, 400);
  metrics.OnStageRestored(1, 77);
  metrics.OnStageRestored(1, 3);
  metrics.OnStageLimited(1);
  metrics.OnSkippedPark(SkipReason::kQueueFull, 64);
  metrics.OnEvict(TierKind::kRam, EvictReason::kMinFree, 5000);
  metrics.OnCorrupt(TierKind::kDisk);
  metrics.OnTierError(TierKind::kDisk, "write: no space left on device");
  metrics.OnTierError(TierKind::kDisk, "read");
  metrics.OnTierError(TierKind::kRemote, "whatever a medium says");
  metrics.OnFirstToken(std::nullopt, 3);
  metrics.OnFirstToken(Source::kDisk, 0.2);

  const auto samples = Samples(metrics.Scrape());
  EXPECT_EQ(samples.at("parkade_park_seconds_count"), 1);
  EXPECT_EQ(samples.at("parkade_park_seconds_sum"), 0.02);
  EXPECT_EQ(samples.at("parkade_spill_seconds_sum{tier=\"disk\"}"), 0.05);
  EXPECT_EQ(samples.at("parkade_restore_seconds_bucket{tier=\"disk\",le=\"300\"}"), 0);
  EXPECT_EQ(samples.at("parkade_restore_seconds_bucket{tier=\"disk\",le=\"+Inf\"}"), 1);
  EXPECT_EQ(samples.at("parkade_stage_restored_bytes_total{stage=\"1\"}"), 80);
  EXPECT_EQ(samples.at("parkade_stage_limited_total{stage=\"1\"}"), 1);
  EXPECT_EQ(samples.at("parkade_skipped_parks_total{reason=\"queue_full\"}"), 1);
  EXPECT_EQ(samples.at("parkade_evictions_total{reason=\"min_free\",tier=\"ram\"}"), 1);
  EXPECT_EQ(samples.at("parkade_evicted_bytes_total{reason=\"min_free\",tier=\"ram\"}"), 5000);
  EXPECT_EQ(samples.at("parkade_corrupt_total{tier=\"disk\"}"), 1);
  EXPECT_EQ(samples.at("parkade_tier_errors_total{kind=\"write\",tier=\"disk\"}"), 1);
  EXPECT_EQ(samples.at("parkade_tier_errors_total{kind=\"read\",tier=\"disk\"}"), 1);
  EXPECT_EQ(samples.at("parkade_tier_errors_total{kind=\"other\",tier=\"remote\"}"), 1);
  EXPECT_EQ(samples.at("parkade_time_to_first_token_seconds_sum{tier=\"none\"}"), 3);
  EXPECT_EQ(samples.at("parkade_time_to_first_token_seconds_count{tier=\"disk\"}"), 1);
}

TEST(Metrics, GaugesComeFromTheSnapshotOfTheScrape) {
  Metrics metrics(kBuild);
  EXPECT_EQ(Types(metrics.Scrape()).count("parkade_used_bytes"), 0u);
  MetricsSnapshot snapshot = TwoTiers();
  metrics.SetSnapshot([&] { return snapshot; });
  auto samples = Samples(metrics.Scrape());
  EXPECT_EQ(samples.at("parkade_used_bytes{tier=\"ram\"}"), 1000);
  EXPECT_EQ(samples.at("parkade_budget_bytes{tier=\"ram\"}"), 2000);
  EXPECT_EQ(samples.at("parkade_free_bytes{tier=\"ram\"}"), 3000);
  EXPECT_EQ(samples.at("parkade_conversations{tier=\"ram\"}"), 3);
  EXPECT_EQ(samples.at("parkade_pinned_bytes{tier=\"ram\"}"), 70);
  EXPECT_EQ(samples.at("parkade_tier_up{tier=\"ram\"}"), 1);
  EXPECT_EQ(samples.at("parkade_used_bytes{tier=\"disk\"}"), 123456789012345);
  EXPECT_EQ(samples.at("parkade_physical_bytes{tier=\"disk\"}"), 11);
  EXPECT_EQ(samples.at("parkade_tier_up{tier=\"disk\"}"), 0);
  EXPECT_EQ(samples.count("parkade_used_bytes{tier=\"remote\"}"), 0u);
  EXPECT_EQ(samples.at("parkade_spill_queue_bytes"), 4096);

  snapshot.tiers[0].usage.used_bytes = 7;
  snapshot.queue.spill_queue_bytes = 0;
  samples = Samples(metrics.Scrape());
  EXPECT_EQ(samples.at("parkade_used_bytes{tier=\"ram\"}"), 7);
  EXPECT_EQ(samples.at("parkade_spill_queue_bytes"), 0);

  metrics.SetSnapshot(nullptr);
  snapshot.tiers[0].usage.used_bytes = 8;
  EXPECT_EQ(Samples(metrics.Scrape()).at("parkade_used_bytes{tier=\"ram\"}"), 7);
}

TEST(Metrics, BytesOfATierOnlyGrow) {
  Metrics metrics(kBuild);
  MetricsSnapshot snapshot = TwoTiers();
  metrics.SetSnapshot([&] { return snapshot; });
  auto samples = Samples(metrics.Scrape());
  EXPECT_EQ(samples.at("parkade_written_bytes_total{tier=\"ram\"}"), 500);
  EXPECT_EQ(samples.at("parkade_read_bytes_total{tier=\"ram\"}"), 400);
  samples = Samples(metrics.Scrape());
  EXPECT_EQ(samples.at("parkade_written_bytes_total{tier=\"ram\"}"), 500);
  snapshot.tiers[0].usage.written_bytes = 900;
  samples = Samples(metrics.Scrape());
  EXPECT_EQ(samples.at("parkade_written_bytes_total{tier=\"ram\"}"), 900);
  snapshot.tiers[0].usage.written_bytes = 30;  // opened again
  samples = Samples(metrics.Scrape());
  EXPECT_EQ(samples.at("parkade_written_bytes_total{tier=\"ram\"}"), 930);
  EXPECT_EQ(samples.at("parkade_read_bytes_total{tier=\"ram\"}"), 400);
}

TEST(Metrics, SavedSecondsAreReadingLessRestore) {
  Metrics metrics(kBuild);
  metrics.OnPromptRead(0, 500, 5);  // 10 ms a token
  metrics.OnLookup(Record());       // 900 tokens, restored in 0.4 s
  EXPECT_NEAR(Samples(metrics.Scrape()).at("parkade_saved_seconds_total"), 8.6, 1e-9);

  LookupRecord slow = Record();
  slow.restore_seconds = 100;
  metrics.OnLookup(slow);
  EXPECT_NEAR(Samples(metrics.Scrape()).at("parkade_saved_seconds_total"), 8.6, 1e-9);

  LookupRecord slot = Record();
  slot.hit_tokens = {900, 0, 0, 0};
  metrics.OnLookup(slot);
  EXPECT_NEAR(Samples(metrics.Scrape()).at("parkade_saved_seconds_total"), 8.6, 1e-9);
}

TEST(Metrics, SavedSecondsWaitForTheFirstMeasuredSpeed) {
  Metrics metrics(kBuild);
  metrics.OnLookup(Record());
  EXPECT_EQ(Samples(metrics.Scrape()).at("parkade_saved_seconds_total"), 0);
  metrics.OnPromptRead(900, 10, 1);  // too short to say anything
  EXPECT_EQ(Samples(metrics.Scrape()).at("parkade_saved_seconds_total"), 0);
  metrics.OnPromptRead(900, 100, 1);
  EXPECT_NEAR(Samples(metrics.Scrape()).at("parkade_saved_seconds_total"), 8.6, 1e-9);
  metrics.OnPromptRead(900, 100, 1);
  EXPECT_NEAR(Samples(metrics.Scrape()).at("parkade_saved_seconds_total"), 8.6, 1e-9);
}

TEST(Metrics, BuildInfoIsOneSeriesAndEscaped) {
  Metrics metrics({"0.1.0", "b1", "7.8.3", ""});
  metrics.SetModel("a \"model\"\n");
  const auto samples = Samples(metrics.Scrape());
  EXPECT_EQ(Sum(samples, "parkade_build_info"), 1);
  EXPECT_EQ(samples.at("parkade_build_info{llama_cpp=\"b1\",model=\"a \\\"model\\\"\\n\","
                       "rocksdb=\"7.8.3\",version=\"0.1.0\"}"),
            1);
}

TEST(Metrics, DeclaredStagesExist) {
  Metrics metrics(kBuild);
  metrics.DeclareStages(3);
  const auto samples = Samples(metrics.Scrape());
  EXPECT_EQ(samples.at("parkade_stage_limited_total{stage=\"2\"}"), 0);
  EXPECT_EQ(samples.count("parkade_stage_limited_total{stage=\"3\"}"), 0u);
}

class CountingSink : public EventSink {
 public:
  void OnLookup(const LookupRecord&) override { calls.push_back("lookup"); }
  void OnPark(const ParkEvent&) override { calls.push_back("park"); }
  void OnSpill(TierKind, std::uint64_t, double) override { calls.push_back("spill"); }
  void OnRestore(TierKind, std::uint64_t, double) override { calls.push_back("restore"); }
  void OnStageRestored(std::uint16_t, std::uint64_t) override { calls.push_back("stage"); }
  void OnStageLimited(std::uint16_t) override { calls.push_back("limited"); }
  void OnSkippedPark(SkipReason, std::uint32_t) override { calls.push_back("skipped"); }
  void OnEvict(TierKind, EvictReason, std::uint64_t) override { calls.push_back("evict"); }
  void OnCorrupt(TierKind) override { calls.push_back("corrupt"); }
  void OnTierError(TierKind, std::string_view) override { calls.push_back("error"); }
  void Log(LogLevel, std::string_view line) override { calls.emplace_back(line); }

  std::vector<std::string> calls;
};

TEST(Metrics, EveryEventGoesOnToEverySink) {
  CountingSink first, second;
  Metrics metrics(kBuild, {&first, &second});
  metrics.OnLookup(Record());
  metrics.OnPark({});
  metrics.OnSpill(TierKind::kDisk, 1, 1);
  metrics.OnRestore(TierKind::kDisk, 1, 1);
  metrics.OnStageRestored(0, 1);
  metrics.OnStageLimited(0);
  metrics.OnSkippedPark(SkipReason::kNoSpace, 1);
  metrics.OnEvict(TierKind::kDisk, EvictReason::kTtl, 1);
  metrics.OnCorrupt(TierKind::kDisk);
  metrics.OnTierError(TierKind::kDisk, "read");
  metrics.Log(LogLevel::kInfo, "a line");
  const std::vector<std::string> all = {"lookup",  "park",    "spill",   "restore",
                                        "stage",   "limited", "skipped", "evict",
                                        "corrupt", "error",   "a line"};
  EXPECT_EQ(first.calls, all);
  EXPECT_EQ(second.calls, all);
}

struct CatalogueEntry {
  std::string type;
  std::set<std::string> labels;
};

// First table of dashboards/README.md.
std::map<std::string, CatalogueEntry> Catalogue() {
  std::map<std::string, CatalogueEntry> entries;
  std::ifstream file(PARKADE_CATALOGUE);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| `parkade_", 0) != 0) continue;
    std::vector<std::string> cells;
    std::istringstream columns(line.substr(1));
    for (std::string cell; std::getline(columns, cell, '|');) cells.push_back(cell);
    EXPECT_EQ(cells.size(), 5u) << line;
    const auto inner = [](const std::string& cell) {
      std::string out;
      for (const char c : cell) {
        if (c != ' ' && c != '`') out.push_back(c);
      }
      return out;
    };
    CatalogueEntry entry{inner(cells[1]), {}};
    std::istringstream labels(inner(cells[2]));
    for (std::string label; std::getline(labels, label, ',');) entry.labels.insert(label);
    EXPECT_TRUE(entries.emplace(inner(cells[0]), entry).second) << line;
  }
  return entries;
}

TEST(Metrics, CatalogueIsWhatExists) {
  Metrics metrics(kBuild);
  metrics.SetSnapshot(TwoTiers);
  const std::string text = metrics.Scrape();
  const auto types = Types(text);
  const auto catalogue = Catalogue();
  ASSERT_GE(catalogue.size(), 28u);
  for (const auto& [name, type] : types) {
    ASSERT_TRUE(catalogue.count(name)) << name << " is not in dashboards/README.md";
    EXPECT_EQ(catalogue.at(name).type, type) << name;
  }
  for (const auto& [name, entry] : catalogue) {
    EXPECT_TRUE(types.count(name)) << name << " does not exist";
  }
  for (const auto& [series, value] : Samples(text)) {
    std::string name = series.substr(0, series.find('{'));
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {
      const std::size_t at = name.rfind(suffix);
      if (!types.count(name) && at != std::string::npos) name = name.substr(0, at);
    }
    ASSERT_TRUE(catalogue.count(name)) << series;
    EXPECT_EQ(LabelNames(series), catalogue.at(name).labels) << series;
  }
}

}  // namespace
}  // namespace parkade
