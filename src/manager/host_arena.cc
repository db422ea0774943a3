#include "src/manager/host_arena.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace parkade {
namespace {

constexpr std::size_t kPage = 4096;

// Whole pages, and of larger buffers whole sixteenths of the power of two below: with fewer sizes
// more holes fit again, which saves more than it costs.
std::size_t Rounded(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 1);
  const std::size_t unit = std::max(kPage, std::bit_floor(bytes) / 16);
  return (bytes + unit - 1) / unit * unit;
}

bool AtPageBorder(const char* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % kPage == 0;
}

}  // namespace

HostArena::HostArena(Options options)
    : options_(std::move(options)), limit_bytes_(options_.limit_bytes) {}

HostArena::~HostArena() {
  Stop();
  absl::MutexLock lock(&mu_);
  for (const auto& [memory, slab] : slabs_) memory_->Give(memory, slab.bytes);
}

void HostArena::Use(std::shared_ptr<HostMemory> memory) {
  absl::MutexLock lock(&mu_);
  if (memory_ != nullptr || memory == nullptr || stop_) return;
  memory_ = std::move(memory);
  thread_ = std::thread([this] { Run(); });
}

bool HostArena::in_use() const {
  absl::MutexLock lock(&mu_);
  return memory_ != nullptr;
}

void HostArena::SetLimit(std::uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  limit_bytes_ = bytes;
}

void HostArena::SetFrugal(bool frugal) {
  absl::MutexLock lock(&mu_);
  frugal_ = frugal;
}

void HostArena::Stop() {
  std::thread thread;
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

HostArena::Counts HostArena::counts() const {
  absl::MutexLock lock(&mu_);
  const auto ordinary = static_cast<std::uint64_t>(std::max<std::int64_t>(ordinary_bytes_, 0));
  return {slab_bytes_, slab_bytes_ - free_bytes_, ordinary, refused_};
}

void HostArena::AddFree(Slabs::iterator slab, std::size_t offset, std::size_t bytes) {
  Slab& own = slab->second;
  own.free.emplace(offset, bytes);
  own.free_bytes += bytes;
  free_bytes_ += bytes;
  free_.emplace(bytes, slab->first + offset);
  if (own.free_bytes == own.bytes) ++free_slabs_;
}

void HostArena::DropFree(Slabs::iterator slab, std::map<std::size_t, std::size_t>::iterator range) {
  Slab& own = slab->second;
  if (own.free_bytes == own.bytes) --free_slabs_;
  free_.erase({range->second, slab->first + range->first});
  own.free_bytes -= range->second;
  free_bytes_ -= range->second;
  own.free.erase(range);
}

char* HostArena::TryTake(std::size_t bytes) {
  const std::size_t wanted = Rounded(bytes);
  absl::MutexLock lock(&mu_);
  if (memory_ == nullptr) return nullptr;
  const auto best = free_.lower_bound({wanted, nullptr});
  if (best == free_.end()) {
    ++refused_;
    missed_ = missed_ || wanted <= options_.slab_bytes;
    return nullptr;
  }
  char* memory = best->second;
  const auto slab = std::prev(slabs_.upper_bound(memory));
  const auto offset = static_cast<std::size_t>(memory - slab->first);
  const auto range = slab->second.free.find(offset);
  const std::size_t left = range->second - wanted;
  DropFree(slab, range);
  if (left > 0) AddFree(slab, offset + wanted, left);
  return memory;
}

void HostArena::Return(char* memory, std::size_t bytes) {
  std::size_t size = Rounded(bytes);
  absl::MutexLock lock(&mu_);
  const auto slab = std::prev(slabs_.upper_bound(memory));
  std::map<std::size_t, std::size_t>& free = slab->second.free;
  auto offset = static_cast<std::size_t>(memory - slab->first);
  const auto next = free.find(offset + size);
  if (next != free.end()) {
    size += next->second;
    DropFree(slab, next);
  }
  auto before = free.lower_bound(offset);
  if (before != free.begin() && (--before)->first + before->second == offset) {
    offset = before->first;
    size += before->second;
    DropFree(slab, before);
  }
  AddFree(slab, offset, size);
}

void HostArena::NoteOrdinary(std::int64_t bytes) {
  absl::MutexLock lock(&mu_);
  ordinary_bytes_ += bytes;
}

bool HostArena::WaitSettled(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  auto settled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || memory_ == nullptr ||
           (!changing_ && !WantsSlab() && FindSurplus() == slabs_.end());
  };
  return mu_.AwaitWithTimeout(absl::Condition(&settled), timeout);
}

