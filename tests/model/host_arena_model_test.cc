// Months of chats in an arena: buffers never overlap, holes stay small, all becomes whole again.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "parkade/image.h"
#include "src/manager/host_arena.h"
#include "tests/support/environment.h"
#include "tests/support/reserved_memory.h"

namespace parkade {
namespace {

constexpr std::size_t kMib = 1u << 20;
constexpr std::size_t kPage = 4096;
constexpr std::uint64_t kBudget = 2048 * kMib;
constexpr std::uint64_t kBuffers = 152 * kMib;  // counted whether they are in use or not

// Bytes of a model's rows of one token, in one stage, and of its state; 0: it has none.
struct Model {
  std::size_t row_bytes = 0;
  std::size_t window_row_bytes = 0;
  std::size_t state_bytes = 0;
};
const std::vector<Model>& Models() {
  static const std::vector<Model> models = {
      {3072, 15360, 0}, {131072, 0, 0}, {65536, 0, 0}, {24576, 0, 6u << 20}, {81920, 163840, 0}};
  return models;
}

struct Buffer {
  char* memory = nullptr;  // null: ordinary memory, which the arena lacked
  std::size_t bytes = 0;
};
struct Chat {
  std::vector<Buffer> buffers;
};

// The RAM tier as far as memory goes: chats that grow, turn by turn, and go, oldest first.
class Months {
 public:
  explicit Months(std::uint64_t seed) : random_(seed) {
    HostArena::Options options;
    options.limit_bytes = kBudget;
    options.slab_bytes = 64 * kMib;
    options.ahead_bytes = 128 * kMib;
    arena_ = std::make_unique<HostArena>(options);
    arena_->Use(memory_);
  }

  void Run(int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      // Another model is served every few hundred turns.
      if (turn % 300 == 0) model_ = Models()[random_() % Models().size()];
      Chat& chat = Choose();
      Grow(&chat);
      Transient();
    }
  }

  void End() {
    while (!chats_.empty()) Evict();
    EXPECT_EQ(used_, 0u);
    EXPECT_EQ(arena_->counts().used_bytes, 0u);
    // Everything is one piece again: each slab can be had whole.
    arena_->Stop();
    const std::uint64_t slabs = arena_->counts().slab_bytes / (64 * kMib);
    for (std::uint64_t i = 0; i < slabs; ++i) EXPECT_NE(arena_->TryTake(64 * kMib), nullptr) << i;
  }

  double lost_share() const { return static_cast<double>(lost_) / static_cast<double>(taken_); }
  double most_held() const {
    return static_cast<double>(most_held_) / static_cast<double>(kBudget);
  }
  std::uint64_t taken_bytes() const { return taken_; }

 private:
  // Half of all turns go on with one of the newest chats.
  Chat& Choose() {
    if (!chats_.empty() && random_() % 2 == 0) {
      const std::size_t back = random_() % std::min<std::size_t>(chats_.size(), 12);
      const auto chosen = std::prev(chats_.end(), static_cast<std::ptrdiff_t>(back) + 1);
      chats_.splice(chats_.end(), chats_, chosen);
      return chats_.back();
    }
    return chats_.emplace_back();
  }

  void Grow(Chat* chat) {
    const std::size_t tokens = random_() % 8 == 0 ? random_() % 20000 : 1 + random_() % 600;
    AddRows(chat, tokens, model_.row_bytes);
    if (model_.window_row_bytes > 0) {
      AddRows(chat, std::min<std::size_t>(tokens, 1025), model_.window_row_bytes);
    }
    AddRows(chat, model_.state_bytes / kMib, kMib);
    const HostArena::Counts counts = arena_->counts();
    EXPECT_GE(counts.used_bytes + ordinary_, used_);
    EXPECT_LE(counts.slab_bytes, kBudget);
    most_held_ = std::max(most_held_, counts.slab_bytes + ordinary_);
  }

  // As the cache counts: when holes take memory beyond the budget, images give way.
  std::uint64_t Room() const {
    const std::uint64_t held = arena_->counts().slab_bytes + ordinary_;
    return kBudget - kBuffers - (held - std::min(held, kBudget));
  }

