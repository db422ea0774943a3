// Buffers from a few large pieces of memory that devices copy from fast.
//
// Such memory is slow to get, so it is got ahead, in slabs, by a thread of the arena's own. Within
// a slab a buffer takes whole pages from the smallest free range that is large enough, at its
// lowest address, and free neighbours become one again. A whole free slab is the largest range
// there is, so it is broken last, and those that stay free go back to the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "parkade/host_memory.h"

namespace parkade {

// Thread safe.
class HostArena {
 public:
  struct Options {
    std::uint64_t limit_bytes = 0;            // of all slabs
    std::size_t slab_bytes = 64u << 20;       // a multiple of 2 MiB
    std::size_t ahead_bytes = 128u << 20;     // free bytes to have ready
    absl::Duration retry = absl::Minutes(1);  // after the system gave none
    // One line for people, on the arena's thread. May be null.
    std::function<void(bool warning, const std::string& line)> tell;
  };
  struct Counts {
    std::uint64_t slab_bytes = 0;      // got from the system
    std::uint64_t used_bytes = 0;      // of those, handed out, rounded up
    std::uint64_t ordinary_bytes = 0;  // see NoteOrdinary
    std::uint64_t refused = 0;         // calls of TryTake that found nothing
  };

  // Hands out nothing until it is given memory.
  explicit HostArena(Options options);
  // Everything handed out must have come back.
  ~HostArena();

  // Starts the thread that gets slabs. Only the first call has an effect.
  void Use(std::shared_ptr<HostMemory> memory);
  bool in_use() const;
  // Slabs beyond it go back when they are free.
  void SetLimit(std::uint64_t bytes);
  // The machine is short of memory: nothing is got ahead, and free slabs go.
  void SetFrugal(bool frugal);

  // Null when there is no such range now. Does not wait for the system.
  char* TryTake(std::size_t bytes);
  void Return(char* memory, std::size_t bytes);
  // Memory that is taken from elsewhere because TryTake had none, or (negative) given back.
  void NoteOrdinary(std::int64_t bytes);
  // Waits until the thread has nothing to do: slabs are ahead, or can't be had. False: not in time.
  bool WaitSettled(absl::Duration timeout);

  // Ends the thread: no slab comes or goes any more.
  void Stop();
  Counts counts() const;

 private:
  struct Slab {
    std::size_t bytes = 0;
    std::size_t free_bytes = 0;
    std::map<std::size_t, std::size_t> free;  // offset -> bytes; no two of them touch
  };
  using Slabs = std::map<char*, Slab>;

  void Run();
  // More is wanted, and it is time to ask for it.
  bool WantsSlab() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A free slab too many, or the end.
  Slabs::iterator FindSurplus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Grow() ABSL_LOCKS_EXCLUDED(mu_);
  void AddSlab(char* memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveSlab(Slabs::iterator slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddFree(Slabs::iterator slab, std::size_t offset, std::size_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropFree(Slabs::iterator slab, std::map<std::size_t, std::size_t>::iterator range)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Tell(bool warning, const std::string& line) const;

  const Options options_;
  mutable absl::Mutex mu_;
  std::shared_ptr<HostMemory> memory_ ABSL_GUARDED_BY(mu_);
  std::uint64_t limit_bytes_ ABSL_GUARDED_BY(mu_);
  Slabs slabs_ ABSL_GUARDED_BY(mu_);
  std::set<std::pair<std::size_t, char*>> free_ ABSL_GUARDED_BY(mu_);  // all ranges, by size
  std::uint64_t slab_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t free_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::int64_t ordinary_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t refused_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t free_slabs_ ABSL_GUARDED_BY(mu_) = 0;
  bool missed_ ABSL_GUARDED_BY(mu_) = false;  // something was refused since the last slab came
  bool changing_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool frugal_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time retry_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace parkade
