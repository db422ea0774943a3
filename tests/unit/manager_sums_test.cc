// The catalogue's sums by tier, against a scan of everything after every step.

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "src/manager/cache_impl.h"
#include "src/manager/catalogue.h"

namespace parkade {
namespace {

constexpr std::size_t kTiers = 3;
constexpr int kSteps = 4000;

class ManagerSums : public ::testing::Test {
 protected:
  std::uint32_t Below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }
  std::uint8_t SomeTiers() { return static_cast<std::uint8_t>(Below(1u << kTiers)); }

  // kNoHandle: there is none.
  Handle Any() const {
    if (catalogue_.size() == 0) return kNoHandle;
    auto it = catalogue_.by_id().begin();
    std::advance(it, random_() % catalogue_.size());
    return it->second;
  }
  ParkState* AnyPark(Handle handle) {
    std::vector<ParkState>& parks = catalogue_.Get(handle)->parks;
    return parks.empty() ? nullptr : &parks[random_() % parks.size()];
  }

  void Create() {
    const Handle parent = Below(2) == 0 ? kNoHandle : Any();
    const std::uint32_t at =
        parent == kNoHandle ? 0 : 1 + Below(std::max(1u, catalogue_.Get(parent)->tip()));
    if (parent != kNoHandle && catalogue_.Get(parent)->tip() < at) return;
    const Handle handle = catalogue_.Create({1, ++last_id_}, Digest128{1, 1}, parent, at, 5);
    // One that holds nothing is taken away by the first look at it.
    Park(handle, parent != kNoHandle && Below(2) == 0 ? 0 : 1 + Below(100));
  }

  void Park(Handle handle, std::uint32_t tokens) {
    const Conversation* conversation = catalogue_.Get(handle);
    if (conversation->forgotten) return;
    ParkSummary summary;
    summary.key = {conversation->id, conversation->next_park};
    summary.first_token = conversation->tip();
    summary.token_count = tokens;
    // Without tokens: a checkpoint, or a session's name.
    summary.payload_bytes = tokens > 0 ? tokens * 10 : Below(2) * 77;
    ParkState* park = catalogue_.AddPark(handle, summary, SomeTiers());
    if (Below(2) == 0 || park->tiers == 0) {
      catalogue_.SetPending(handle, park, std::make_shared<PendingPark>());
    }
  }

  void Grow(Handle handle) {
    std::vector<ParkState>& parks = catalogue_.Get(handle)->parks;
    if (parks.empty() || catalogue_.Get(handle)->forgotten || parks.back().count == 0) return;
    ParkSummary piece;
    piece.first_token = parks.back().end();
    piece.token_count = 1 + Below(50);
    piece.payload_bytes = piece.token_count * 10;
    const ParkKey key{catalogue_.Get(handle)->id, parks.back().park};
    catalogue_.GrowPark(handle, &parks.back(), *catalogue_.SummaryOf(key), piece);
  }

  void Step() {
    const std::uint32_t what = Below(12);
    const Handle handle = Any();
    if (what < 3 || handle == kNoHandle) return Create();
    ParkState* park = AnyPark(handle);
    const std::uint32_t number = park == nullptr ? 0 : park->park;
    std::uint32_t kept = 0;
    switch (what) {
      case 3:
        return Park(handle, Below(3) == 0 ? 0 : 1 + Below(200));
      case 4:
        return Grow(handle);
      case 5:
      case 6:
        if (park != nullptr) catalogue_.AddTiers(handle, park, SomeTiers());
        return;
      case 7:
        if (park == nullptr) return;
        catalogue_.SetPending(handle, park, nullptr);
        [[fallthrough]];
      case 8:
        if (park != nullptr) catalogue_.ClearTiers(handle, number, SomeTiers());
        return;
      case 9:
        if (!catalogue_.Get(handle)->forgotten) catalogue_.SetPinned(handle, Below(2) == 0);
        return;
      case 10:
        if (Below(4) == 0) catalogue_.Forget(handle, &kept);
        return;
      default:
        if (Below(8) == 0) catalogue_.CutAt(handle, number);
    }
  }