  // As rows are cut: 256 a piece and at most an extent's size.
  void AddRows(Chat* chat, std::size_t rows, std::size_t row_bytes) {
    if (rows == 0 || row_bytes == 0) return;
    const std::size_t most = std::min<std::size_t>(256, kExtentBytes / row_bytes);
    for (std::size_t at = 0; at < rows; at += most) {
      Add(chat, std::min(most, rows - at) * row_bytes);
    }
  }

  void Add(Chat* chat, std::size_t bytes) {
    const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
    while (used_ + size > Room() && &chats_.front() != chat) Evict();
    if (used_ + size > Room()) return;  // it is all there is: the rest is not kept
    // The thread that gets slabs is waited for: what is counted is what holes cost.
    arena_->WaitSettled(absl::Seconds(60));
    char* memory = arena_->TryTake(bytes);
    taken_ += size;
    used_ += size;
    chat->buffers.push_back({memory, size});
    if (memory == nullptr) {
      lost_ += size;
      ordinary_ += size;
      return;
    }
    const auto next = live_.lower_bound(memory);
    if (next != live_.end()) {
      ASSERT_LE(memory + size, next->first);
    }
    if (next != live_.begin()) {
      const auto before = std::prev(next);
      ASSERT_LE(before->first + before->second, memory);
    }
    live_.emplace(memory, size);
  }

  void Drop(const Buffer& buffer) {
    used_ -= buffer.bytes;
    if (buffer.memory == nullptr) {
      ordinary_ -= buffer.bytes;
      return;
    }
    live_.erase(buffer.memory);
    arena_->Return(buffer.memory, buffer.bytes);
  }

  void Evict() {
    // A tail first, often; then the rest.
    Chat& chat = chats_.front();
    const std::size_t keep = random_() % 3 == 0 ? chat.buffers.size() / 2 : 0;
    while (chat.buffers.size() > keep) {
      Drop(chat.buffers.back());
      chat.buffers.pop_back();
    }
    if (chat.buffers.empty()) chats_.pop_front();
  }

  // Buffers of a restore from disk: come and go.
  void Transient() {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 5; ++i) {
      const std::size_t bytes = kExtentBytes + 4 * kPage - random_() % kExtentBytes / 4;
      char* memory = arena_->TryTake(bytes);
      if (memory != nullptr) buffers.push_back({memory, bytes});
    }
    std::shuffle(buffers.begin(), buffers.end(), random_);
    for (const Buffer& buffer : buffers) arena_->Return(buffer.memory, buffer.bytes);
  }

  std::mt19937_64 random_;
  const std::shared_ptr<test::ReservedMemory> memory_ = std::make_shared<test::ReservedMemory>();
  std::unique_ptr<HostArena> arena_;
  Model model_;
  std::list<Chat> chats_;  // least recently used first
  std::map<char*, std::size_t> live_;
  std::uint64_t used_ = 0;
  std::uint64_t ordinary_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t most_held_ = 0;
};

TEST(HostArenaModel, MonthsOfMixedSizesLeaveSmallHoles) {
  const std::uint64_t seed = test::FromEnvironment("PARKADE_SEED", std::random_device{}());
  std::printf("PARKADE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  Months months(seed);
  // A turn every two minutes of eight hours a day: three months.
  const auto turns = static_cast<int>(test::FromEnvironment("PARKADE_ARENA_TURNS", 20000));
  months.Run(turns / 2);
  const double before = months.lost_share();
  months.Run(turns / 2);
  std::printf(
      "%d turns, %.0f GiB through %.0f GiB: %.2f %% found no place (in the first half "
      "%.2f %%), at most %.3f of the budget was held\n",
      turns, static_cast<double>(months.taken_bytes()) / (1u << 30),
      static_cast<double>(kBudget) / (1u << 30), 100 * months.lost_share(), 100 * before,
      months.most_held());
  EXPECT_LT(months.lost_share(), 0.05);
  // It does not get worse with time.
  EXPECT_LT(months.lost_share(), before + 0.03);
  EXPECT_LT(months.most_held(), 1.2);
  months.End();
}

}  // namespace
}  // namespace parkade
