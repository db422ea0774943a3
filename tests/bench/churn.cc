// The disk tier under constant eviction: what is written for a byte parked, and held for a byte
// that the catalogue names.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/disk_cache.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"
#include "tests/bench/workload.h"

namespace parkade::bench {
namespace {

constexpr std::uint64_t kMib = 1ull << 20;
constexpr double kBudgetBytes = 2048.0 * kMib;
constexpr double kBudgetsWritten = 5;
constexpr int kLiveChats = 30;
// 1,792 tokens are seven extents; at full scale each of 2.25 MiB.
constexpr std::uint32_t kTurnTokens = 7 * kExtentRows;
constexpr int kLayers = 18;
constexpr double kRowBytes = 256;
constexpr int kFewestTurns = 2;
constexpr int kMostTurns = 6;
// What the promise leaves out: log and small files of an empty tier.
constexpr double kFixedBytes = 32.0 * kMib;
constexpr int kSamples = 10;

constexpr double kLongChatTokens = 317000;
constexpr std::uint32_t kLongChatTurnTokens = 200;
constexpr std::uint64_t kLongChatRowBytes = 128;

struct Held {
  double per_live_byte = 0;        // without the fixed part
  double gross_per_live_byte = 0;  // with it
};

absl::StatusOr<Held> MeasureHeld(DiskCache& cache, const std::string& directory) {
  const absl::StatusOr<std::uint64_t> live = cache.LiveBytes();
  if (!live.ok()) return live.status();
  if (*live == 0) return absl::InternalError("nothing is live");
  const double physical = static_cast<double>(BlockBytes(directory));
  const double bytes = static_cast<double>(*live);
  return Held{std::max(0.0, physical - kFixedBytes) / bytes, physical / bytes};
}

void KeepWorst(const Held& held, Held* worst) {
  worst->per_live_byte = std::max(worst->per_live_byte, held.per_live_byte);
  worst->gross_per_live_byte = std::max(worst->gross_per_live_byte, held.gross_per_live_byte);
}

FakeEngineOptions EngineFor(const StateLayout& layout, std::uint32_t max_tokens) {
  FakeEngineOptions options;
  options.planes = layout.planes;
  options.max_tokens = max_tokens;
  return options;
}

// Chats that take turns in random order; one that ends makes way for a new one.
class Chats {
 public:
  Chats(const StateLayout& layout, bool forks, std::uint64_t seed)
      : layout_(layout), forks_(forks), random_(seed), chats_(kLiveChats) {
    for (Chat& chat : chats_) Begin(&chat);
  }

  // The engine of the chat whose turn it is, with the turn's tokens decoded.
  FakeEngine& NextTurn() {
    Chat& chat = chats_[random_() % chats_.size()];
    if (chat.turns_left == 0) Begin(&chat);
    --chat.turns_left;
    chat.engine->Append(RandomTokens(kTurnTokens, random_()));
    return *chat.engine;
  }

 private:
  struct Chat {
    std::unique_ptr<FakeEngine> engine;
    int turns_left = 0;
    bool is_fork = false;
  };

  // With forks, every second chat of a place leaves the one before it at a tenth of its length.
  void Begin(Chat* chat) {
    std::vector<Token> shared;
    if (forks_ && chat->engine != nullptr && !chat->is_fork) {
      shared = chat->engine->tokens();
      shared.resize(shared.size() / 10);
    }
    chat->is_fork = !shared.empty();
    chat->turns_left = kFewestTurns + static_cast<int>(random_() % (kMostTurns - kFewestTurns + 1));
    const std::uint32_t most = (kMostTurns + 1) * kTurnTokens;
    chat->engine = std::make_unique<FakeEngine>(EngineFor(layout_, most));
    chat->engine->Append(shared);
  }

  const StateLayout layout_;
  const bool forks_;
  std::mt19937_64 random_;
  std::vector<Chat> chats_;
};

struct ChurnResult {
  double written_per_parked_byte = 0;
  Held held;
  std::vector<double> park_seconds;
  std::vector<double> evict_seconds;
  std::uint64_t parks = 0;
  std::uint64_t parked_bytes = 0;
};

absl::StatusOr<ChurnResult> Churn(const BenchOptions& options, bool forks) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const std::string directory = folder->path() + "/tier";
  const auto budget = static_cast<std::uint64_t>(kBudgetBytes * options.scale);
  absl::StatusOr<std::unique_ptr<DiskCache>> opened = DiskCache::Open({directory, budget});
  if (!opened.ok()) return opened.status();
  DiskCache& cache = **opened;
  const auto row_bytes = static_cast<std::uint64_t>(std::max(8.0, kRowBytes * options.scale));
  const StateLayout layout = MakeFakeLayout(kLayers, row_bytes, 0, 0, 0, 0);
  Chats chats(layout, forks, options.seed);
  FakeEngine model(EngineFor(layout, 1));
  if (absl::Status s = Register(cache.cache(), model).status(); !s.ok()) return s;

