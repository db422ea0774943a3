#include "src/manager/buffer_pool.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

namespace parkade {
namespace {

// Spare blocks kept for use again: enough for the readers of one restore.
constexpr std::size_t kSpareBlocks = 16;
constexpr std::size_t kPage = 4096;

std::size_t CapacityFor(std::size_t bytes) {
  if (bytes > kExtentBytes / 2 && bytes <= kExtentBytes) return kExtentBytes;
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

class BufferPool::Block : public ExtentBuffer {
 public:
  Block(std::shared_ptr<BufferPool> pool, char* data, std::size_t size, std::size_t capacity,
        bool charged)
      : ExtentBuffer(data, size), pool_(std::move(pool)), capacity_(capacity), charged_(charged) {}
  ~Block() override {
    Uncharge();
    pool_->GiveBlock(data(), capacity_);
  }
  void Uncharge() {
    if (charged_.exchange(false)) pool_->Discharge(capacity_);
  }

 private:
  std::shared_ptr<BufferPool> pool_;
  std::size_t capacity_;
  std::atomic<bool> charged_;
};

std::shared_ptr<BufferPool> BufferPool::Create(std::uint64_t limit_bytes) {
  return std::shared_ptr<BufferPool>(new BufferPool(limit_bytes));
}

BufferPool::~BufferPool() {
  absl::MutexLock lock(&mu_);
  for (char* block : spare_) munmap(block, kExtentBytes);
}

char* BufferPool::TakeBlock(std::size_t bytes, std::size_t* capacity) {
  *capacity = CapacityFor(bytes == 0 ? 1 : bytes);
  if (*capacity == kExtentBytes) {
    absl::MutexLock lock(&mu_);
    if (!spare_.empty()) {
      char* block = spare_.back();
      spare_.pop_back();
      return block;
    }
  }
  void* memory =
      mmap(nullptr, *capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

void BufferPool::GiveBlock(char* data, std::size_t capacity) {
  if (capacity == kExtentBytes) {
    absl::MutexLock lock(&mu_);
    const std::uint64_t held = charged_ + (spare_.size() + 1) * kExtentBytes;
    if (spare_.size() < kSpareBlocks && held <= limit_bytes_) {
      spare_.push_back(data);
      return;
    }
  }
  munmap(data, capacity);
}

// Spare blocks are part of what the limit bounds, except the one that is about to be taken.
void BufferPool::Charge(std::size_t bytes) {
  charged_ += bytes;
  const std::size_t taken = bytes == kExtentBytes ? 1 : 0;
  while (spare_.size() > taken &&
         charged_ + (spare_.size() - taken) * kExtentBytes > limit_bytes_) {
    munmap(spare_.back(), kExtentBytes);
    spare_.pop_back();
  }
}

void BufferPool::Discharge(std::size_t bytes) {
  absl::MutexLock lock(&mu_);
  charged_ -= bytes;
}

std::shared_ptr<ExtentBuffer> BufferPool::Make(std::size_t bytes, bool charged) {
  std::size_t capacity = 0;
  char* data = TakeBlock(bytes, &capacity);
  if (data == nullptr) {
    if (charged) Discharge(CapacityFor(bytes == 0 ? 1 : bytes));
    return nullptr;
  }
  return std::make_shared<Block>(shared_from_this(), data, bytes, capacity, charged);
}

std::shared_ptr<ExtentBuffer> BufferPool::TryAllocate(std::size_t bytes) {
  const std::size_t capacity = CapacityFor(bytes == 0 ? 1 : bytes);
  {
    absl::MutexLock lock(&mu_);
    if (shut_ || charged_ + capacity > limit_bytes_) return nullptr;
    Charge(capacity);
  }
  return Make(bytes, true);
}

std::shared_ptr<ExtentBuffer> BufferPool::Allocate(std::size_t bytes) {
  const std::size_t capacity = CapacityFor(bytes == 0 ? 1 : bytes);
  {
    absl::MutexLock lock(&mu_);
    if (capacity > limit_bytes_) return nullptr;
    auto fits = [this, capacity]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return shut_ || charged_ + capacity <= limit_bytes_;
    };
    mu_.Await(absl::Condition(&fits));
    if (shut_) return nullptr;
    Charge(capacity);
  }
  return Make(bytes, true);
}

std::shared_ptr<ExtentBuffer> BufferPool::AllocateUncharged(std::size_t bytes) {
  return Make(bytes, false);
}

void BufferPool::Uncharge(const ExtentBytes& buffer) {
  const auto* block = dynamic_cast<const Block*>(buffer.get());
  if (block != nullptr) const_cast<Block*>(block)->Uncharge();
}

std::uint64_t BufferPool::charged_bytes() const {
  absl::MutexLock lock(&mu_);
  return charged_;
}

void BufferPool::Shutdown() {
  absl::MutexLock lock(&mu_);
  shut_ = true;
}

}  // namespace parkade
