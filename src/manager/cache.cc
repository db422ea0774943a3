// Opening, rewarming, identities, housekeeping.

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "src/format/checksum.h"
#include "src/manager/cache_impl.h"

namespace parkade {
namespace {

constexpr std::uint64_t kMib = 1ull << 20;
constexpr std::string_view kCatalogueError = "catalogue: ";
constexpr absl::Duration kStateLogEvery = absl::Seconds(30);

struct ToldState {
  std::string word = "up";
  absl::Time time = absl::InfinitePast();
};

// Slabs of the arena; smaller ones where there are not to be many.
constexpr std::size_t kSlabBytes = 64 * kMib;
constexpr std::size_t kSmallSlabBytes = 16 * kMib;
constexpr std::uint64_t kSmallArenaBytes = 1024 * kMib;
// Above the memory that is to be left: slabs may be got ahead again.
constexpr std::uint64_t kRoomyBytes = 512 * kMib;

std::uint64_t Share(const CacheOptions& options, std::uint64_t wanted, int divisor,
                    std::uint64_t least) {
  if (options.ram_budget_bytes == 0) return wanted;
  return std::clamp(options.ram_budget_bytes / divisor, std::min(least, wanted), wanted);
}

CacheOptions WithBuffers(CacheOptions options) {
  if (options.ram_budget_bytes == 0) {
    // With the tokens, the tier's own buffers and kLeastIndexBytes this is kFixedBytes.
    options.capture_buffer_bytes = std::min<std::uint64_t>(options.capture_buffer_bytes, 96 * kMib);
  }
  options.capture_buffer_bytes = Share(options, options.capture_buffer_bytes, 4, 24 * kMib);
  options.read_buffer_bytes = Share(options, options.read_buffer_bytes, 8, 12 * kMib);
  return options;
}

std::uint64_t TokenCacheBytes(const CacheOptions& options) {
  if (options.ram_budget_bytes == 0) return 12 * kMib;
  return std::clamp<std::uint64_t>(options.ram_budget_bytes / 32, 8 * kMib, 64 * kMib);
}

// The first park that does not go on where the ones before it end, or that another one replaces:
// a tail that was evicted while its rows could not be deleted, and then captured anew. Which forks
// belong to which tail nobody knows, so both go.
std::optional<std::uint32_t> FirstOutOfChain(const Conversation& conversation) {
  std::uint32_t end = conversation.parent_tokens;
  for (const ParkState& park : conversation.parks) {
    if (park.first > end) return park.park;
    if (park.count == 0) continue;
    if (park.first < end) {
      for (const ParkState& before : conversation.parks) {
        if (before.count > 0 && before.end() > park.first) return before.park;
      }
      return park.park;
    }
    end = park.end();
  }
  return std::nullopt;
}

std::shared_ptr<HostArena> MakeArena(const CacheOptions& options, EventSink* sink) {
  HostArena::Options arena;
  // Of the buffers; a RAM tier raises it, see AdjustRamBudget.
  arena.limit_bytes = options.capture_buffer_bytes + options.read_buffer_bytes;
  const bool small = options.ram_budget_bytes < kSmallArenaBytes;
  arena.slab_bytes = small ? kSmallSlabBytes : kSlabBytes;
  arena.ahead_bytes = 2 * arena.slab_bytes;
  arena.tell = [sink](bool warning, const std::string& line) {
    sink->Log(warning ? LogLevel::kWarning : LogLevel::kInfo, line);
  };
  return std::make_shared<HostArena>(std::move(arena));
}

// One line when a tier begins or ends to be of use; one that comes and goes is told of now and
// then. `told`: what was said last.
void TellState(TierKind tier, const std::string& state, ToldState* told, EventSink* sink) {
  const std::string word = state.substr(0, state.find(':'));
  const absl::Time now = absl::Now();
  if (word == told->word || now - told->time < kStateLogEvery) return;
  *told = {word, now};
  const std::string line = std::string(TierName(tier)) + " tier: " + state;
  if (word == "up") return sink->Log(LogLevel::kInfo, line + " again");
  sink->Log(LogLevel::kWarning,
            line + (word == "down" ? "; requests go on without it until it is back"
                                   : "; it is read, and keeps nothing new until that is over"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConversationCache>> ConversationCache::Open(
    const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers, EventSink* sink) {
  if (tiers.size() > 7) return absl::InvalidArgumentError("more than 7 tiers");
  auto cache = std::make_unique<CacheImpl>(WithBuffers(options), std::move(tiers), sink);
  const absl::Status started = cache->Start();
  if (!started.ok()) return started;
  return cache;
}

CacheImpl::CacheImpl(const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers,
                     EventSink* sink)
    : options_(options),
      tiers_(std::move(tiers)),
      sink_(sink),
      arena_(MakeArena(options, sink)),
      capture_pool_(
          BufferPool::Create(options.capture_buffer_bytes, BufferPool::Pages::kOrdinary, arena_)),
      read_pool_(BufferPool::Create(options.read_buffer_bytes, BufferPool::Pages::kLarge, arena_)),
      tokens_(TokenCacheBytes(options)) {
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    if (tiers_[i]->kind() == TierKind::kRam) ram_tier_ = static_cast<int>(i);
    if (tiers_[i]->durable()) durable_tier_ = static_cast<int>(i);
    if (tiers_[i]->shared() != nullptr) shared_tier_ = static_cast<int>(i);
  }
  secret_ = durable_tier_ >= 0 ? tiers_[durable_tier_]->secret()
            : tiers_.empty()   ? RandomDigest()
                               : tiers_[0]->secret();
  buffer_bytes_ =
      options.capture_buffer_bytes + options.read_buffer_bytes + TokenCacheBytes(options);
  for (const auto& tier : tiers_) buffer_bytes_ += tier->usage().buffer_bytes;
  absl::MutexLock lock(&mu_);
  ram_budget_bytes_ = options.ram_budget_bytes;
}

CacheImpl::~CacheImpl() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    publishing_stops_ = true;
  }
  {
    absl::MutexLock lock(&reader_mu_);
    readers_stop_ = true;
  }
  read_pool_->Shutdown();
  for (std::thread& thread : threads_) thread.join();
  capture_pool_->Shutdown();
  arena_->Stop();
  // Operations that nobody finished hold buffers of our pools, which outlive us.
  absl::MutexLock lock(&reader_mu_);
  to_plan_.clear();
  to_find_.clear();
  to_read_.clear();
  to_promote_.clear();
}

absl::Status CacheImpl::Start() {
  const absl::Status warm = Rewarm();
  if (!warm.ok()) return warm;
  TellLosses();
  SettleNames();
  TrimIndex();
  AdjustRamBudget();
  for (int i = 0; i < options_.reader_threads; ++i) {
    threads_.emplace_back([this, i] {
      if (i == 0) read_pool_->Prepare();
      ReaderLoop();
    });
  }
  if (ram_tier_ >= 0) threads_.emplace_back([this] { SealLoop(); });
  if (durable_tier_ >= 0) threads_.emplace_back([this] { SpillLoop(); });
  StartShared();
  threads_.emplace_back([this] { HousekeepingLoop(); });
  return absl::OkStatus();
}

// What is gone leaves nothing that a later lookup could give as its reason: it is counted here.
void CacheImpl::TellLosses() {
  for (const auto& tier : tiers_) {
    const std::uint64_t lost = tier->usage().lost_parks;
    if (lost == 0) continue;
    for (std::uint64_t i = 0; i < lost; ++i) sink_->OnCorrupt(tier->kind());
    sink_->Log(LogLevel::kWarning,
               std::string(TierName(tier->kind())) + " tier: " + std::to_string(lost) +
                   (lost == 1 ? " park was" : " parks were") +
                   " found missing or damaged; conversations end before what is lost");
  }
}

std::int64_t CacheImpl::NowUnixMs() { return absl::ToUnixMillis(absl::Now()); }

void CacheImpl::ReportTierError(std::size_t tier, std::string_view operation,
                                const absl::Status& status) {
  const std::string_view text = Text(status);
  // What the catalogue's database says names itself, whatever it was asked for.
  const bool named = text.substr(0, kCatalogueError.size()) == kCatalogueError;
  std::string what = named ? std::string() : std::string(operation) + ": ";
  what.append(text);
  sink_->OnTierError(tiers_[tier]->kind(), what);
}

// Damaged rows cost the conversations they belong to, not the cache.
absl::Status CacheImpl::Tolerate(std::size_t tier, const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  ReportTierError(tier, "catalogue", status);
  sink_->Log(LogLevel::kWarning, Text(status));
  return absl::OkStatus();
}

// Fills the index from the durable tier's catalogue. No payload is read.
absl::Status CacheImpl::Rewarm() {
  if (durable_tier_ < 0) return absl::OkStatus();
  const std::size_t index = static_cast<std::size_t>(durable_tier_);
  Tier& tier = *tiers_[index];
  const std::uint8_t bit = Bit(index);
  absl::MutexLock lock(&mu_);
  absl::Status status =
      tier.EnumerateIdentities([this, bit](const Digest128& digest, const StoredIdentity& identity)
                                   ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                                     identities_[digest] = identity;
                                     identity_tiers_[digest] |= bit;
                                     identity_uses_[digest] = 0;
                                   });
  if (status = Tolerate(index, status); !status.ok()) return status;
  ForkParents parents;
  status = tier.Enumerate([&](const ParkSummary& summary) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Handle handle = catalogue_.FindId(summary.key.conversation);
    if (handle == kNoHandle) {
      handle = catalogue_.Create(summary.key.conversation, summary.identity, kNoHandle, 0,
                                 summary.created_unix_ms);
      if (!summary.parent.IsZero()) {
        parents[summary.key.conversation] = {summary.parent, summary.parent_tokens};
      }
    }
    catalogue_.AddParkUnindexed(handle, summary, bit);
  });
  if (status = Tolerate(index, status); !status.ok()) return status;
  std::vector<ConversationId> forgotten;
  std::vector<ParkKey> ownerless;  // written just before a crash
  status = tier.EnumerateAttributes(
      [&](const ConversationAttributes& attributes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        const Handle handle = catalogue_.FindId(attributes.conversation);
        if (handle == kNoHandle) return ownerless.push_back({attributes.conversation, 0});
        catalogue_.Get(handle)->attributes = attributes;
        if (attributes.forgotten()) {
          forgotten.push_back(attributes.conversation);
        }
      });
  if (status = Tolerate(index, status); !status.ok()) return status;
  catalogue_.IndexNewestFirst();
  LinkForks(parents);
  catalogue_.RecountPins();
  std::vector<Removal> ended = EndAtGaps();
  for (const ConversationId& id : forgotten) {
    const Handle handle = catalogue_.FindId(id);
    std::uint32_t kept = 0;
    if (handle == kNoHandle) continue;  // went with the last fork of it
    for (Removal& removal : catalogue_.Forget(handle, &kept)) ended.push_back(std::move(removal));
  }
  ForgetUnusedIdentities();
  std::vector<ParkKey> keys = std::move(ownerless);
  for (const Removal& removal : ended) keys.push_back(removal.key);
  if (keys.empty()) return absl::OkStatus();
  // Not removed (a full disk is read-only): they are ended again at the next start.
  const absl::Status removed = tier.Remove(keys);
  if (!removed.ok()) ReportTierError(index, "remove", removed);
  return absl::OkStatus();
}

