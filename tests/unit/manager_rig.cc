#include "tests/unit/manager_rig.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>

#include "src/engine/fake/fake_rows.h"
#include "tests/support/heap_buffer.h"
#include "tiers/ram/ram_tier.h"

namespace parkade::test {
namespace {

// A tier in memory that behaves like a disk: it outlives the cache, and gives out copies.
class LentTier : public Tier {
 public:
  explicit LentTier(std::shared_ptr<Tier> inner) : inner_(std::move(inner)) {}

  TierKind kind() const override { return TierKind::kDisk; }
  bool durable() const override { return true; }
  TierUsage usage() const override { return inner_->usage(); }
  void SetBudget(std::uint64_t bytes) override { inner_->SetBudget(bytes); }
  Digest128 secret() const override { return inner_->secret(); }
  absl::Status Enumerate(const std::function<void(const ParkSummary&)>& visit) override {
    return inner_->Enumerate(visit);
  }
  absl::Status EnumerateAttributes(
      const std::function<void(const ConversationAttributes&)>& visit) override {
    return inner_->EnumerateAttributes(visit);
  }
  absl::Status EnumerateIdentities(
      const std::function<void(const Digest128&, const StoredIdentity&)>& visit) override {
    return inner_->EnumerateIdentities(visit);
  }
  absl::StatusOr<std::vector<Token>> ReadTokens(const ParkKey& key) override {
    return inner_->ReadTokens(key);
  }
  absl::StatusOr<std::vector<ExtentInfo>> ReadExtents(const ParkKey& key) override {
    return inner_->ReadExtents(key);
  }
  std::uint64_t Shortfall(std::uint64_t bytes) const override { return inner_->Shortfall(bytes); }
  absl::Status Store(const ParkRecord& record, absl::Span<const ExtentBytes> payload) override {
    std::vector<ExtentBytes> copies;
    for (const ExtentBytes& bytes : payload) copies.push_back(CopyToHeap(ViewOf(bytes)));
    return inner_->Store(record, copies);
  }
  absl::StatusOr<ExtentBytes> ReadExtent(
      const ParkKey& key, std::uint32_t extent,
      const std::function<std::shared_ptr<ExtentBuffer>(std::size_t)>& allocate) override {
    absl::StatusOr<ExtentBytes> bytes = inner_->ReadExtent(key, extent, allocate);
    if (!bytes.ok()) return bytes;
    std::shared_ptr<ExtentBuffer> copy = allocate((*bytes)->size());
    std::memcpy(copy->data(), (*bytes)->data(), (*bytes)->size());
    return ExtentBytes(std::move(copy));
  }
  absl::Status Remove(absl::Span<const ParkKey> keys) override { return inner_->Remove(keys); }
  absl::Status Forget(const ConversationId& id, absl::Span<const ParkKey> keys) override {
    return inner_->Forget(id, keys);
  }
  absl::Status PutIdentity(const Digest128& digest, const StoredIdentity& identity) override {
    return inner_->PutIdentity(digest, identity);
  }
  absl::Status WriteAttributes(absl::Span<const ConversationAttributes> attributes,
                               bool durable) override {
    return inner_->WriteAttributes(attributes, durable);
  }

