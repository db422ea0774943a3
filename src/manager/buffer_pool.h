// Memory for extents on their way between engine, tiers and readers.
//
// A pool is an account with a limit, not a fixed arena: a buffer is charged to it from allocation
// until its last owner drops it, or until Uncharge, when a tier takes it into its own account.
// Blocks of the usual extent size are kept and used again; others go back to the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "parkade/image.h"

namespace parkade {

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  static std::shared_ptr<BufferPool> Create(std::uint64_t limit_bytes);
  ~BufferPool();

  // Null when the limit would be passed.
  std::shared_ptr<ExtentBuffer> TryAllocate(std::size_t bytes);
  // Waits for room. Null after Shutdown, or when `bytes` alone passes the limit.
  std::shared_ptr<ExtentBuffer> Allocate(std::size_t bytes);
  // A buffer of the same memory that is not charged (its owner accounts for it).
  std::shared_ptr<ExtentBuffer> AllocateUncharged(std::size_t bytes);
  // Takes a buffer off this pool's account; its memory lives on. Does nothing for others.
  static void Uncharge(const ExtentBytes& buffer);

  std::uint64_t charged_bytes() const;
  std::uint64_t limit_bytes() const { return limit_bytes_; }
  void Shutdown();

 private:
  class Block;
  explicit BufferPool(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  std::shared_ptr<ExtentBuffer> Make(std::size_t bytes, bool charged);
  char* TakeBlock(std::size_t bytes, std::size_t* capacity);
  void GiveBlock(char* data, std::size_t capacity);
  void Charge(std::size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Discharge(std::size_t bytes);

  const std::uint64_t limit_bytes_;
  mutable absl::Mutex mu_;
  std::uint64_t charged_ ABSL_GUARDED_BY(mu_) = 0;
  bool shut_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<char*> spare_ ABSL_GUARDED_BY(mu_);  // blocks of kExtentBytes
};

}  // namespace parkade
