// Buffers and tokens: what is charged, what comes back, what is thrown out.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "src/manager/buffer_pool.h"
#include "src/manager/token_cache.h"

namespace parkade {
namespace {

constexpr std::size_t kMib = 1u << 20;

TEST(ManagerBufferPool, ChargesUntilTheLastOwnerLetsGo) {
  auto pool = BufferPool::Create(3 * kMib);
  std::shared_ptr<ExtentBuffer> one = pool->TryAllocate(kMib);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->size(), kMib);
  EXPECT_EQ(pool->charged_bytes(), kMib);
  one->data()[0] = 'x';
  one->data()[kMib - 1] = 'y';
  ExtentBytes other = one;
  one.reset();
  EXPECT_EQ(pool->charged_bytes(), kMib);
  other.reset();
  EXPECT_EQ(pool->charged_bytes(), 0u);
}

TEST(ManagerBufferPool, RefusesWhatWouldPassTheLimit) {
  auto pool = BufferPool::Create(8 * kMib);
  auto one = pool->TryAllocate(4 * kMib);
  auto two = pool->TryAllocate(4 * kMib);
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(pool->TryAllocate(1), nullptr);
  two.reset();
  EXPECT_NE(pool->TryAllocate(1), nullptr);
  EXPECT_EQ(pool->Allocate(9 * kMib), nullptr);
}

TEST(ManagerBufferPool, UnchargedMemoryLivesOn) {
  auto pool = BufferPool::Create(4 * kMib);
  auto one = pool->TryAllocate(4 * kMib);
  ASSERT_NE(one, nullptr);
  one->data()[5] = 'z';
  BufferPool::Uncharge(one);
  EXPECT_EQ(pool->charged_bytes(), 0u);
  BufferPool::Uncharge(one);
  EXPECT_EQ(pool->charged_bytes(), 0u);
  auto two = pool->TryAllocate(4 * kMib);
  EXPECT_NE(two, nullptr);
  EXPECT_EQ(one->data()[5], 'z');
  EXPECT_NE(one->data(), two->data());
  auto free = pool->AllocateUncharged(16 * kMib);
  ASSERT_NE(free, nullptr);
  EXPECT_EQ(pool->charged_bytes(), 4 * kMib);
}

TEST(ManagerBufferPool, AWaiterGetsTheBufferThatComesBack) {
  auto pool = BufferPool::Create(4 * kMib);
  auto held = pool->TryAllocate(4 * kMib);
  std::shared_ptr<ExtentBuffer> got;
  std::thread waiter([&] { got = pool->Allocate(4 * kMib); });
  held.reset();
  waiter.join();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(pool->charged_bytes(), 4 * kMib);
}

// A waiter wakes when the room is there; the block has to be there as well, or every extent of a
// restore that waits for buffers would touch new pages.
TEST(ManagerBufferPool, BlocksComeBackToWhoeverWaits) {
  auto pool = BufferPool::Create(2 * kMib);
  auto held = pool->TryAllocate(kMib + 1);
  const char* block = held->data();
  std::shared_ptr<ExtentBuffer> got;
  std::thread waiter([&] { got = pool->Allocate(kMib + 4096); });
  held.reset();
  waiter.join();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->data(), block);
  EXPECT_EQ(pool->charged_bytes(), 2 * kMib);
}

TEST(ManagerBufferPool, SpareBlocksMakeWayForOtherSizes) {
  auto pool = BufferPool::Create(4 * kMib);
  pool->TryAllocate(3 * kMib).reset();
  std::vector<std::shared_ptr<ExtentBuffer>> small;
  for (int i = 0; i < 4; ++i) {
    small.push_back(pool->TryAllocate(768u << 10));
    ASSERT_NE(small.back(), nullptr);
    std::memset(small.back()->data(), i, small.back()->size());
  }
  EXPECT_EQ(pool->charged_bytes(), 4 * kMib);
  EXPECT_EQ(pool->TryAllocate(1), nullptr);
  small.clear();
  EXPECT_EQ(pool->charged_bytes(), 0u);
  EXPECT_NE(pool->TryAllocate(4 * kMib), nullptr);
}

TEST(ManagerBufferPool, LargePagesAreForBuffersThatComeBack) {
  auto pool = BufferPool::Create(9 * kMib, BufferPool::Pages::kLarge);
  auto charged = pool->TryAllocate(3 * kMib);
  ASSERT_NE(charged, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(charged->data()) % (2 * kMib), 0u);
  std::memset(charged->data(), 1, charged->size());
  const char* block = charged->data();
  charged.reset();
  auto kept = pool->AllocateUncharged(3 * kMib);
  ASSERT_NE(kept, nullptr);
  EXPECT_NE(kept->data(), block);
  std::memset(kept->data(), 2, kept->size());
  EXPECT_EQ(pool->TryAllocate(3 * kMib)->data(), block);
}

