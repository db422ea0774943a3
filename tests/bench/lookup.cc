// A library of 10,000 conversations: how long a lookup takes, what the index holds, how long
// opening takes.

#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_format.h"
#include "src/format/checksum.h"
#include "src/manager/catalogue.h"
#include "tests/bench/disk_cache.h"
#include "tests/bench/files.h"
#include "tests/bench/many_chats.h"
#include "tests/bench/measure.h"
#include "tests/bench/workload.h"
#include "tiers/disk/names.h"

namespace parkade::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kConversations = 10000;
constexpr std::uint32_t kTokens = 32000;
constexpr std::uint32_t kParks = 20;  // of a conversation: 200,000 in all
// The goal, and the cache's bound: beyond it conversations would not be found.
constexpr std::uint64_t kIndexMib = 200;
constexpr int kOpenings = 3;
// Of the library that is rebuilt: 10,000 segments.
constexpr double kRebuiltConversations = 500;
constexpr int kLookups = 1500;
// Lookups match but are never worth a restore: there are no bytes to read.
constexpr std::uint32_t kNeverRestore = UINT32_MAX;

// Fills the catalogue that a cache keeps in memory, park by park as rewarming does, and returns
// the most it held on the way.
double MeasureIndexBytes(const ManyChats& chats, double* page_index_bytes) {
  const Digest128 secret = RandomDigest();
  const std::uint64_t before = HeapBytes();
  std::uint64_t peak = 0;
  Catalogue catalogue;
  std::vector<Handle> handles;
  handles.reserve(chats.conversations());
  for (std::uint32_t i = 0; i < chats.conversations(); ++i) {
    const std::vector<ParkRecord> parks = chats.Parks(i, secret);
    const std::uint64_t others = HeapBytes();  // the records are not the catalogue's
    const std::uint64_t held = others - before;
    ResetHeapPeak();
    const ParkSummary& first = parks.front().summary;
    const Handle parent = first.parent.IsZero() ? kNoHandle : catalogue.FindId(first.parent);
    const Handle handle = catalogue.Create(first.key.conversation, first.identity, parent,
                                           first.parent_tokens, first.created_unix_ms);
    for (const ParkRecord& park : parks) catalogue.AddPark(handle, park.summary, 1);
    std::uint64_t records = 0;
    for (const ParkRecord& park : parks) {
      records += sizeof(park) + park.tokens.capacity() * sizeof(Token) +
                 park.extents.capacity() * sizeof(ExtentInfo) +
                 park.summary.page_hashes.capacity() * sizeof(std::uint64_t);
    }
    peak = std::max(peak, held - std::min(held, records) + (HeapPeakBytes() - others));
  }
  *page_index_bytes = static_cast<double>(catalogue.index_bytes());
  return static_cast<double>(peak);
}

struct Opening {
  double seconds = 0;
  double peak_mib = 0;
};

absl::StatusOr<std::unique_ptr<DiskCache>> OpenTimed(const std::string& directory,
                                                     Opening* opening) {
  // What the library's making and earlier openings have freed must not hide what this one takes.
  ::malloc_trim(0);
  const std::uint64_t resident = ResidentBytes();
  const bool reset = ResetPeak();
  const double begin = NowSeconds();
  absl::StatusOr<std::unique_ptr<DiskCache>> cache =
      DiskCache::Open({directory, 1ull << 46, kNeverRestore, kIndexMib << 20});
  opening->seconds = NowSeconds() - begin;
  if (reset) opening->peak_mib = static_cast<double>(PeakResidentBytes() - resident) / kMib;
  return cache;
}

struct LookupTimes {
  std::vector<double> index;    // the call: hashing, the page index, handing over to a reader
  std::vector<double> compare;  // all of it, tokens from a cached row
  // The same where tokens come from the disk tier's rows. The call's time here is apart: the reader
  // that it wakes often begins on the caller's core.
  std::vector<double> first_index;
  std::vector<double> read;
};

// Asks once and waits for the answer. *index: seconds in the call itself.
absl::StatusOr<LookupRecord> Ask(DiskCache& cache, const ManyChats& chats,
                                 const std::vector<Token>& prompt, double* index) {
  LookupRequest request;
  request.identity = chats.identity();
  request.tokens = prompt;
  request.cacheable_tokens = static_cast<std::uint32_t>(prompt.size());
  const double begin = NowSeconds();
  std::unique_ptr<Restore> restore = cache.cache().Lookup(std::move(request));
  *index = NowSeconds() - begin;
  if (!restore->WaitReady(10000)) return absl::DeadlineExceededError("a lookup stands still");
  cache.cache().FinishLookup(std::move(restore), 0);
  if (!cache.sink().status().ok()) return cache.sink().status();
  return cache.sink().last_lookup();
}