  // What pinned conversations stand on, from each of them down to its root.
  std::uint64_t PinnedBytes(std::size_t tier, Handle more, std::uint32_t tokens) const {
    std::set<std::pair<Handle, std::uint32_t>> counted;
    std::uint64_t bytes = 0;
    const auto add = [&](Handle handle, std::uint32_t reach) {
      while (handle != kNoHandle) {
        const Conversation* conversation = catalogue_.Get(handle);
        for (const ParkState& park : conversation->parks) {
          const bool needed = park.first < reach || (park.count == 0 && park.first == reach);
          const bool here = (park.tiers >> tier & 1) != 0 || park.pending != nullptr;
          if (!needed || !here || !counted.emplace(handle, park.park).second) continue;
          bytes += park.bytes + (park.count == 0 && park.bytes == 0 ? kNameBytes : 0);
        }
        reach = std::min(reach, conversation->parent_tokens);
        handle = conversation->parent;
      }
    };
    for (const auto& [id, handle] : catalogue_.by_id()) {
      if (catalogue_.Get(handle)->attributes.pinned) add(handle, catalogue_.Get(handle)->tip());
    }
    add(more, tokens);
    return bytes;
  }

  std::uint32_t ConversationsIn(std::size_t tier) const {
    std::uint32_t count = 0;
    for (const auto& [id, handle] : catalogue_.by_id()) {
      const Conversation* conversation = catalogue_.Get(handle);
      const bool here =
          std::any_of(conversation->parks.begin(), conversation->parks.end(),
                      [tier](const ParkState& park) { return (park.tiers >> tier & 1) != 0; });
      if (here && !conversation->forgotten) ++count;
    }
    return count;
  }

  bool Agrees() const {
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      const std::uint64_t pinned = PinnedBytes(tier, kNoHandle, 0);
      EXPECT_EQ(catalogue_.PinnedBytes(tier), pinned);
      EXPECT_EQ(catalogue_.ConversationsIn(tier), ConversationsIn(tier));
      const Handle handle = Any();
      if (handle == kNoHandle) continue;
      const std::uint32_t tokens = catalogue_.Get(handle)->tip();
      EXPECT_EQ(catalogue_.BytesToPin(tier, handle, tokens),
                PinnedBytes(tier, handle, tokens) - pinned);
    }
    return !HasFailure();
  }

  Catalogue catalogue_;
  std::uint64_t last_id_ = 0;
  const unsigned seed_ = std::random_device()();
  mutable std::mt19937 random_{seed_};
};

TEST_F(ManagerSums, AreWhatAScanFinds) {
  std::uint64_t most_pinned = 0;
  std::uint32_t most = 0;
  for (int step = 0; step < kSteps; ++step) {
    Step();
    ASSERT_TRUE(Agrees()) << "step " << step << " of seed " << seed_;
    most_pinned = std::max(most_pinned, catalogue_.PinnedBytes(0));
    most = std::max(most, catalogue_.ConversationsIn(0));
  }
  // The steps did something.
  EXPECT_GT(most_pinned, 1000u);
  EXPECT_GT(most, 5u);
}

TEST_F(ManagerSums, AreFoundAnewAfterOpening) {
  for (int step = 0; step < 300; ++step) Step();
  for (const auto& [id, handle] : catalogue_.by_id()) {
    Conversation* conversation = catalogue_.Get(handle);
    // As rewarming does: attributes come from a tier.
    if (!conversation->forgotten) conversation->attributes.pinned = Below(3) == 0;
  }
  catalogue_.RecountPins();
  EXPECT_TRUE(Agrees()) << "seed " << seed_;
}

TEST_F(ManagerSums, EndAtZero) {
  for (int step = 0; step < 500; ++step) Step();
  // Ids ascend, so that nothing stands on the last one.
  while (catalogue_.size() > 0) {
    std::uint32_t kept = 0;
    catalogue_.Forget(catalogue_.by_id().rbegin()->second, &kept);
    EXPECT_EQ(kept, 0u);
  }
  for (std::size_t tier = 0; tier < kMostTiers; ++tier) {
    EXPECT_EQ(catalogue_.PinnedBytes(tier), 0u);
    EXPECT_EQ(catalogue_.ConversationsIn(tier), 0u);
  }
}

}  // namespace
}  // namespace parkade
