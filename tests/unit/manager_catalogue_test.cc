// The tree of forks, its parks and pages.

#include <gtest/gtest.h>

#include <set>

#include "src/manager/catalogue.h"

namespace parkade {
namespace {

constexpr std::uint8_t kRam = 1;
constexpr std::uint8_t kDisk = 2;

// Conversations are named by small numbers; page hashes by sequence and page.
class ManagerCatalogue : public ::testing::Test {
 protected:
  static ConversationId Id(std::uint64_t name) { return ConversationId{9, name}; }
  static std::uint64_t Hash(std::uint64_t name, std::uint32_t page) {
    return name * 1000 + page + 1;
  }

  Handle Root(std::uint64_t name) {
    return catalogue_.Create(Id(name), Digest128{1, 1}, kNoHandle, 0, 5);
  }
  Handle ForkOf(std::uint64_t name, Handle parent, std::uint32_t at) {
    return catalogue_.Create(Id(name), Digest128{1, 1}, parent, at, 6);
  }
  // Appends [first, first + count) to a conversation whose pages are `name`'s.
  ParkState* Add(Handle handle, std::uint64_t name, std::uint32_t first, std::uint32_t count,
                 std::uint8_t tiers = kRam) {
    ParkSummary summary;
    Conversation* conversation = catalogue_.Get(handle);
    summary.key = ParkKey{conversation->id, conversation->next_park};
    summary.first_token = first;
    summary.token_count = count;
    summary.payload_bytes = count * 10 + 1;
    for (std::uint32_t page = first / 64; (page + 1) * 64 <= first + count; ++page) {
      summary.page_hashes.push_back(Hash(name, page));
    }
    return catalogue_.AddPark(handle, summary, tiers);
  }
  static std::set<std::pair<std::uint64_t, std::uint32_t>> Keys(
      const std::vector<Removal>& removals) {
    std::set<std::pair<std::uint64_t, std::uint32_t>> keys;
    for (const Removal& removal : removals) {
      keys.emplace(removal.key.conversation.low, removal.key.park);
    }
    return keys;
  }
  std::uint32_t Match(const std::vector<std::uint64_t>& hashes, Handle* owner = nullptr) const {
    const Catalogue::PageMatch match = catalogue_.MatchPages(hashes);
    if (owner != nullptr) *owner = match.conversation;
    return match.pages;
  }

