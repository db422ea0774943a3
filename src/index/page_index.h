// Chain hash of a page -> who stored that page. Memory only; 16-byte slots.
//
// Open addressing in 256 shards that grow one at a time, so that growing needs at most 1/256 of the
// table twice. Slots of a shard stand in the order of their home positions (Robin Hood), so a miss
// ends early at any load; erasing shifts back, so no tombstone is ever left. Shards stay between
// 0.6 and 0.9 full while they grow and shrink below 0.4: what is erased is given back.
//
// Not synchronised: the manager's lock covers it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace parkade {

struct PageOwner {
  std::uint32_t conversation = 0;  // handle of the manager's catalogue
  std::uint32_t page = 0;          // page number within the whole token sequence
  friend bool operator==(const PageOwner&, const PageOwner&) = default;
};

// Every hash value may be stored, 0 too. Inserts, finds and erases take amortised constant time.
class PageIndex {
 public:
  // Token positions are 32 bits wide, so this page number belongs to no page.
  static constexpr std::uint32_t kNoPage = UINT32_MAX;

  PageIndex();

  // Keeps the first owner: returns false and changes nothing when the hash is there already.
  // Requires owner.page != kNoPage; refused with false otherwise.
  bool Insert(std::uint64_t hash, PageOwner owner);
  std::optional<PageOwner> Find(std::uint64_t hash) const;
  // Removes the entry only if it belongs to `owner`; says whether it did.
  bool Erase(std::uint64_t hash, PageOwner owner);
  // Gives the entry to another owner, if `from` has it; says whether it did. Requires
  // to.page != kNoPage; refused with false otherwise.
  bool Reassign(std::uint64_t hash, PageOwner from, PageOwner to);

  // Number of leading hashes that are present, found in O(log n) probes: chain hashes are
  // prefix-closed (a page is never stored without the pages before it). Where that does not hold
  // the answer is still a prefix whose last page is present.
  std::uint32_t LongestPrefix(absl::Span<const std::uint64_t> hashes) const;

  std::uint64_t size() const { return size_; }
  // What the object and its tables hold, the allocator's own headers not included. While a shard
  // grows or shrinks its old table is held besides: at most 1/256 of this, give or take the spread.
  std::uint64_t memory_bytes() const;

 private:
  struct Slot {
    std::uint64_t hash = 0;
    PageOwner owner{0, kNoPage};
    bool empty() const { return owner.page == kNoPage; }
  };
  static_assert(sizeof(Slot) == 16);
  struct Shard {
    std::vector<Slot> slots;
    std::uint64_t used = 0;

    // Slot where `hash` is, or slots.size().
    std::size_t Locate(std::uint64_t hash) const;
    // Puts a hash that is not there. Requires a free slot.
    void Place(std::uint64_t hash, PageOwner owner);
    void Remove(std::size_t position);
    void Resize(std::size_t slot_count);
  };

  Slot* FindSlot(std::uint64_t hash);

  std::vector<Shard> shards_;
  std::uint64_t size_ = 0;
  std::uint64_t slot_count_ = 0;
};

}  // namespace parkade