 private:
  std::shared_ptr<Tier> inner_;
};

std::uint64_t Unlimited() { return UINT64_MAX; }

FakeEngineOptions EngineOptions(const RigModel& model) {
  FakeEngineOptions options;
  const StateLayout layout = model.layout();
  options.salt = model.salt;
  options.planes = layout.planes;
  options.window_tokens = layout.window_tokens;
  options.max_tokens = 1u << 14;
  return options;
}

}  // namespace

StoreGate::StoreGate(FaultyTier* tier) : tier_(tier) {
  tier_->SetObserver([state = state_](const CallSubject& call) {
    if (call.call != TierCall::kStore || state->taken.exchange(true)) return;
    {
      absl::MutexLock lock(&state->mu);
      state->held = call.keys.front();
    }
    state->arrived.Notify();
    state->open.WaitForNotification();
  });
}

StoreGate::~StoreGate() {
  Open();
  tier_->SetObserver(nullptr);
}

void StoreGate::Open() {
  if (!state_->open.HasBeenNotified()) state_->open.Notify();
}

StateLayout RigModel::layout() const {
  return MakeFakeLayout(layers, row_bytes, window_layers, window_tokens, state_layers, state_bytes);
}

RigModel FullModel() { return RigModel(); }

RigModel WindowModel() {
  RigModel model;
  model.window_layers = 2;
  model.window_tokens = 100;
  return model;
}

RigModel StateModel() {
  RigModel model;
  model.state_layers = 2;
  model.state_bytes = 4096;
  return model;
}

RigModel MixedModel() {
  RigModel model = WindowModel();
  model.state_layers = 2;
  model.state_bytes = 4096;
  return model;
}

RigOptions::RigOptions() : RigOptions(FullModel()) {}

RigOptions::RigOptions(RigModel which) : model(which) {
  cache.ram_budget_bytes = 256ull << 20;
  cache.capture_buffer_bytes = 8ull << 20;
  cache.read_buffer_bytes = 4ull << 20;
  cache.min_tokens = 32;
  cache.min_gain_tokens = 1;
}

Rig::Rig(RigOptions options) : options_(std::move(options)) {
  if (options_.disk) {
    std::string folder = ::testing::TempDir() + "parkade-manager-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    folder_ = folder;
  } else if (options_.durable) {
    medium_ = MakeRamTier({options_.durable_budget_bytes, 0, Unlimited});
  }
  Open();
}

Rig::~Rig() {
  Close();
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

void Rig::Close() { cache_.reset(); }

DiskTierOptions Rig::disk_options() const {
  DiskTierOptions disk;
  disk.directory = folder_;
  disk.budget_bytes = options_.durable_budget_bytes;
  disk.min_free_bytes = options_.disk_min_free_bytes;
  disk.key = options_.disk_key;
  return disk;
}

std::unique_ptr<Tier> Rig::OpenDurable() {
  if (!options_.disk) return std::make_unique<LentTier>(medium_);
  DiskTierOptions disk = disk_options();
  disk.files = options_.disk_files;
  absl::StatusOr<std::unique_ptr<Tier>> tier = OpenDiskTier(disk);
  EXPECT_TRUE(tier.ok()) << tier.status();
  return tier.ok() ? *std::move(tier) : nullptr;
}

void Rig::Open() {
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers_.clear();
  if (options_.ram) {
    auto tier =
        std::make_unique<FaultyTier>(MakeRamTier({options_.cache.ram_budget_bytes, 0, Unlimited}));
    tiers_.push_back(ram_ = tier.get());
    tiers.push_back(std::move(tier));
  }
  if (options_.durable || options_.disk) {
    auto tier = std::make_unique<FaultyTier>(OpenDurable());
    tiers_.push_back(durable_ = tier.get());
    tiers.push_back(std::move(tier));
  }
  if (options_.store != nullptr) {
    auto tier = std::make_unique<MemorySharedTier>(options_.store);
    shared_ = tier.get();
    tiers.push_back(std::move(tier));
  }
  auto cache = ConversationCache::Open(options_.cache, std::move(tiers), &sink_);
  ASSERT_TRUE(cache.ok()) << cache.status();
  cache_ = *std::move(cache);
  const auto engine = MakeEngine();
  const auto digest = cache_->RegisterIdentity(engine->identity(), engine->layout());
  ASSERT_TRUE(digest.ok()) << digest.status();
  identity_ = *digest;
}

std::unique_ptr<FakeEngine> Rig::MakeEngine(std::vector<int> shares) {
  FakeEngineOptions options = EngineOptions(options_.model);
  options.stages = MakeFakeStages(options_.model.layout(), shares);
  return std::make_unique<FakeEngine>(std::move(options));
}

ParkOutcome Rig::ParkOnce(FakeEngine& engine, bool boundary) {
  return cache_->Park(engine, ParkRequest{identity_, engine.tokens(), boundary});
}

ParkOutcome Rig::Park(FakeEngine& engine, bool boundary) {
  ParkOutcome outcome;
  std::uint32_t before = 0;
  for (int call = 0; call < 1000; ++call) {
    outcome = ParkOnce(engine, boundary);
    EXPECT_GE(outcome.captured_tokens, before);
    before = outcome.captured_tokens;
    Settle();
    if (outcome.complete) return outcome;
  }
  ADD_FAILURE() << "parking does not end";
  return outcome;
}

void Rig::Settle() {
  cache_->Drain(30000);
  EXPECT_EQ(cache_->Queue().spill_queue_bytes, 0u);
}

LookupRequest Rig::Request(const std::vector<Token>& prompt, std::uint32_t held) const {
  LookupRequest request;
  request.identity = identity_;
  request.tokens = prompt;
  request.cacheable_tokens = static_cast<std::uint32_t>(prompt.size());
  request.held_tokens = held;
  return request;
}

Restore::State Rig::StepToEnd(Restore& restore, FakeEngine& engine) {
  while (true) {
    EXPECT_TRUE(restore.WaitReady(30000));
    const Restore::State state = restore.Step(engine, 1000);
    if (state != Restore::State::kReading && state != Restore::State::kPlanning) return state;
  }
}

Restored Rig::Run(FakeEngine& engine, const std::vector<Token>& prompt, std::uint32_t held) {
  Restored result;
  std::unique_ptr<Restore> restore = cache_->Lookup(Request(prompt, held));
  EXPECT_TRUE(restore->WaitReady(30000));
  std::uint32_t reused = held;
  if (restore->WillRestore()) {
    result.state = StepToEnd(*restore, engine);
    reused = restore->restored_tokens();
    engine.SetTokens({prompt.begin(), prompt.begin() + reused});
    EXPECT_EQ(engine.Verify(), absl::OkStatus());
  } else {
    result.state = restore->state();
    if (held == 0 || !engine.Truncate(held).ok()) {
      engine.Clear();
      reused = 0;
    }
  }
  EXPECT_LT(reused, prompt.size());
  engine.Append(absl::MakeConstSpan(prompt).subspan(reused));
  EXPECT_EQ(engine.Verify(), absl::OkStatus());
  cache_->FinishLookup(std::move(restore), reused);
  result.record = cache_->Lookups(1).at(0);
  EXPECT_EQ(CheckSums(result.record), "");
  EXPECT_EQ(result.record.reused_tokens, reused);
  return result;
}

void Rig::ExpectNothingLeaks() {
  Settle();
  for (const ConversationInfo& info : cache_->List(10000, ConversationId())) {
    if (info.pinned) {
      EXPECT_TRUE(cache_->Pin(info.id, false, "").ok());
    }
  }
  for (const TierInfo& tier : cache_->Tiers()) {
    EXPECT_TRUE(cache_->SetBudget(tier.kind, 0).ok());
  }
  EXPECT_TRUE(cache_->List(10000, ConversationId()).empty());
  EXPECT_EQ(cache_->Queue().spill_queue_bytes, 0u);
  EXPECT_EQ(cache_->Queue().capture_bytes, 0u);
  std::uint32_t parks = 0;
  const auto count = [&](const ParkSummary&) { ++parks; };
  for (Tier* tier : tiers_) EXPECT_TRUE(tier->Enumerate(count).ok());
  EXPECT_EQ(parks, 0u);
}

LookupRecord Rig::Look(const std::vector<Token>& prompt) {
  std::unique_ptr<Restore> restore = cache_->Lookup(Request(prompt));
  EXPECT_TRUE(restore->WaitReady(30000));
  cache_->FinishLookup(std::move(restore), 0);
  const LookupRecord record = cache_->Lookups(1).at(0);
  EXPECT_EQ(CheckSums(record), "");
  return record;
}

std::vector<Token> Tokens(std::uint64_t seed, std::size_t count) {
  std::vector<Token> tokens(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<Token>(fake::Mix(seed, i) % 50000);
  }
  return tokens;
}

std::vector<Token> Fork(const std::vector<Token>& tokens, std::size_t keep, std::uint64_t seed,
                        std::size_t count) {
  std::vector<Token> fork(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(keep));
  for (const Token token : Tokens(seed, count)) fork.push_back(token);
  // Whatever the seed: the first token after the common part is another one.
  if (keep < tokens.size() && count > 0 && fork[keep] == tokens[keep]) ++fork[keep];
  return fork;
}

std::uint32_t Hit(const LookupRecord& record, Source source) {
  return record.hit_tokens[static_cast<std::size_t>(source)];
}

std::uint32_t Miss(const LookupRecord& record, MissReason reason) {
  return record.miss_tokens[static_cast<std::size_t>(reason)];
}

std::string CheckSums(const LookupRecord& record) {
  const auto sum = [](const auto& values) {
    return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
  };
  const std::uint64_t hits = sum(record.hit_tokens);
  const std::uint64_t misses = sum(record.miss_tokens);
  if (hits == record.reused_tokens && hits + misses == record.prompt_tokens) return "";
  return "hits " + std::to_string(hits) + ", misses " + std::to_string(misses) + ", reused " +
         std::to_string(record.reused_tokens) + " of " + std::to_string(record.prompt_tokens);
}

}  // namespace parkade::test
