// Buffers from slabs: where they lie, when slabs come and go, what pools make of it.

#include "src/manager/host_arena.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "src/manager/buffer_pool.h"
#include "tests/support/reserved_memory.h"

namespace parkade {
namespace {

using test::ReservedMemory;

constexpr std::size_t kMib = 1u << 20;
constexpr std::size_t kPage = 4096;
constexpr absl::Duration kLong = absl::Seconds(60);

HostArena::Options SmallOptions(std::uint64_t limit_bytes) {
  HostArena::Options options;
  options.limit_bytes = limit_bytes;
  options.slab_bytes = 4 * kMib;
  options.ahead_bytes = 4 * kMib;
  return options;
}

// Warnings and lines.
class Told {
 public:
  void Add(bool warning, const std::string& line) {
    absl::MutexLock lock(&mu_);
    lines_.emplace_back(warning, line);
  }
  std::vector<std::pair<bool, std::string>> lines() const {
    absl::MutexLock lock(&mu_);
    return lines_;
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<std::pair<bool, std::string>> lines_ ABSL_GUARDED_BY(mu_);
};

TEST(HostArena, HandsOutNothingBeforeItIsGivenMemory) {
  HostArena arena(SmallOptions(16 * kMib));
  EXPECT_FALSE(arena.in_use());
  EXPECT_EQ(arena.TryTake(1), nullptr);
  EXPECT_EQ(arena.counts().refused, 0u);
  auto memory = std::make_shared<ReservedMemory>();
  arena.Use(memory);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  char* taken = arena.TryTake(1);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(arena.counts().used_bytes, kPage);
  arena.Return(taken, 1);
  EXPECT_EQ(arena.counts().used_bytes, 0u);
}

TEST(HostArena, TakesTheSmallestRangeThatIsLargeEnough) {
  auto memory = std::make_shared<ReservedMemory>();
  HostArena arena(SmallOptions(4 * kMib));
  arena.Use(memory);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  std::vector<char*> taken;
  for (const std::size_t pages : {4, 1, 2, 1, 3, 1}) taken.push_back(arena.TryTake(pages * kPage));
  for (std::size_t i = 1; i < taken.size(); ++i) ASSERT_GT(taken[i], taken[i - 1]);
  // Holes of 4, 2 and 3 pages, and the rest of the slab.
  arena.Return(taken[0], 4 * kPage);
  arena.Return(taken[2], 2 * kPage);
  arena.Return(taken[4], 3 * kPage);
  EXPECT_EQ(arena.TryTake(3 * kPage), taken[4]);
  EXPECT_EQ(arena.TryTake(2 * kPage - 1), taken[2]);
  EXPECT_EQ(arena.TryTake(kPage), taken[0]);
  EXPECT_EQ(arena.TryTake(3 * kPage), taken[0] + kPage);
}

TEST(HostArena, NeighboursBecomeOneAgainInAnyOrder) {
  for (const std::vector<int>& order :
       {std::vector<int>{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}}) {
    auto memory = std::make_shared<ReservedMemory>();
    HostArena arena(SmallOptions(4 * kMib));
    arena.Use(memory);
    ASSERT_TRUE(arena.WaitSettled(kLong));
    std::vector<char*> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(arena.TryTake(kMib));
    for (const int i : order) arena.Return(taken[i], kMib);
    EXPECT_EQ(arena.counts().used_bytes, 0u);
    EXPECT_NE(arena.TryTake(4 * kMib), nullptr);
    EXPECT_EQ(arena.TryTake(1), nullptr);
  }
}

TEST(HostArena, SlabsComeAheadUpToTheLimitAndGoWhenTheyAreFree) {
  auto memory = std::make_shared<ReservedMemory>();
  HostArena arena(SmallOptions(16 * kMib));
  arena.Use(memory);
  std::vector<char*> taken;
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(arena.WaitSettled(kLong));
    taken.push_back(arena.TryTake(kMib));
    ASSERT_NE(taken.back(), nullptr) << i;
  }
  EXPECT_EQ(memory->held_bytes(), 16 * kMib);
  EXPECT_EQ(arena.TryTake(kPage), nullptr);
  EXPECT_EQ(arena.counts().refused, 1u);
  // No more than the limit, however long it is waited for.
  ASSERT_TRUE(arena.WaitSettled(kLong));
  EXPECT_EQ(memory->counts().asked, 4);
  for (char* gone : taken) arena.Return(gone, kMib);
  // One slab ahead and one more stay.
  ASSERT_TRUE(arena.WaitSettled(kLong));
  EXPECT_EQ(memory->held_bytes(), 8 * kMib);
  EXPECT_EQ(memory->counts().given, 2);
  EXPECT_EQ(arena.counts().slab_bytes, 8 * kMib);
}

TEST(HostArena, ALowerLimitIsMetWhenSlabsAreFree) {
  auto memory = std::make_shared<ReservedMemory>();
  HostArena arena(SmallOptions(8 * kMib));
  arena.Use(memory);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  char* taken = arena.TryTake(kMib);
  ASSERT_NE(taken, nullptr);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  EXPECT_EQ(memory->held_bytes(), 8 * kMib);
  arena.SetLimit(0);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  EXPECT_EQ(memory->held_bytes(), 4 * kMib);
  arena.Return(taken, kMib);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  EXPECT_EQ(memory->held_bytes(), 0u);
}

TEST(HostArena, WhereMemoryIsShortNothingIsGotAhead) {
  auto memory = std::make_shared<ReservedMemory>();
  HostArena arena(SmallOptions(16 * kMib));
  arena.Use(memory);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  char* taken = arena.TryTake(kMib);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  EXPECT_EQ(memory->held_bytes(), 8 * kMib);
  arena.SetFrugal(true);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  EXPECT_EQ(memory->held_bytes(), 4 * kMib);
  EXPECT_EQ(arena.TryTake(4 * kMib), nullptr);
  arena.Return(taken, kMib);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  EXPECT_EQ(memory->held_bytes(), 0u);
  arena.SetFrugal(false);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  EXPECT_EQ(memory->held_bytes(), 4 * kMib);
}

TEST(HostArena, WhereTheSystemGivesNoneItSaysSoOnceAndAsksAgain) {
  Told told;
  HostArena::Options options = SmallOptions(16 * kMib);
  options.retry = absl::Milliseconds(10);
  options.tell = [&](bool warning, const std::string& line) { told.Add(warning, line); };
  auto memory = std::make_shared<ReservedMemory>();
  memory->SetMost(0);
  HostArena arena(options);
  arena.Use(memory);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  EXPECT_EQ(arena.TryTake(kPage), nullptr);
  ASSERT_TRUE(memory->WaitUntil([](const auto& counts) { return counts.asked >= 3; }));
  memory->SetMost(UINT64_MAX);
  ASSERT_TRUE(memory->WaitUntil([](const auto& counts) { return counts.held_bytes > 0; }));
  ASSERT_TRUE(arena.WaitSettled(kLong));
  arena.Stop();
  EXPECT_NE(arena.TryTake(kPage), nullptr);
  const std::vector<std::pair<bool, std::string>> lines = told.lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0].first);
  EXPECT_EQ(
      lines[0].second,
      "no more than 0 MiB of reserved memory (as the test wants it); ordinary memory is used");
  EXPECT_FALSE(lines[1].first);
  EXPECT_EQ(lines[1].second, "buffers are in reserved memory");
}