// What a tier keeps of conversations that have gone.
void CacheImpl::ForgetUnusedIdentities() {
  std::vector<Digest128> unused;
  for (const auto& [digest, stored] : identities_) {
    if (!catalogue_.Uses(digest)) unused.push_back(digest);
  }
  for (const Digest128& digest : unused) ForgetIdentity(digest);
}

void CacheImpl::LinkForks(const ForkParents& parents) {
  for (const auto& [id, parent] : parents) {
    const Handle handle = catalogue_.FindId(id);
    const Handle parent_handle = catalogue_.FindId(parent.first);
    // Only damage makes a cycle; its members are left without a parent, so they stand on nothing.
    Handle above = parent_handle;
    while (above != kNoHandle && above != handle) above = catalogue_.Get(above)->parent;
    if (parent_handle == kNoHandle || above == handle) continue;
    Conversation* conversation = catalogue_.Get(handle);
    conversation->parent = parent_handle;
    conversation->parent_tokens = parent.second;
    catalogue_.Get(parent_handle)->children.push_back(handle);
  }
}

// Ends conversations where a park is missing, and forks that their parent does not reach.
std::vector<Removal> CacheImpl::EndAtGaps() {
  std::vector<Removal> ended;
  auto cut = [&](Handle handle, std::uint32_t park) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (Removal& removal : catalogue_.CutAt(handle, park)) ended.push_back(std::move(removal));
  };
  std::vector<ConversationId> ids;
  for (const auto& [id, handle] : catalogue_.by_id()) ids.push_back(id);
  for (const ConversationId& id : ids) {
    const Handle handle = catalogue_.FindId(id);
    if (handle == kNoHandle) continue;  // went with its parent
    if (const std::optional<std::uint32_t> wrong = FirstOutOfChain(*catalogue_.Get(handle))) {
      cut(handle, *wrong);
    }
  }
  for (const ConversationId& id : ids) {
    const Handle handle = catalogue_.FindId(id);
    if (handle == kNoHandle) continue;
    const Conversation* conversation = catalogue_.Get(handle);
    if (conversation->parent == kNoHandle) continue;
    if (catalogue_.Get(conversation->parent)->tip() < conversation->parent_tokens) cut(handle, 0);
  }
  return ended;
}