// One prompt of three is a whole conversation, one leaves its conversation somewhere, one is new.
absl::Status AskMany(DiskCache& cache, const ManyChats& chats, int lookups, std::uint64_t seed,
                     LookupTimes* times) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < lookups; ++i) {
    const auto conversation = static_cast<std::uint32_t>(random() % chats.conversations());
    std::vector<Token> prompt = chats.Tokens(conversation);
    std::uint32_t shared = kTokens;
    if (i % 3 == 1) shared = static_cast<std::uint32_t>(random() % kTokens);
    if (i % 3 == 2) shared = 0;
    const std::vector<Token> fresh = RandomTokens(kTokens - shared, random());
    // Tokens of conversations are below 50,000.
    std::transform(fresh.begin(), fresh.end(), prompt.begin() + shared,
                   [](Token token) { return token + 100000; });
    for (const bool cached : {false, true}) {
      double index = 0;
      const absl::StatusOr<LookupRecord> record = Ask(cache, chats, prompt, &index);
      if (!record.ok()) return record.status();
      if (record->matched_tokens < shared - shared % kPageTokens ||
          record->matched_tokens > shared) {
        return absl::InternalError(
            absl::StrFormat("matched %d of %d tokens", record->matched_tokens, shared));
      }
      (cached ? times->index : times->first_index).push_back(index);
      (cached ? times->compare : times->read).push_back(record->lookup_seconds);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Outcome> RunLookup(const BenchOptions& options) {
  const auto conversations =
      static_cast<std::uint32_t>(std::max(100.0, kConversations * options.scale));
  const ManyChats chats(conversations, kTokens, kParks, options.seed);
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const std::string directory = folder->path() + "/tier";
  if (absl::Status s = chats.WriteDirectoryAndDie(directory); !s.ok()) return s;

  Outcome outcome;
  outcome.notes.push_back(absl::StrFormat("%d conversations of %d tokens in %d parks",
                                          conversations, kTokens, conversations * kParks));
  double page_index_bytes = 0;
  const double index_bytes = MeasureIndexBytes(chats, &page_index_bytes);
  double crashed_seconds = 0;
  std::vector<double> open_seconds;
  std::vector<double> open_peaks;
  std::unique_ptr<DiskCache> cache;
  for (int i = 0; i < kOpenings; ++i) {
    cache.reset();
    Opening opening;
    absl::StatusOr<std::unique_ptr<DiskCache>> opened = OpenTimed(directory, &opening);
    if (!opened.ok()) return opened.status();
    cache = *std::move(opened);
    // The first one follows the writer's kill -9.
    if (i == 0) crashed_seconds = opening.seconds;
    open_seconds.push_back(opening.seconds);
    open_peaks.push_back(opening.peak_mib);
  }
  LookupTimes times;
  const int lookups = std::max(150, static_cast<int>(kLookups * options.scale));
  if (absl::Status s = AskMany(*cache, chats, lookups, options.seed, &times); !s.ok()) return s;

  outcome.Add("p50_us", 1e6 * Percentile(times.index, 0.5));
  outcome.Add("p99_us", 1e6 * Percentile(times.index, 0.99));
  outcome.Add("compare_p50_us", 1e6 * Percentile(times.compare, 0.5));
  outcome.Add("compare_p99_us", 1e6 * Percentile(times.compare, 0.99));
  outcome.Add("first_p99_us", 1e6 * Percentile(times.first_index, 0.99));
  outcome.Add("first_compare_p99_us", 1e6 * Percentile(times.read, 0.99));
  outcome.Add("index_mib", index_bytes / kMib);
  outcome.Add("page_index_mib", page_index_bytes / kMib);
  outcome.Add("open_s", Median(open_seconds));
  outcome.Add("open_after_kill_s", crashed_seconds);
  outcome.Add("open_peak_mib", *std::max_element(open_peaks.begin(), open_peaks.end()));
  outcome.AtMost("p99_us", 200);
  outcome.AtMost("compare_p99_us", 1000);
  outcome.AtMost("index_mib", kIndexMib);
  outcome.AtMost("open_s", 3);
  outcome.AtMost("open_after_kill_s", 3);
  return outcome;
}

absl::StatusOr<Outcome> RunRebuild(const BenchOptions& options) {
  const auto conversations =
      static_cast<std::uint32_t>(std::max(50.0, kRebuiltConversations * options.scale));
  const ManyChats chats(conversations, kTokens, kParks, options.seed);
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const std::string directory = folder->path() + "/tier";
  if (absl::Status s = chats.WriteDirectory(directory, ManyChats::Segments::kHeads); !s.ok()) {
    return s;
  }
  std::uint64_t stored_bytes = 0;
  std::vector<double> kept;
  std::vector<double> rebuilt;
  for (int i = 0; i < kOpenings; ++i) {
    for (std::vector<double>* seconds : {&kept, &rebuilt}) {
      if (seconds == &rebuilt) {
        std::filesystem::remove_all(directory + "/" + std::string(disk::kCatalogueName));
      }
      Opening opening;
      const absl::StatusOr<std::unique_ptr<DiskCache>> cache = OpenTimed(directory, &opening);
      if (!cache.ok()) return cache.status();
      const absl::StatusOr<std::uint64_t> live = (*cache)->LiveBytes();
      if (!live.ok()) return live.status();
      if (stored_bytes == 0) stored_bytes = *live;
      if (*live == 0 || *live != stored_bytes) {
        return absl::InternalError(
            absl::StrFormat("%d of %d bytes are found", *live, stored_bytes));
      }
      seconds->push_back(opening.seconds);
    }
  }
  Outcome outcome;
  outcome.notes.push_back(
      absl::StrFormat("%d segments of %d tokens", conversations * kParks, kTokens / kParks));
  outcome.Add("open_s", Median(kept));
  outcome.Add("rebuild_s", Median(rebuilt));
  outcome.Add("rebuild_vs_open", Median(rebuilt) / Median(kept));
  return outcome;
}

}  // namespace parkade::bench