TEST(HostArena, WhatIsLargerThanASlabBringsNoSlab) {
  auto memory = std::make_shared<ReservedMemory>();
  HostArena arena(SmallOptions(16 * kMib));
  arena.Use(memory);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  const int asked = memory->counts().asked;
  EXPECT_EQ(arena.TryTake(5 * kMib), nullptr);
  ASSERT_TRUE(arena.WaitSettled(kLong));
  EXPECT_EQ(memory->counts().asked, asked);
}

// ---- pools over an arena ----

class ArenaPool : public testing::TestWithParam<BufferPool::Pages> {
 protected:
  void Fill() {
    arena_->Use(memory_);
    ASSERT_TRUE(arena_->WaitSettled(kLong));
  }

  const std::shared_ptr<ReservedMemory> memory_ =
      std::make_shared<ReservedMemory>(ReservedMemory::Access::kWritable);
  const std::shared_ptr<HostArena> arena_ = std::make_shared<HostArena>([] {
    HostArena::Options options = SmallOptions(8 * kMib);
    options.ahead_bytes = 8 * kMib;
    return options;
  }());
};

TEST_P(ArenaPool, BuffersAreInTheArenaAndChargedAsEver) {
  auto pool = BufferPool::Create(64 * kMib, GetParam(), arena_);
  auto before = pool->TryAllocate(kMib);
  ASSERT_NE(before, nullptr);
  const std::uint64_t charge = pool->charged_bytes();
  EXPECT_EQ(arena_->counts().used_bytes, 0u);
  Fill();
  auto one = pool->TryAllocate(kMib);
  auto two = pool->Allocate(kMib + 1);
  auto free = pool->AllocateUncharged(100);
  EXPECT_EQ(arena_->counts().used_bytes, 2 * kMib + kMib / 16 + kPage);  // rounded up
  EXPECT_GE(pool->charged_bytes(), 2 * charge);
  for (const auto& buffer : {one, two, free}) {
    buffer->data()[0] = 'x';
    buffer->data()[buffer->size() - 1] = 'y';
  }
  BufferPool::Uncharge(one);
  two.reset();
  EXPECT_EQ(pool->charged_bytes(), charge);
  EXPECT_EQ(arena_->counts().used_bytes, kMib + kPage);
  one.reset();
  free.reset();
  before.reset();
  EXPECT_EQ(arena_->counts().used_bytes, 0u);
  EXPECT_EQ(pool->charged_bytes(), 0u);
}

TEST_P(ArenaPool, WhatTheArenaLacksIsOrdinaryMemory) {
  auto pool = BufferPool::Create(64 * kMib, GetParam(), arena_);
  Fill();
  std::vector<std::shared_ptr<ExtentBuffer>> buffers;
  for (int i = 0; i < 12; ++i) {
    buffers.push_back(pool->TryAllocate(kMib));
    ASSERT_NE(buffers.back(), nullptr) << i;
    buffers.back()->data()[kMib - 1] = static_cast<char>(i);
  }
  EXPECT_EQ(arena_->counts().used_bytes, 8 * kMib);
  // Those of the other kind of pool have the size of an extent.
  EXPECT_GE(arena_->counts().ordinary_bytes, 4 * kMib);
  EXPECT_LE(arena_->counts().ordinary_bytes, 4 * (kExtentBytes + 4 * kPage));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(buffers[i]->data()[kMib - 1], static_cast<char>(i));
  buffers.clear();
  EXPECT_EQ(arena_->counts().used_bytes, 0u);
  EXPECT_EQ(arena_->counts().ordinary_bytes, 0u);
  EXPECT_NE(pool->TryAllocate(kMib), nullptr);
  EXPECT_EQ(arena_->counts().refused, 4u);
}

INSTANTIATE_TEST_SUITE_P(Pages, ArenaPool,
                         testing::Values(BufferPool::Pages::kOrdinary, BufferPool::Pages::kLarge));

}  // namespace
}  // namespace parkade
