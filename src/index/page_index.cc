#include "src/index/page_index.h"

#include <algorithm>
#include <utility>

namespace parkade {
namespace {

constexpr int kShardBits = 8;
constexpr std::size_t kShards = std::size_t{1} << kShardBits;
constexpr std::size_t kMinSlots = 16;

// Chain hashes are well spread already; this keeps the table sound for keys that are not.
std::uint64_t Mix(std::uint64_t hash) {
  hash ^= hash >> 32;
  hash *= 0x9e3779b97f4a7c15u;
  hash ^= hash >> 29;
  hash *= 0xbf58476d1ce4e5b9u;
  return hash ^ (hash >> 32);
}

std::size_t ShardOf(std::uint64_t hash) { return Mix(hash) >> (64 - kShardBits); }

// Maps the bits below the shard's to [0, slot_count) without a division, for any slot_count.
std::size_t HomeOf(std::uint64_t hash, std::size_t slot_count) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::size_t>(Wide{Mix(hash) << kShardBits} * slot_count >> 64);
}

std::size_t Next(std::size_t position, std::size_t slot_count) {
  return position + 1 == slot_count ? 0 : position + 1;
}

// Steps from the home of `hash` to `position`, going round the end.
std::size_t Distance(std::uint64_t hash, std::size_t position, std::size_t slot_count) {
  const std::size_t home = HomeOf(hash, slot_count);
  return position >= home ? position - home : position + slot_count - home;
}

// Over 0.9 full after one more entry: half as much again, which leaves 0.6.
bool MustGrow(std::size_t used, std::size_t slot_count) { return (used + 1) * 10 > slot_count * 9; }

std::size_t GrownSlots(std::size_t slot_count) {
  return std::max(kMinSlots, slot_count + slot_count / 2);
}

bool ShouldShrink(std::size_t used, std::size_t slot_count) {
  return used == 0 || (slot_count > kMinSlots && used * 5 < slot_count * 2);
}

// About 0.65 full: far enough from both limits that a few inserts or erases resize nothing.
std::size_t ShrunkSlots(std::size_t used) {
  return used == 0 ? 0 : std::max(kMinSlots, used * 20 / 13 + 1);
}

}  // namespace

PageIndex::PageIndex() : shards_(kShards) {}

std::size_t PageIndex::Shard::Locate(std::uint64_t hash) const {
  const std::size_t count = slots.size();
  if (count == 0) return count;
  std::size_t position = HomeOf(hash, count);
  for (std::size_t distance = 0;; ++distance) {
    const Slot& slot = slots[position];
    if (slot.empty()) return count;
    if (slot.hash == hash) return position;
    if (Distance(slot.hash, position, count) < distance) return count;
    position = Next(position, count);
  }
}

void PageIndex::Shard::Place(std::uint64_t hash, PageOwner owner) {
  const std::size_t count = slots.size();
  Slot carried{hash, owner};
  std::size_t position = HomeOf(hash, count);
  std::size_t distance = 0;
  while (!slots[position].empty()) {
    const std::size_t resident = Distance(slots[position].hash, position, count);
    if (resident < distance) {
      std::swap(slots[position], carried);
      distance = resident;
    }
    position = Next(position, count);
    ++distance;
  }
  slots[position] = carried;
  ++used;
}

void PageIndex::Shard::Remove(std::size_t position) {
  const std::size_t count = slots.size();
  for (;;) {
    const std::size_t next = Next(position, count);
    if (slots[next].empty() || Distance(slots[next].hash, next, count) == 0) break;
    slots[position] = slots[next];
    position = next;
  }
  slots[position] = Slot{};
  --used;
}

void PageIndex::Shard::Resize(std::size_t slot_count) {
  std::vector<Slot> old(slot_count);
  old.swap(slots);
  used = 0;
  for (const Slot& slot : old) {
    if (!slot.empty()) Place(slot.hash, slot.owner);
  }
}

PageIndex::Slot* PageIndex::FindSlot(std::uint64_t hash) {
  Shard& shard = shards_[ShardOf(hash)];
  const std::size_t position = shard.Locate(hash);
  return position == shard.slots.size() ? nullptr : &shard.slots[position];
}

bool PageIndex::Insert(std::uint64_t hash, PageOwner owner) {
  if (owner.page == kNoPage) return false;
  Shard& shard = shards_[ShardOf(hash)];
  const std::size_t count = shard.slots.size();
  if (shard.Locate(hash) != count) return false;
  if (MustGrow(shard.used, count)) {
    shard.Resize(GrownSlots(count));
    slot_count_ += shard.slots.size() - count;
  }
  shard.Place(hash, owner);
  ++size_;
  return true;
}

std::optional<PageOwner> PageIndex::Find(std::uint64_t hash) const {
  const Shard& shard = shards_[ShardOf(hash)];
  const std::size_t position = shard.Locate(hash);
  if (position == shard.slots.size()) return std::nullopt;
  return shard.slots[position].owner;
}

bool PageIndex::Erase(std::uint64_t hash, PageOwner owner) {
  Shard& shard = shards_[ShardOf(hash)];
  const std::size_t count = shard.slots.size();
  const std::size_t position = shard.Locate(hash);
  if (position == count || shard.slots[position].owner != owner) return false;
  shard.Remove(position);
  --size_;
  if (ShouldShrink(shard.used, count)) {
    shard.Resize(ShrunkSlots(shard.used));
    slot_count_ -= count - shard.slots.size();
  }
  return true;
}

bool PageIndex::Reassign(std::uint64_t hash, PageOwner from, PageOwner to) {
  if (to.page == kNoPage) return false;
  Slot* slot = FindSlot(hash);
  if (slot == nullptr || slot->owner != from) return false;
  slot->owner = to;
  return true;
}

std::uint32_t PageIndex::LongestPrefix(absl::Span<const std::uint64_t> hashes) const {
  // Prefix lengths: `present` is known to be there, `absent` known not to be.
  std::size_t present = 0;
  std::size_t absent = hashes.size() + 1;
  // Most prompts leave what is stored early or not at all, so the steps double from the front.
  for (std::size_t length = 1; present < hashes.size();
       length = std::min(length * 2, hashes.size())) {
    if (!Find(hashes[length - 1])) {
      absent = length;
      break;
    }
    present = length;
  }
  while (absent - present > 1) {
    const std::size_t middle = present + (absent - present) / 2;
    (Find(hashes[middle - 1]) ? present : absent) = middle;
  }
  return static_cast<std::uint32_t>(present);
}

std::uint64_t PageIndex::memory_bytes() const {
  return sizeof(*this) + shards_.capacity() * sizeof(Shard) + slot_count_ * sizeof(Slot);
}

}  // namespace parkade