  ChurnResult result;
  const double wanted = kBudgetsWritten * static_cast<double>(budget);
  double next_sample = 1.5 * static_cast<double>(budget);
  const WriteMeter writes;
  while (static_cast<double>(cache.sink().parked_bytes()) < wanted) {
    if (absl::Status s = cache.ParkDurably(chats.NextTurn()); !s.ok()) return s;
    if (static_cast<double>(cache.sink().parked_bytes()) < next_sample) continue;
    next_sample += wanted / kSamples;
    const absl::StatusOr<Held> held = MeasureHeld(cache, directory);
    if (!held.ok()) return held.status();
    KeepWorst(*held, &result.held);
  }
  const absl::StatusOr<std::uint64_t> written = writes.bytes();
  if (!written.ok()) return written.status();
  const absl::StatusOr<Held> held = MeasureHeld(cache, directory);
  if (!held.ok()) return held.status();
  KeepWorst(*held, &result.held);
  result.parks = cache.sink().parks();
  result.parked_bytes = cache.sink().parked_bytes();
  result.written_per_parked_byte =
      static_cast<double>(*written) / static_cast<double>(result.parked_bytes);
  result.park_seconds = cache.times().stores();
  result.evict_seconds = cache.times().removes();
  return result;
}

absl::StatusOr<ChurnResult> LongChat(const BenchOptions& options) {
  absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Make(options.directory);
  if (!folder.ok()) return folder.status();
  const std::string directory = folder->path() + "/tier";
  const auto tokens = static_cast<std::uint32_t>(kLongChatTokens * options.scale);
  const StateLayout layout = MakeFakeLayout(kLayers, kLongChatRowBytes, 0, 0, 0, 0);
  const std::uint64_t budget = 2 * tokens * TokenBytes(layout, RowGroup::kFull) + 128 * kMib;
  absl::StatusOr<std::unique_ptr<DiskCache>> opened = DiskCache::Open({directory, budget});
  if (!opened.ok()) return opened.status();
  DiskCache& cache = **opened;
  FakeEngine engine(EngineFor(layout, tokens + kLongChatTurnTokens));
  if (absl::Status s = Register(cache.cache(), engine).status(); !s.ok()) return s;
  std::mt19937_64 random(options.seed);
  const WriteMeter writes;
  while (engine.tokens().size() < tokens) {
    engine.Append(RandomTokens(kLongChatTurnTokens, random()));
    if (absl::Status s = cache.ParkDurably(engine); !s.ok()) return s;
  }
  const absl::StatusOr<std::uint64_t> written = writes.bytes();
  if (!written.ok()) return written.status();
  const absl::StatusOr<Held> held = MeasureHeld(cache, directory);
  if (!held.ok()) return held.status();
  ChurnResult result;
  result.held = *held;
  result.parks = cache.sink().parks();
  result.parked_bytes = cache.sink().parked_bytes();
  result.written_per_parked_byte =
      static_cast<double>(*written) / static_cast<double>(result.parked_bytes);
  return result;
}

std::string Describe(std::string_view what, const ChurnResult& result) {
  return absl::StrFormat("%s: %d parks, %d MiB", std::string(what), result.parks,
                         result.parked_bytes / kMib);
}

}  // namespace

absl::StatusOr<Outcome> RunChurn(const BenchOptions& options) {
  const absl::StatusOr<ChurnResult> plain = Churn(options, false);
  if (!plain.ok()) return plain.status();
  const absl::StatusOr<ChurnResult> forked = Churn(options, true);
  if (!forked.ok()) return forked.status();
  const absl::StatusOr<ChurnResult> chat = LongChat(options);
  if (!chat.ok()) return chat.status();

  Outcome outcome;
  outcome.notes.push_back(Describe("30 live chats", *plain));
  outcome.notes.push_back(Describe("with a fork at the tenth of every chat", *forked));
  outcome.notes.push_back(Describe("one long chat in turns of 200 tokens", *chat));
  outcome.Add("written_per_parked_byte", plain->written_per_parked_byte);
  outcome.Add("physical_per_live_byte", plain->held.per_live_byte);
  outcome.Add("physical_with_fixed_per_live_byte", plain->held.gross_per_live_byte);
  outcome.Add("forked_written_per_parked_byte", forked->written_per_parked_byte);
  outcome.Add("forked_physical_per_live_byte", forked->held.per_live_byte);
  outcome.Add("long_chat_written_per_parked_byte", chat->written_per_parked_byte);
  outcome.Add("long_chat_physical_per_live_byte", chat->held.per_live_byte);
  outcome.Add("park_p50_ms", 1e3 * Percentile(plain->park_seconds, 0.5));
  outcome.Add("park_p99_ms", 1e3 * Percentile(plain->park_seconds, 0.99));
  outcome.Add("evict_p50_ms", 1e3 * Percentile(plain->evict_seconds, 0.5));
  outcome.Add("evict_p99_ms", 1e3 * Percentile(plain->evict_seconds, 0.99));
  outcome.AtMost("written_per_parked_byte", 1.05);
  outcome.AtMost("physical_per_live_byte", 1.05);
  outcome.AtMost("forked_written_per_parked_byte", 1.05);
  outcome.AtMost("forked_physical_per_live_byte", 1.25);
  outcome.AtMost("long_chat_written_per_parked_byte", 1.05);
  outcome.AtMost("long_chat_physical_per_live_byte", 1.05);
  return outcome;
}

}  // namespace parkade::bench
