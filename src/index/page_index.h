// Chain hash of a page -> who stored that page. Memory only; 16-byte slots.
//
// Open addressing in 256 shards that grow one at a time, so that growing needs at most 1/256 of the
// table twice. Not synchronised: the manager's lock covers it.
#pragma once

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

class PageIndex {
 public:
  PageIndex();

  // Keeps the first owner: returns false and changes nothing when the hash is there already.
  bool Insert(std::uint64_t hash, PageOwner owner);
  std::optional<PageOwner> Find(std::uint64_t hash) const;
  // Removes the entry only if it belongs to `owner`.
  bool Erase(std::uint64_t hash, PageOwner owner);
  // Gives the entry to another owner, if `from` has it.
  bool Reassign(std::uint64_t hash, PageOwner from, PageOwner to);

  // Number of leading hashes that are present, found in O(log n) probes: chain hashes are
  // prefix-closed (a page is never stored without the pages before it). Where that does not hold
  // the answer is still a prefix whose last page is present.
  std::uint32_t LongestPrefix(absl::Span<const std::uint64_t> hashes) const;

  std::uint64_t size() const;
  std::uint64_t memory_bytes() const;

 private:
  struct Slot {
    std::uint64_t hash = 0;
    PageOwner owner;
  };
  static_assert(sizeof(Slot) == 16);
  struct Shard {
    std::vector<Slot> slots;
    std::uint64_t used = 0;
  };
  std::vector<Shard> shards_;
};

}  // namespace parkade
