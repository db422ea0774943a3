// Memory for extents on their way between engine, tiers and readers.
//
// A pool is an account with a limit, not a fixed arena: a buffer is charged to it from allocation
// until its last owner drops it, or until Uncharge, when a tier takes it into its own account.
// Blocks of up to an extent's size, rounded up to a power of two, are kept and used again, so that
// a restore touches few pages; others go back to the system. Where there is an arena with memory
// that devices copy from fast, blocks come from there as long as it has some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "parkade/image.h"
#include "src/manager/host_arena.h"

namespace parkade {

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // kLarge: what is charged is a block for an extent, however little was asked for (more gets its
  // own size), on large pages where the system gives them, which makes the first use of a block and
  // copies cheaper. Such a block takes all its memory at once, so it is for buffers that come back
  // soon; what is not charged stays with its owner and gets ordinary pages. A pool whose limit is
  // below two such blocks is kOrdinary.
  enum class Pages { kOrdinary, kLarge };
  static std::shared_ptr<BufferPool> Create(std::uint64_t limit_bytes,
                                            Pages pages = Pages::kOrdinary,
                                            std::shared_ptr<HostArena> arena = nullptr);
  ~BufferPool();

  // Null when the limit would be passed.
  std::shared_ptr<ExtentBuffer> TryAllocate(std::size_t bytes);
  // Waits for room. Null after Shutdown, or when `bytes` alone passes the limit.
  std::shared_ptr<ExtentBuffer> Allocate(std::size_t bytes);
  // A buffer of the same memory that is not charged (its owner accounts for it).
  std::shared_ptr<ExtentBuffer> AllocateUncharged(std::size_t bytes);
  // Makes the blocks of a kLarge pool and touches them, so that the first restore does not: where
  // the system has to find large pages first that takes longer than to read and check the bytes.
  void Prepare();
  // Takes a buffer off this pool's account; its memory lives on. Does nothing for others. Not for
  // large pages: their owner would hold more than it counts.
  static void Uncharge(const ExtentBytes& buffer);
  // Gives kept blocks back to the system.
  void DropSpares();

  std::uint64_t charged_bytes() const;
  std::uint64_t limit_bytes() const { return limit_bytes_; }
  void Shutdown();

 private:
  class Block;
  struct Memory {
    char* data = nullptr;
    std::size_t arena_bytes = 0;  // 0: it is not the arena's
    std::size_t noted_bytes = 0;  // what the arena lacked
  };
  BufferPool(std::uint64_t limit_bytes, Pages pages, std::shared_ptr<HostArena> arena)
      : limit_bytes_(limit_bytes), pages_(pages), arena_(std::move(arena)) {}
  // `memory`: of that capacity, or null for new one.
  std::shared_ptr<ExtentBuffer> Make(std::size_t bytes, std::size_t capacity, Memory memory,
                                     bool charged);
  std::size_t CapacityFor(std::size_t bytes, bool charged) const;
  // Charges and returns memory that is there already; null when there is none.
  Memory Charge(std::size_t bytes, std::size_t capacity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: the arena has none, or there is none.
  Memory TakeFromArena(std::size_t bytes) const;
  char* TakeSpare(std::size_t capacity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends a block's charge and life in one step: who waits for the room finds the block, too.
  void Return(Memory memory, std::size_t capacity, bool charged);
  void Discharge(std::size_t capacity);

  const std::uint64_t limit_bytes_;
  const Pages pages_;
  const std::shared_ptr<HostArena> arena_;  // may be null
  mutable absl::Mutex mu_;
  std::uint64_t charged_ ABSL_GUARDED_BY(mu_) = 0;
  bool shut_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::size_t, std::deque<char*>> spare_ ABSL_GUARDED_BY(mu_);  // by capacity
  std::uint64_t spare_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace parkade