  Catalogue catalogue_;
};

using KeySet = std::set<std::pair<std::uint64_t, std::uint32_t>>;

TEST_F(ManagerCatalogue, PathLeadsFromTheRootThroughForks) {
  const Handle root = Root(1);
  Add(root, 1, 0, 100);
  Add(root, 1, 100, 200);
  const Handle fork = ForkOf(2, root, 150);
  Add(fork, 2, 150, 50);
  const Handle deep = ForkOf(3, fork, 180);
  Add(deep, 3, 180, 20);
  EXPECT_EQ(catalogue_.Get(deep)->tip(), 200u);
  const auto path = catalogue_.Path(deep, 1000);
  ASSERT_EQ(path.size(), 4u);
  EXPECT_EQ(path[0].tokens, (TokenRange{0, 100}));
  EXPECT_EQ(path[1].tokens, (TokenRange{100, 150}));
  EXPECT_EQ(path[2].tokens, (TokenRange{150, 180}));
  EXPECT_EQ(path[3].tokens, (TokenRange{180, 200}));
  EXPECT_EQ(path[2].key, (ParkKey{Id(2), 0}));
  EXPECT_EQ(catalogue_.Path(deep, 150).size(), 2u);
  EXPECT_EQ(catalogue_.Path(deep, 151).back().tokens, (TokenRange{150, 151}));
}

TEST_F(ManagerCatalogue, CoverageStopsWhereAForkLeaves) {
  const Handle root = Root(1);
  ParkState* park = Add(root, 1, 0, 100);
  park->window_rows = {{40, 100}};
  park->checkpoints = {70, 100};
  const Handle fork = ForkOf(2, root, 70);
  ParkState* own = Add(fork, 2, 70, 60);
  own->window_rows = {{80, 130}};
  own->checkpoints = {130};
  const Coverage coverage = catalogue_.CoverageOf(fork, 200);
  EXPECT_EQ(coverage.window_rows, (std::vector<TokenRange>{{40, 70}, {80, 130}}));
  EXPECT_EQ(coverage.checkpoints, (std::vector<std::uint32_t>{70, 130}));
  EXPECT_EQ(catalogue_.CoverageOf(fork, 129).checkpoints, (std::vector<std::uint32_t>{70}));
  EXPECT_EQ(catalogue_.CoverageOf(root, 200).checkpoints, (std::vector<std::uint32_t>{70, 100}));
}

TEST_F(ManagerCatalogue, PagesBelongToWhoeverStoredThem) {
  const Handle root = Root(1);
  Add(root, 1, 0, 100);
  Add(root, 1, 100, 100);
  Handle owner = kNoHandle;
  EXPECT_EQ(Match({Hash(1, 0), Hash(1, 1), Hash(1, 2), Hash(1, 3)}, &owner), 3u);
  EXPECT_EQ(owner, root);
  EXPECT_EQ(Match({Hash(7, 0)}), 0u);
  const Handle fork = ForkOf(2, root, 100);
  Add(fork, 2, 100, 100);
  // The page that straddles the fork is the fork's own.
  EXPECT_EQ(Match({Hash(1, 0), Hash(2, 1), Hash(2, 2)}, &owner), 3u);
  EXPECT_EQ(owner, fork);
}

TEST_F(ManagerCatalogue, AHashAtAnotherPageNumberIsNoMatch) {
  const Handle root = Root(1);
  Add(root, 1, 0, 64);
  EXPECT_EQ(Match({Hash(9, 0), Hash(1, 0)}), 0u);
}

TEST_F(ManagerCatalogue, ContinuationsAreForksOfThePageNewestFirst) {
  const Handle root = Root(1);
  Add(root, 1, 0, 100);
  const Handle old = ForkOf(2, root, 70);
  const Handle young = ForkOf(3, root, 80);
  const Handle later = ForkOf(4, young, 90);
  ForkOf(5, root, 30);
  catalogue_.Get(old)->attributes.last_used_unix_ms = 10;
  catalogue_.Get(young)->attributes.last_used_unix_ms = 30;
  catalogue_.Get(later)->attributes.last_used_unix_ms = 20;
  EXPECT_EQ(catalogue_.Continuations(root, 64, 16), (std::vector<Handle>{root, young, later, old}));
  EXPECT_EQ(catalogue_.Continuations(root, 64, 2), (std::vector<Handle>{root, young}));
  EXPECT_EQ(catalogue_.Continuations(root, 128, 16), (std::vector<Handle>{root}));
}

TEST_F(ManagerCatalogue, CutTakesWhatStandsOnIt) {
  const Handle root = Root(1);
  Add(root, 1, 0, 100);
  Add(root, 1, 100, 100);
  const Handle low = ForkOf(2, root, 80);
  Add(low, 2, 80, 50);
  const Handle high = ForkOf(3, root, 150);
  Add(high, 3, 150, 50);
  const Handle on_high = ForkOf(4, high, 170);
  Add(on_high, 4, 170, 50);
  EXPECT_EQ(Keys(catalogue_.CutAt(root, 1)), (KeySet{{1, 1}, {3, 0}, {4, 0}}));
  EXPECT_EQ(catalogue_.FindId(Id(3)), kNoHandle);
  EXPECT_EQ(catalogue_.FindId(Id(4)), kNoHandle);
  EXPECT_EQ(catalogue_.FindId(Id(2)), low);
  EXPECT_EQ(catalogue_.Get(root)->tip(), 100u);
  EXPECT_EQ(Match({Hash(1, 0), Hash(1, 1)}), 1u);
  EXPECT_TRUE(catalogue_.RecentlyEvicted(Hash(1, 1)));
  EXPECT_FALSE(catalogue_.RecentlyEvicted(Hash(1, 0)));
  EXPECT_EQ(Keys(catalogue_.CutAt(root, 0)), (KeySet{{1, 0}, {2, 0}}));
  EXPECT_EQ(catalogue_.size(), 0u);
  EXPECT_EQ(catalogue_.index_bytes(), Catalogue().index_bytes());
}

TEST_F(ManagerCatalogue, ParkGoesWhenNoTierHoldsIt) {
  const Handle root = Root(1);
  Add(root, 1, 0, 100, kRam | kDisk);
  Add(root, 1, 100, 100, kRam);
  Add(root, 1, 200, 100, kDisk);
  EXPECT_EQ(catalogue_.TokensIn(root, kRam), 200u);
  EXPECT_EQ(catalogue_.TokensIn(root, kDisk), 100u);
  EXPECT_TRUE(catalogue_.ClearTiers(root, 0, kRam).empty());
  const std::vector<Removal> removals = catalogue_.ClearTiers(root, 1, kRam);
  EXPECT_EQ(Keys(removals), (KeySet{{1, 1}, {1, 2}}));
  EXPECT_EQ(catalogue_.Get(root)->tip(), 100u);
  // A number is not given twice.
  EXPECT_EQ(catalogue_.Get(root)->next_park, 3u);
}

TEST_F(ManagerCatalogue, ParkWithoutTokensGoesAlone) {
  const Handle root = Root(1);
  Add(root, 1, 0, 100);
  Add(root, 1, 100, 0)->checkpoints = {100};
  Add(root, 1, 100, 100);
  EXPECT_EQ(Keys(catalogue_.ClearTiers(root, 1, kRam)), (KeySet{{1, 1}}));
  EXPECT_EQ(catalogue_.Get(root)->tip(), 200u);
}

TEST_F(ManagerCatalogue, ForgetWithoutForksLeavesNothing) {
  const Handle root = Root(1);
  Add(root, 1, 0, 100);
  Add(root, 1, 100, 100);
  std::uint32_t kept = 7;
  const std::vector<Removal> removals = catalogue_.Forget(root, &kept);
  EXPECT_EQ(kept, 0u);
  EXPECT_EQ(Keys(removals), (KeySet{{1, 0}, {1, 1}}));
  EXPECT_TRUE(removals[0].forgotten);
  EXPECT_EQ(catalogue_.size(), 0u);
  EXPECT_EQ(Match({Hash(1, 0)}), 0u);
  EXPECT_FALSE(catalogue_.RecentlyEvicted(Hash(1, 0)));
}

TEST_F(ManagerCatalogue, ForgottenParentKeepsOnlyWhatForksNeed) {
  const Handle root = Root(1);
  Add(root, 1, 0, 300);
  Add(root, 1, 300, 100);
  const Handle fork = ForkOf(2, root, 140);
  Add(fork, 2, 140, 100);
  const Handle other = ForkOf(3, root, 70);
  Add(other, 3, 70, 100);
  std::uint32_t kept = 0;
  EXPECT_EQ(Keys(catalogue_.Forget(root, &kept)), (KeySet{{1, 1}}));
  EXPECT_EQ(kept, 140u);
  EXPECT_EQ(catalogue_.Get(root)->tip(), 140u);
  // Pages past what the forks share are not matched any more.
  EXPECT_EQ(Match({Hash(1, 0), Hash(1, 1), Hash(1, 2), Hash(1, 3)}), 2u);
  EXPECT_EQ(catalogue_.Visible(root, 128), fork);
  EXPECT_EQ(catalogue_.Visible(fork, 128), fork);
  // The longer fork goes: less is kept.
  EXPECT_EQ(Keys(catalogue_.CutAt(fork, 0)), (KeySet{{2, 0}}));
  EXPECT_EQ(catalogue_.Get(root)->tip(), 70u);
  EXPECT_EQ(Match({Hash(1, 0), Hash(1, 1)}), 1u);
  // The last one takes the hidden parent along.
  const std::vector<Removal> removals = catalogue_.CutAt(other, 0);
  EXPECT_EQ(Keys(removals), (KeySet{{1, 0}, {3, 0}}));
  for (const Removal& removal : removals) {
    EXPECT_EQ(removal.forgotten, removal.key.conversation == Id(1));
  }
  EXPECT_EQ(catalogue_.size(), 0u);
}

TEST_F(ManagerCatalogue, AChainOfForgottenParentsGoesWithItsLeaf) {
  const Handle root = Root(1);
  Add(root, 1, 0, 100);
  const Handle middle = ForkOf(2, root, 90);
  Add(middle, 2, 90, 100);
  const Handle leaf = ForkOf(3, middle, 150);
  Add(leaf, 3, 150, 100);
  std::uint32_t kept = 0;
  EXPECT_TRUE(catalogue_.Forget(root, &kept).empty());
  EXPECT_EQ(kept, 90u);
  EXPECT_TRUE(catalogue_.Forget(middle, &kept).empty());
  EXPECT_EQ(kept, 150u);
  EXPECT_EQ(catalogue_.Visible(root, 64), leaf);
  EXPECT_EQ(Keys(catalogue_.Forget(leaf, &kept)), (KeySet{{1, 0}, {2, 0}, {3, 0}}));
  EXPECT_EQ(catalogue_.size(), 0u);
}

TEST_F(ManagerCatalogue, CuttingUnderAForgottenForkIsSafe) {
  const Handle root = Root(1);
  Add(root, 1, 0, 200);
  const Handle middle = ForkOf(2, root, 150);
  Add(middle, 2, 150, 100);
  const Handle leaf = ForkOf(3, middle, 200);
  Add(leaf, 3, 200, 100);
  std::uint32_t kept = 0;
  EXPECT_TRUE(catalogue_.Forget(middle, &kept).empty());
  EXPECT_EQ(Keys(catalogue_.CutAt(root, 0)), (KeySet{{1, 0}, {2, 0}, {3, 0}}));
  EXPECT_EQ(catalogue_.size(), 0u);
}

TEST_F(ManagerCatalogue, HandlesAreUsedAgainButPinsKnowTheirConversation) {
  const Handle root = Root(1);
  Add(root, 1, 0, 100);
  const ParkKey old{Id(1), 0};
  catalogue_.Pin(root, old, 1);
  EXPECT_EQ(catalogue_.Get(root)->parks[0].pins, 1u);
  catalogue_.CutAt(root, 0);
  const Handle again = Root(2);
  EXPECT_EQ(again, root);
  Add(again, 2, 0, 100);
  catalogue_.Pin(again, ParkKey{Id(2), 0}, 1);
  catalogue_.Pin(root, old, -1);
  EXPECT_EQ(catalogue_.Get(again)->parks[0].pins, 1u);
}

TEST_F(ManagerCatalogue, SummaryIsWhatATierStores) {
  const Handle root = Root(1);
  Add(root, 1, 0, 100);
  const Handle fork = ForkOf(2, root, 100);
  ParkState* park = Add(fork, 2, 100, 60);
  park->window_rows = {{120, 160}};
  const auto summary = catalogue_.SummaryOf(ParkKey{Id(2), 0});
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->parent, Id(1));
  EXPECT_EQ(summary->parent_tokens, 100u);
  EXPECT_EQ(summary->first_token, 100u);
  EXPECT_EQ(summary->token_count, 60u);
  EXPECT_EQ(summary->page_hashes, (std::vector<std::uint64_t>{Hash(2, 1)}));
  EXPECT_EQ(summary->window_rows, (std::vector<TokenRange>{{120, 160}}));
  EXPECT_EQ(catalogue_.SummaryOf(ParkKey{Id(2), 1}), std::nullopt);
  EXPECT_EQ(catalogue_.SummaryOf(ParkKey{Id(7), 0}), std::nullopt);
}

}  // namespace
}  // namespace parkade
