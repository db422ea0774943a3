#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "src/manager/buffer_pool.h"
#include "src/manager/shared_reads.h"

namespace parkade {
namespace {

const SharedReads::Key kKey{1, ParkKey{ConversationId{1, 2}, 3}, 4};

std::shared_ptr<ExtentBuffer> Bytes(char fill) {
  static const std::shared_ptr<BufferPool> pool = BufferPool::Create(1 << 20);
  std::shared_ptr<ExtentBuffer> buffer = pool->TryAllocate(64);
  std::memset(buffer->data(), fill, buffer->size());
  return buffer;
}

TEST(SharedReads, ReadsAgainOnlyWhenNobodyHoldsTheBytes) {
  SharedReads reads;
  ASSERT_EQ(reads.Join(kKey).bytes, nullptr);
  ExtentBytes bytes = Bytes('a');
  reads.Finish(kKey, {bytes});
  EXPECT_EQ(reads.Join(kKey).bytes, bytes);
  SharedReads::Key other = kKey;
  other.extent = 5;
  EXPECT_EQ(reads.Join(other).bytes, nullptr);
  reads.Finish(other, {});
  bytes.reset();
  EXPECT_EQ(reads.Join(kKey).bytes, nullptr);
}

TEST(SharedReads, OneOfManyReads) {
  SharedReads reads;
  std::atomic<int> readers{0};
  std::vector<ExtentBytes> got(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      got[i] = reads.Join(kKey).bytes;
      if (got[i] != nullptr) return;
      ++readers;
      got[i] = Bytes('b');
      reads.Finish(kKey, {got[i]});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(readers, 1);
  for (const ExtentBytes& bytes : got) EXPECT_EQ(bytes, got[0]);
}

TEST(SharedReads, AFailedReadIsTriedByTheNextOne) {
  SharedReads reads;
  ASSERT_EQ(reads.Join(kKey).bytes, nullptr);
  ExtentBytes second;
  std::thread waiting([&] {
    second = reads.Join(kKey).bytes;
    if (second == nullptr) {
      second = Bytes('c');
      reads.Finish(kKey, {second});
    }
  });
  reads.Finish(kKey, {});
  waiting.join();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->data()[0], 'c');
}

// Two restores promote the same park and read an extent each: one stores it, the other's own bytes
// go. Who comes then must not read again.
TEST(SharedReads, ALastingCopyTakesThePlaceOfOneThatGoesAway) {
  SharedReads reads;
  ASSERT_EQ(reads.Join(kKey).bytes, nullptr);
  ExtentBytes pooled = Bytes('d');
  reads.Finish(kKey, {pooled, false});
  EXPECT_FALSE(reads.Join(kKey).lasting);
  const ExtentBytes kept = Bytes('d');
  reads.Replace(kKey, kept);
  // A second copy does not displace the first one, which somebody keeps.
  reads.Replace(kKey, Bytes('d'));
  pooled.reset();
  EXPECT_EQ(reads.Join(kKey).bytes, kept);
  EXPECT_TRUE(reads.Join(kKey).lasting);
}

}  // namespace
}  // namespace parkade
