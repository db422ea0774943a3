#include "src/manager/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

namespace parkade {
namespace {

// Spare memory kept for use again: enough for the readers of one restore.
constexpr std::uint64_t kSpareBytes = 16 * kExtentBytes;
constexpr std::size_t kSmallestKept = 64u << 10;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLargePage = 2u << 20;
static_assert(kExtentBytes % kLargePage == 0);
// An extent, and what a tier may need around it: its medium's sectors. That part is on ordinary
// pages.
constexpr std::size_t kLargeBlockBytes = kExtentBytes + 4 * kPage;

std::size_t OrdinaryCapacity(std::size_t bytes) {
  if (bytes > kSmallestKept / 2 && bytes <= kExtentBytes) return std::bit_ceil(bytes);
  return (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
}

// Null when the system gives none.
char* MapMemory(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

// As MapMemory, on large pages where the system has them.
char* MapLargePages(std::size_t bytes) {
  char* memory = MapMemory(bytes + kLargePage);
  if (memory == nullptr) return nullptr;
  const std::size_t past = reinterpret_cast<std::uintptr_t>(memory) % kLargePage;
  char* aligned = past == 0 ? memory : memory + (kLargePage - past);
  if (aligned > memory) munmap(memory, static_cast<std::size_t>(aligned - memory));
  char* end = memory + bytes + kLargePage;
  if (end > aligned + bytes)
    munmap(aligned + bytes, static_cast<std::size_t>(end - aligned) - bytes);
  // swallow: ordinary pages do as well.
  (void)madvise(aligned, bytes, MADV_HUGEPAGE);
  return aligned;
}

bool IsKept(std::size_t capacity) {
  return capacity >= kSmallestKept && capacity <= kLargeBlockBytes;
}

}  // namespace

class BufferPool::Block : public ExtentBuffer {
 public:
  Block(std::shared_ptr<BufferPool> pool, Memory memory, std::size_t size, std::size_t capacity,
        bool charged)
      : ExtentBuffer(memory.data, size),
        pool_(std::move(pool)),
        memory_(memory),
        capacity_(capacity),
        charged_(charged) {}
  ~Block() override { pool_->Return(memory_, capacity_, charged_); }
  void Uncharge() {
    if (charged_.exchange(false)) pool_->Discharge(capacity_);
  }

 private:
  std::shared_ptr<BufferPool> pool_;
  const Memory memory_;
  std::size_t capacity_;
  std::atomic<bool> charged_;
};

std::shared_ptr<BufferPool> BufferPool::Create(std::uint64_t limit_bytes, Pages pages,
                                               std::shared_ptr<HostArena> arena) {
  // A small pool has no room to be wasteful.
  if (limit_bytes < 2 * kLargeBlockBytes) pages = Pages::kOrdinary;
  return std::shared_ptr<BufferPool>(new BufferPool(limit_bytes, pages, std::move(arena)));
}

BufferPool::~BufferPool() { DropSpares(); }

void BufferPool::DropSpares() {
  absl::MutexLock lock(&mu_);
  while (!spare_.empty()) {
    const std::size_t capacity = spare_.begin()->first;
    munmap(TakeSpare(capacity), capacity);
  }
}

// Blocks of one size can always be used again; a second size would push them out of the limit, and
// touching a new block anew costs more than reading into it.
std::size_t BufferPool::CapacityFor(std::size_t bytes, bool charged) const {
  if (charged && pages_ == Pages::kLarge && bytes <= kLargeBlockBytes) return kLargeBlockBytes;
  return OrdinaryCapacity(bytes);
}

char* BufferPool::TakeSpare(std::size_t capacity) {
  auto it = spare_.find(capacity);
  if (it == spare_.end()) return nullptr;
  // The one that came back first: the last one may still be in the cache of the core that imported
  // it, from where another core gets it slower than from memory.
  char* block = it->second.front();
  it->second.pop_front();
  if (it->second.empty()) spare_.erase(it);
  spare_bytes_ -= capacity;
  return block;
}

BufferPool::Memory BufferPool::TakeFromArena(std::size_t bytes) const {
  if (arena_ == nullptr) return {};
  char* memory = arena_->TryTake(bytes);
  return memory == nullptr ? Memory() : Memory{memory, std::max<std::size_t>(bytes, 1), 0};
}

// Spare blocks are part of what the limit bounds.
BufferPool::Memory BufferPool::Charge(std::size_t bytes, std::size_t capacity) {
  Memory memory = TakeFromArena(bytes);
  if (memory.data == nullptr) memory = {TakeSpare(capacity), 0, 0};
  charged_ += capacity;
  while (spare_bytes_ > 0 && charged_ + spare_bytes_ > limit_bytes_) {
    const std::size_t largest = spare_.rbegin()->first;
    munmap(TakeSpare(largest), largest);
  }
  return memory;
}

void BufferPool::Return(Memory memory, std::size_t capacity, bool charged) {
  // What the arena lacked is not kept: its memory is the better one.
  const bool keep = arena_ == nullptr || !arena_->in_use();
  if (memory.noted_bytes > 0) {
    arena_->NoteOrdinary(-static_cast<std::int64_t>(memory.noted_bytes));
  }
  {
    absl::MutexLock lock(&mu_);
    // In one step with the charge: who waits for that finds the memory, too.
    if (memory.arena_bytes > 0) arena_->Return(memory.data, memory.arena_bytes);
    if (charged) charged_ -= capacity;
    if (memory.arena_bytes > 0) return;
    const std::uint64_t spare = spare_bytes_ + capacity;
    if (keep && IsKept(capacity) && spare <= kSpareBytes && charged_ + spare <= limit_bytes_) {
      spare_[capacity].push_back(memory.data);
      spare_bytes_ = spare;
      return;
    }
  }
  munmap(memory.data, capacity);
}

void BufferPool::Discharge(std::size_t capacity) {
  absl::MutexLock lock(&mu_);
  charged_ -= capacity;
}

std::shared_ptr<ExtentBuffer> BufferPool::Make(std::size_t bytes, std::size_t capacity,
                                               Memory memory, bool charged) {
  if (memory.data == nullptr) {
    const bool large = charged && pages_ == Pages::kLarge && capacity == kLargeBlockBytes;
    memory = {large ? MapLargePages(capacity) : MapMemory(capacity), 0, 0};
  }
  if (memory.data == nullptr) {
    if (charged) Discharge(capacity);
    return nullptr;
  }
  if (memory.arena_bytes == 0 && arena_ != nullptr && arena_->in_use()) {
    // Blocks for extents may be on large pages, all of which they have.
    memory.noted_bytes = charged && pages_ == Pages::kLarge ? capacity : bytes;
    arena_->NoteOrdinary(static_cast<std::int64_t>(memory.noted_bytes));
  }
  return std::make_shared<Block>(shared_from_this(), memory, bytes, capacity, charged);
}

std::shared_ptr<ExtentBuffer> BufferPool::TryAllocate(std::size_t bytes) {
  const std::size_t capacity = CapacityFor(bytes, true);
  Memory memory;
  {
    absl::MutexLock lock(&mu_);
    if (shut_ || charged_ + capacity > limit_bytes_) return nullptr;
    memory = Charge(bytes, capacity);
  }
  return Make(bytes, capacity, memory, true);
}

std::shared_ptr<ExtentBuffer> BufferPool::Allocate(std::size_t bytes) {
  const std::size_t capacity = CapacityFor(bytes, true);
  Memory memory;
  {
    absl::MutexLock lock(&mu_);
    if (capacity > limit_bytes_) return nullptr;
    auto fits = [this, capacity]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return shut_ || charged_ + capacity <= limit_bytes_;
    };
    mu_.Await(absl::Condition(&fits));
    if (shut_) return nullptr;
    memory = Charge(bytes, capacity);
  }
  return Make(bytes, capacity, memory, true);
}

std::shared_ptr<ExtentBuffer> BufferPool::AllocateUncharged(std::size_t bytes) {
  const std::size_t capacity = CapacityFor(bytes, false);
  Memory memory = TakeFromArena(bytes);
  if (memory.data == nullptr && pages_ == Pages::kOrdinary) {
    absl::MutexLock lock(&mu_);
    memory = {TakeSpare(capacity), 0, 0};
  }
  return Make(bytes, capacity, memory, false);
}

void BufferPool::Uncharge(const ExtentBytes& buffer) {
  const auto* block = dynamic_cast<const Block*>(buffer.get());
  if (block != nullptr) const_cast<Block*>(block)->Uncharge();
}

void BufferPool::Prepare() {
  if (pages_ != Pages::kLarge) return;
  std::vector<std::shared_ptr<ExtentBuffer>> blocks;
  while (std::shared_ptr<ExtentBuffer> block = TryAllocate(kLargeBlockBytes)) {
    for (std::size_t at = 0; at < block->size(); at += kPage) block->data()[at] = 0;
    blocks.push_back(std::move(block));
  }
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