absl::StatusOr<Digest128> CacheImpl::RegisterIdentity(const Identity& identity,
                                                      const StateLayout& layout) {
  const Digest128 digest = identity.digest();
  absl::MutexLock lock(&mu_);
  const auto [known, added] = identities_.try_emplace(digest, StoredIdentity{identity, layout});
  if (!(known->second.layout == layout)) {
    return absl::FailedPreconditionError("the layout of this identity is another one");
  }
  UseIdentity(digest);
  if (added) DropIdleIdentity();
  return digest;
}

bool CacheImpl::UseIdentity(const Digest128& digest) {
  if (!identities_.contains(digest)) return false;
  identity_uses_[digest] = ++last_identity_use_;
  return true;
}

// A request may bring adapter scales that nobody uses again, so that their number has no bound.
void CacheImpl::DropIdleIdentity() {
  std::size_t idle = 0;
  const std::pair<const Digest128, std::uint64_t>* oldest = nullptr;
  for (const auto& use : identity_uses_) {
    if (catalogue_.Uses(use.first)) continue;
    ++idle;
    if (oldest == nullptr || use.second < oldest->second) oldest = &use;
  }
  if (idle > kIdleIdentities) ForgetIdentity(Digest128(oldest->first));
}

void CacheImpl::ForgetIdentity(const Digest128& digest) {
  identities_.erase(digest);
  identity_tiers_.erase(digest);
  identity_uses_.erase(digest);
}