// A restore's extents are of many sizes: they must not push each other's blocks out.
TEST(ManagerBufferPool, LargeBlocksServeEverySize) {
  auto pool = BufferPool::Create(10 * kMib, BufferPool::Pages::kLarge);
  auto first = pool->TryAllocate(4 * kMib);
  auto second = pool->TryAllocate(1);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->size(), 1u);
  EXPECT_EQ(pool->TryAllocate(1), nullptr);
  const char* blocks[] = {first->data(), second->data()};
  first.reset();
  second.reset();
  auto again = pool->TryAllocate(4 * kMib + 4096);  // with room for a medium's sectors
  auto small = pool->TryAllocate(100);
  ASSERT_NE(again, nullptr);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(again->data(), blocks[0]);
  EXPECT_EQ(small->data(), blocks[1]);
  EXPECT_LE(pool->charged_bytes(), pool->limit_bytes());
}

TEST(ManagerBufferPool, PreparedBlocksAreTheOnesThatAreUsed) {
  auto pool = BufferPool::Create(13 * kMib, BufferPool::Pages::kLarge);
  pool->Prepare();
  EXPECT_EQ(pool->charged_bytes(), 0u);
  std::vector<std::shared_ptr<ExtentBuffer>> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(pool->TryAllocate(4 * kMib));
    ASSERT_NE(blocks.back(), nullptr);
    std::vector<unsigned char> resident(1024);
    ASSERT_EQ(mincore(blocks.back()->data(), 4 * kMib, resident.data()), 0);
    EXPECT_EQ(std::count(resident.begin(), resident.end(), 1), 1024);
  }
  EXPECT_EQ(pool->TryAllocate(1), nullptr);
  auto ordinary = BufferPool::Create(13 * kMib);
  ordinary->Prepare();
  EXPECT_EQ(ordinary->charged_bytes(), 0u);
}

TEST(ManagerBufferPool, ShutdownEndsTheWait) {
  auto pool = BufferPool::Create(4 * kMib);
  auto held = pool->TryAllocate(4 * kMib);
  std::shared_ptr<ExtentBuffer> got = held;
  std::thread waiter([&] { got = pool->Allocate(4 * kMib); });
  pool->Shutdown();
  waiter.join();
  EXPECT_EQ(got, nullptr);
  EXPECT_EQ(pool->TryAllocate(1), nullptr);
}

TEST(ManagerBufferPool, BuffersOutliveThePoolsOwner) {
  std::shared_ptr<ExtentBuffer> buffer;
  {
    auto pool = BufferPool::Create(4 * kMib);
    buffer = pool->TryAllocate(100);
  }
  buffer->data()[99] = 'q';
  EXPECT_EQ(buffer->data()[99], 'q');
}

SharedTokens Some(std::size_t count, Token value) {
  return std::make_shared<const std::vector<Token>>(count, value);
}

ParkKey Key(std::uint64_t conversation, std::uint32_t park = 0) {
  return ParkKey{ConversationId{0, conversation}, park};
}

TEST(ManagerTokenCache, LeastRecentlyUsedGoesFirst) {
  // Room for two entries of 1,000 tokens, not for three.
  TokenCache cache(2 * (4000 + 160) + 100);
  cache.Insert(Key(1), Some(1000, 1));
  cache.Insert(Key(2), Some(1000, 2));
  ASSERT_NE(cache.Find(Key(1)), nullptr);
  cache.Insert(Key(3), Some(1000, 3));
  EXPECT_EQ(cache.Find(Key(2)), nullptr);
  ASSERT_NE(cache.Find(Key(1)), nullptr);
  EXPECT_EQ((*cache.Find(Key(1)))[0], 1);
  EXPECT_EQ((*cache.Find(Key(3)))[0], 3);
  EXPECT_EQ(cache.memory_bytes(), 2u * (4000 + 160));
}

TEST(ManagerTokenCache, ReplacesAndErases) {
  TokenCache cache(1 << 20);
  cache.Insert(Key(1, 7), Some(10, 1));
  cache.Insert(Key(1, 7), Some(20, 2));
  EXPECT_EQ(cache.Find(Key(1, 7))->size(), 20u);
  EXPECT_EQ(cache.memory_bytes(), 80u + 160);
  EXPECT_EQ(cache.Find(Key(1, 8)), nullptr);
  cache.Erase(Key(1, 7));
  cache.Erase(Key(1, 7));
  EXPECT_EQ(cache.Find(Key(1, 7)), nullptr);
  EXPECT_EQ(cache.memory_bytes(), 0u);
}

TEST(ManagerTokenCache, KeepsTheLastEntryHoweverLarge) {
  TokenCache cache(100);
  cache.Insert(Key(1), Some(1000, 1));
  EXPECT_NE(cache.Find(Key(1)), nullptr);
  cache.Insert(Key(2), Some(1000, 2));
  EXPECT_EQ(cache.Find(Key(1)), nullptr);
  EXPECT_NE(cache.Find(Key(2)), nullptr);
}

}  // namespace
}  // namespace parkade
