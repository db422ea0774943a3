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
  ASSERT_EQ(reads.Join(kKey), nullptr);
  ExtentBytes bytes = Bytes('a');
  reads.Finish(kKey, bytes);
  EXPECT_EQ(reads.Join(kKey), bytes);
  SharedReads::Key other = kKey;
  other.extent = 5;
  EXPECT_EQ(reads.Join(other), nullptr);
  reads.Finish(other, nullptr);
  bytes.reset();
  EXPECT_EQ(reads.Join(kKey), nullptr);
}

TEST(SharedReads, OneOfManyReads) {
  SharedReads reads;
  std::atomic<int> readers{0};
  std::vector<ExtentBytes> got(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      got[i] = reads.Join(kKey);
      if (got[i] != nullptr) return;
      ++readers;
      got[i] = Bytes('b');
      reads.Finish(kKey, got[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(readers, 1);
  for (const ExtentBytes& bytes : got) EXPECT_EQ(bytes, got[0]);
}

TEST(SharedReads, AFailedReadIsTriedByTheNextOne) {
  SharedReads reads;
  ASSERT_EQ(reads.Join(kKey), nullptr);
  ExtentBytes second;
  std::thread waiting([&] {
    second = reads.Join(kKey);
    if (second == nullptr) {
      second = Bytes('c');
      reads.Finish(kKey, second);
    }
  });
  reads.Finish(kKey, nullptr);
  waiting.join();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->data()[0], 'c');
}

}  // namespace
}  // namespace parkade