absl::Status CacheImpl::PutIdentityInto(std::size_t tier, const Digest128& digest) {
  StoredIdentity stored;
  {
    absl::MutexLock lock(&mu_);
    if ((identity_tiers_[digest] & Bit(tier)) != 0) return absl::OkStatus();
    auto known = identities_.find(digest);
    if (known == identities_.end()) return absl::FailedPreconditionError("unknown identity");
    stored = known->second;
  }
  const absl::Status put = tiers_[tier]->PutIdentity(digest, stored);
  if (!put.ok()) return put;
  absl::MutexLock lock(&mu_);
  identity_tiers_[digest] |= Bit(tier);
  return absl::OkStatus();
}

void CacheImpl::Touch(Handle handle, bool hit) {
  // Later than any use before, so that uses within one millisecond keep their order.
  last_touch_unix_ms_ = std::max(NowUnixMs(), last_touch_unix_ms_ + 1);
  catalogue_.Touch(handle, last_touch_unix_ms_, hit);
}

// Index, buffers and tokens are counted first; images get the rest. Of the arena's slabs and what
// it lacked only holes are not counted so: when they take memory beyond all that, images give way.
void CacheImpl::AdjustRamBudget() {
  if (ram_tier_ < 0) return;
  const std::uint64_t pools = capture_pool_->limit_bytes() + read_pool_->limit_bytes();
  const HostArena::Counts counts = arena_->counts();
  std::uint64_t budget = 0;
  {
    absl::MutexLock lock(&mu_);
    const std::uint64_t fixed = buffer_bytes_ + catalogue_.memory_bytes();
    budget = ram_budget_bytes_ > fixed ? ram_budget_bytes_ - fixed : 0;
  }
  const TierUsage images = tiers_[ram_tier_]->usage();
  arena_->SetLimit(budget + pools);
  // Below the floor nothing is got ahead, nor just above it, where that would go below it again.
  if (images.state != "up") arena_->SetFrugal(true);
  if (images.free_bytes >= options_.ram_min_free_bytes + kRoomyBytes) arena_->SetFrugal(false);
  // Images that are evicted for the budget anyway take their memory with them.
  const std::uint64_t going = images.used_bytes - std::min(images.used_bytes, budget);
  std::uint64_t held = counts.slab_bytes + counts.ordinary_bytes;
  held -= std::min(held, going);
  budget -= std::min(budget, held - std::min(held, budget + pools));
  tiers_[ram_tier_]->SetBudget(budget);
}

void CacheImpl::UseHostMemory(std::shared_ptr<HostMemory> memory) {
  arena_->Use(std::move(memory));
  // They would never be used again.
  capture_pool_->DropSpares();
  read_pool_->DropSpares();
}

void CacheImpl::HousekeepingLoop() {
  std::vector<ToldState> told(tiers_.size());
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      auto stop = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; };
      if (mu_.AwaitWithTimeout(absl::Condition(&stop), absl::Seconds(1))) return;
      ranks_ = nullptr;  // nobody pays for its memory for long
    }
    for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
      // The shared one's waits for the network: its own thread does that.
      if (static_cast<int>(tier) != shared_tier_) tiers_[tier]->Tick();
      const std::string state = tiers_[tier]->usage().state;
      TellState(tiers_[tier]->kind(), state, &told[tier], sink_);
      // swallow: it was reported when it was refused first.
      if (state == "up") RemoveRefused(tier).IgnoreError();
    }
    TrimIndex();
    AdjustRamBudget();
    for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
      // A budget that was lowered, or memory that others took, is honoured without a new park.
      MakeRoom(tier, 0, EvictReason::kBudget);
      ThinCheckpoints(tier);
    }
    EnforceSlots();
    WriteAttributes(false);
  }
}

}  // namespace parkade