bool HostArena::WantsSlab() const {
  const bool short_of = missed_ || free_bytes_ < options_.ahead_bytes;
  return short_of && !frugal_ && slab_bytes_ + options_.slab_bytes <= limit_bytes_ &&
         (!failed_ || absl::Now() >= retry_at_);
}

// One more than growing would bring back stays, or slabs would come and go for ever.
HostArena::Slabs::iterator HostArena::FindSurplus() {
  const std::size_t kept = frugal_ ? 0 : options_.ahead_bytes / options_.slab_bytes + 1;
  if (free_slabs_ == 0 || (free_slabs_ <= kept && slab_bytes_ <= limit_bytes_)) return slabs_.end();
  return std::find_if(slabs_.begin(), slabs_.end(), [](const auto& entry) {
    return entry.second.free_bytes == entry.second.bytes;
  });
}

void HostArena::AddSlab(char* memory) {
  const auto slab = slabs_.emplace(memory, Slab{options_.slab_bytes, 0, {}}).first;
  slab_bytes_ += options_.slab_bytes;
  AddFree(slab, 0, options_.slab_bytes);
  missed_ = false;
  failed_ = false;
}

void HostArena::RemoveSlab(Slabs::iterator slab) {
  slab_bytes_ -= slab->second.bytes;
  missed_ = false;  // what was refused would find a place now
  DropFree(slab, slab->second.free.begin());
  slabs_.erase(slab);
}

void HostArena::Tell(bool warning, const std::string& line) const {
  if (options_.tell) options_.tell(warning, line);
}

void HostArena::Grow() {
  std::shared_ptr<HostMemory> memory;
  {
    absl::MutexLock lock(&mu_);
    memory = memory_;
  }
  absl::StatusOr<char*> slab = memory->Take(options_.slab_bytes);
  if (slab.ok() && !AtPageBorder(*slab)) {
    memory->Give(*slab, options_.slab_bytes);
    slab = absl::InternalError("memory that does not begin at a page's border");
  }
  bool first = false;
  bool fails = false;
  std::uint64_t held = 0;
  {
    absl::MutexLock lock(&mu_);
    first = slabs_.empty();
    fails = !failed_;
    held = slab_bytes_;
    if (slab.ok()) {
      AddSlab(*slab);
    } else {
      failed_ = true;
      retry_at_ = absl::Now() + options_.retry;
    }
  }
  if (slab.ok() && first) Tell(false, absl::StrCat("buffers are in ", memory->name()));
  if (!slab.ok() && fails) {
    Tell(true, absl::StrCat("no more than ", held >> 20, " MiB of ", memory->name(), " (",
                            slab.status().message(), "); ordinary memory is used"));
  }
}

void HostArena::Run() {
  while (true) {
    char* surplus = nullptr;
    std::size_t bytes = 0;
    std::shared_ptr<HostMemory> memory;
    bool grow = false;
    {
      absl::MutexLock lock(&mu_);
      auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stop_ || FindSurplus() != slabs_.end() || WantsSlab();
      };
      // After a failure nothing else wakes it up.
      mu_.AwaitWithTimeout(absl::Condition(&work), options_.retry);
      if (stop_) return;
      const auto found = FindSurplus();
      if (found != slabs_.end()) {
        surplus = found->first;
        bytes = found->second.bytes;
        memory = memory_;
        RemoveSlab(found);
      } else {
        grow = WantsSlab();
      }
      changing_ = grow || surplus != nullptr;
    }
    if (surplus != nullptr) memory->Give(surplus, bytes);
    if (grow) Grow();
    absl::MutexLock lock(&mu_);
    changing_ = false;
  }
}

}  // namespace parkade
