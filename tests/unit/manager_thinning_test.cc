// Checkpoints that are not a conversation's newest take at most a quarter of a tier.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "tests/unit/manager_rig.h"
#include "tiers/disk/disk_tier.h"

namespace parkade::test {
namespace {

constexpr std::uint64_t kBudget = 128ull << 20;
constexpr std::uint64_t kShare = kBudget / 4;

RigOptions LargeStates(bool ram) {
  RigModel model = StateModel();
  model.state_bytes = 1u << 20;
  RigOptions options(model);
  options.ram = ram;
  options.disk = true;
  options.durable_budget_bytes = kBudget;
  return options;
}

std::uint64_t StateBytes(const Rig&, const RigModel& model) {
  Stage all;
  for (const Plane& plane : model.layout().planes) {
    if (all.layers.empty() || all.layers.back() != plane.layer) all.layers.push_back(plane.layer);
  }
  std::sort(all.layers.begin(), all.layers.end());
  all.layers.erase(std::unique(all.layers.begin(), all.layers.end()), all.layers.end());
  return GroupRowBytes(model.layout(), all, RowGroup::kState);
}

struct Held {
  std::uint64_t others = 0;  // bytes
  std::map<ConversationId, std::set<std::uint32_t>> positions;
};

Held CheckpointsIn(Rig& rig, TierKind tier) {
  Held held;
  for (const ConversationInfo& info : rig.cache().List(1000, ConversationId())) {
    const ConversationInfo detail = *rig.cache().Get(info.id);
    std::uint32_t newest = 0;
    for (const auto& park : detail.parks) {
      for (const std::uint32_t at : park.checkpoints) newest = std::max(newest, at);
    }
    for (const auto& park : detail.parks) {
      if (std::find(park.tiers.begin(), park.tiers.end(), tier) == park.tiers.end()) continue;
      for (const std::uint32_t at : park.checkpoints) {
        EXPECT_TRUE(park.tokens.empty()) << "a checkpoint stands alone";
        EXPECT_TRUE(held.positions[info.id].insert(at).second) << at << " is stored twice";
        if (at != newest) held.others += park.bytes;
      }
    }
  }
  return held;
}

// Parks `text` with a checkpoint at each of the positions and at its end.
void ParkAt(Rig& rig, const std::vector<Token>& text, std::vector<std::uint32_t> positions) {
  auto engine = rig.MakeEngine();
  positions.push_back(static_cast<std::uint32_t>(text.size()));
  std::uint32_t from = static_cast<std::uint32_t>(rig.Look(text).usable_tokens);
  // What is there is gone on with.
  if (from > 0) rig.Run(*engine, {text.begin(), text.begin() + from + 1});
  for (const std::uint32_t to : positions) {
    const auto at = static_cast<std::uint32_t>(engine->tokens().size());
    if (to <= at) continue;
    engine->Append(absl::MakeConstSpan(text).subspan(at, to - at));
    rig.Park(*engine);
  }
}

std::uint64_t Superseded(Rig& rig, TierKind tier) {
  std::uint64_t bytes = 0;
  for (const auto& eviction : rig.sink().events().evictions) {
    if (eviction.tier != tier) continue;
    EXPECT_EQ(eviction.reason, EvictReason::kSuperseded);
    bytes += eviction.bytes;
  }
  return bytes;
}

TEST(ManagerThinning, TheShareHoldsAndTheBytesComeBack) {
  for (const bool ram : {false, true}) {
    const RigOptions options = LargeStates(ram);
    Rig rig(options);
    const std::uint64_t state = StateBytes(rig, options.model);
    ASSERT_EQ(state, 2u << 20);
    std::uint64_t most_physical = 0;
    for (std::uint64_t chat = 0; chat < 12; ++chat) {
      ParkAt(rig, Tokens(chat, 700), {300, 512, 600});
      EXPECT_LE(CheckpointsIn(rig, TierKind::kDisk).others, kShare);
      most_physical = std::max(most_physical, rig.durable().usage().physical_bytes);
    }
    // 48 of 2 MiB were parked: 12 newest, and so many others as the share has room for, are left.
    const Held held = CheckpointsIn(rig, TierKind::kDisk);
    EXPECT_GT(held.others, kShare - 3 * state);
    EXPECT_EQ(Superseded(rig, TierKind::kDisk), (48 - 12) * state - held.others);
    EXPECT_LT(rig.durable().usage().physical_bytes, 12 * state + kShare + (24u << 20));
    EXPECT_LT(most_physical, kBudget);
    for (std::uint64_t chat = 0; chat < 12; ++chat) {
      auto engine = rig.MakeEngine();
      EXPECT_EQ(rig.Run(*engine, Fork(Tokens(chat, 700), 700, 9, 5)).record.reused_tokens, 700u);
    }
    // In the middle of a prompt next to none is left, of the rest those of the last chats.
    const auto middles = std::count_if(held.positions.begin(), held.positions.end(),
                                       [](const auto& each) { return each.second.contains(512); });
    EXPECT_LE(middles, 2);
    EXPECT_EQ(rig.Look(Fork(Tokens(11, 700), 650, 9, 5)).usable_tokens, 600u);
    if (!ram) {
      const LookupRecord lost = rig.Look(Fork(Tokens(0, 700), 650, 9, 5));
      EXPECT_EQ(lost.usable_tokens, 0u);
      EXPECT_EQ(Miss(lost, MissReason::kCheckpoint), 650u);
    }
    rig.Settle();
    rig.Close();
    rig.Open();
    EXPECT_EQ(CheckpointsIn(rig, TierKind::kDisk).positions, held.positions);
    auto engine = rig.MakeEngine();
    EXPECT_EQ(Hit(rig.Run(*engine, Fork(Tokens(3, 700), 700, 9, 5)).record, Source::kDisk), 700u);
  }
}

TEST(ManagerThinning, WhatWasDroppedIsGoneForVerifyAndRebuild) {
  Rig rig(LargeStates(false));
  for (std::uint64_t chat = 0; chat < 12; ++chat) ParkAt(rig, Tokens(chat, 700), {300, 512, 600});
  EXPECT_GT(Superseded(rig, TierKind::kDisk), 0u);
  const auto positions = CheckpointsIn(rig, TierKind::kDisk).positions;
  rig.Settle();
  rig.Close();
  const auto report = VerifyDiskTier(rig.folder(), false, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->findings, std::vector<std::string>{});
  std::filesystem::remove_all(rig.folder() + "/catalogue");
  rig.Open();
  EXPECT_EQ(CheckpointsIn(rig, TierKind::kDisk).positions, positions);
  // Nothing stands on a checkpoint: the segment of one that is lost takes nothing along.
  rig.Close();
  std::size_t lost = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(rig.folder())) {
    if (lost > 0 || !file.is_regular_file() || file.file_size() < (2u << 20)) continue;
    if (file.path().extension() != ".segment") continue;
    lost += std::filesystem::remove(file.path()) ? 1 : 0;
  }
  ASSERT_EQ(lost, 1u);
  rig.Open();
  std::size_t before = 0;
  std::size_t after = 0;
  for (const auto& [id, at] : positions) before += at.size();
  for (const auto& [id, at] : CheckpointsIn(rig, TierKind::kDisk).positions) after += at.size();
  EXPECT_EQ(after, before - 1);
  for (std::uint64_t chat = 0; chat < 12; ++chat) {
    EXPECT_EQ(rig.Look(Fork(Tokens(chat, 700), 700, 9, 5)).matched_tokens, 700u);
  }
}

TEST(ManagerThinning, TheShareOfRamHoldsAlsoForWhatIsPromoted) {
  RigOptions options = LargeStates(true);
  options.cache.ram_budget_bytes = 96ull << 20;
  options.durable_budget_bytes = 1ull << 30;
  Rig rig(options);
  const std::uint64_t share = rig.ram().usage().budget_bytes / 4;
  for (std::uint64_t chat = 0; chat < 8; ++chat) ParkAt(rig, Tokens(chat, 700), {200, 300, 400});
  EXPECT_LE(CheckpointsIn(rig, TierKind::kRam).others, share);
  EXPECT_GT(Superseded(rig, TierKind::kRam), 0u);
  EXPECT_EQ(Superseded(rig, TierKind::kDisk), 0u);
  for (std::uint64_t chat = 0; chat < 8; ++chat) {
    for (const std::uint32_t at : {200u, 300u, 400u}) {
      auto engine = rig.MakeEngine();
      EXPECT_EQ(rig.Run(*engine, Fork(Tokens(chat, 700), at, 9, 5)).record.reused_tokens, at);
    }
  }
  // The next park, or the housekeeping thread, looks again.
  ParkAt(rig, Tokens(100, 700), {});
  EXPECT_LE(CheckpointsIn(rig, TierKind::kRam).others, share);
}

TEST(ManagerThinning, WhatForksShareIsAsYoungAsTheYoungestOfThem) {
  Rig rig(LargeStates(false));
  const std::vector<Token> system = Tokens(1, 256);
  for (std::uint64_t chat = 0; chat < 12; ++chat) {
    ParkAt(rig, Fork(system, 256, 100 + chat, 400), {256, 400, 500});
  }
  EXPECT_GT(Superseded(rig, TierKind::kDisk), 0u);
  EXPECT_EQ(rig.Look(Fork(system, 256, 999, 50)).usable_tokens, 256u);
}

TEST(ManagerThinning, WhatARestoreReadsStays) {
  Rig rig(LargeStates(false));
  ParkAt(rig, Tokens(1, 700), {300});
  auto restore = rig.cache().Lookup(rig.Request(Fork(Tokens(1, 700), 400, 9, 5)));
  ASSERT_TRUE(restore->WaitReady(30000));
  EXPECT_EQ(restore->restored_tokens(), 300u);
  for (std::uint64_t chat = 2; chat < 12; ++chat) ParkAt(rig, Tokens(chat, 700), {300, 400});
  EXPECT_GT(Superseded(rig, TierKind::kDisk), 0u);
  auto engine = rig.MakeEngine();
  EXPECT_EQ(rig.StepToEnd(*restore, *engine), Restore::State::kRestored);
  rig.cache().FinishLookup(std::move(restore), 300);
}

TEST(ManagerThinning, ASavedSessionKeepsItsState) {
  Rig rig(LargeStates(false));
  auto engine = rig.MakeEngine();
  engine->Append(Tokens(1, 300));
  const ConversationId id = rig.Park(*engine).conversation;
  const auto saved = rig.cache().SaveSession(id, 300, "kept", 30000);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_GT(saved->bytes, 2u << 20);
  engine->Append(Tokens(2, 300));
  rig.Park(*engine);
  for (std::uint64_t chat = 3; chat < 14; ++chat) ParkAt(rig, Tokens(chat, 700), {300, 400});
  EXPECT_GT(Superseded(rig, TierKind::kDisk), 0u);
  EXPECT_EQ(rig.Look(Fork(Tokens(1, 300), 300, 9, 50)).usable_tokens, 300u);
}

TEST(ManagerThinning, ALowerBudgetIsHonouredAtOnce) {
  Rig rig(LargeStates(false));
  for (std::uint64_t chat = 0; chat < 6; ++chat) ParkAt(rig, Tokens(chat, 700), {300, 400});
  EXPECT_EQ(CheckpointsIn(rig, TierKind::kDisk).others, 12 * (2u << 20));
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kDisk, 88ull << 20).ok());
  EXPECT_LE(CheckpointsIn(rig, TierKind::kDisk).others, 22ull << 20);
}

TEST(ManagerThinning, ATierThatCannotRemoveIsReported) {
  Rig rig(LargeStates(false));
  for (std::uint64_t chat = 0; chat < 6; ++chat) ParkAt(rig, Tokens(chat, 700), {300, 400});
  Fault fault;
  fault.call = TierCall::kRemove;
  fault.times = 1;
  rig.durable().AddFault(fault);
  ASSERT_TRUE(rig.cache().SetBudget(TierKind::kDisk, 88ull << 20).ok());
  const auto errors = rig.sink().events().errors;
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors.front().second.substr(0, 8), "remove: ");
  for (std::uint64_t chat = 0; chat < 6; ++chat) {
    auto engine = rig.MakeEngine();
    EXPECT_EQ(rig.Run(*engine, Fork(Tokens(chat, 700), 700, 9, 5)).record.reused_tokens, 700u);
  }
  EXPECT_EQ(rig.sink().events().corrupt.size(), 0u);
}

// Window rows of tokens that are there already lie with those tokens.
TEST(ManagerThinning, WindowRowsAreStoredOnceATokenAndFoundByEveryBranch) {
  RigOptions options(WindowModel());
  options.durable = true;
  Rig rig(options);
  const std::vector<Token> trunk = Tokens(1, 1000);
  auto engine = rig.MakeEngine();
  engine->Append(trunk);
  rig.Park(*engine);
  for (std::uint64_t branch = 0; branch < 4; ++branch) {
    const std::vector<Token> text = Fork(trunk, 500, 10 + branch, 40);
    auto other = rig.MakeEngine();
    const Restored found = rig.Run(*other, text);
    EXPECT_EQ(found.record.reused_tokens, branch == 0 ? 0u : 500u);
    rig.Park(*other);
    std::uint64_t rows = 0;
    std::uint64_t tokens = 0;
    for (const ConversationInfo& info : rig.cache().List(1000, ConversationId())) {
      const ConversationInfo detail = *rig.cache().Get(info.id);
      rows += detail.window_rows;
      EXPECT_EQ(detail.window_bytes, detail.window_rows * 4 * 64);
      EXPECT_EQ(detail.checkpoint_bytes, 0u);
      for (const auto& park : detail.parks) tokens += park.tokens.size();
    }
    EXPECT_LE(rows, tokens);
  }
}

TEST(ManagerThinning, TheBoundaryIsNamed) {
  Rig rig(RigOptions{StateModel()});
  const std::vector<Token> text = Tokens(1, 900);
  ParkAt(rig, text, {200, 400, 512, 600});
  const auto kind_at = [&](std::uint32_t at, std::uint32_t held) {
    LookupRequest request = rig.Request(Fork(text, at, 2, 5), held);
    request.user_starts = {200, 400, 850};
    auto engine = rig.MakeEngine();
    auto restore = rig.cache().Lookup(std::move(request));
    EXPECT_TRUE(restore->WaitReady(30000));
    std::uint32_t reused = held;
    if (restore->WillRestore()) {
      EXPECT_EQ(rig.StepToEnd(*restore, *engine), Restore::State::kRestored);
      reused = restore->restored_tokens();
    }
    rig.cache().FinishLookup(std::move(restore), reused);
    const LookupRecord record = rig.cache().Lookups(1).at(0);
    EXPECT_EQ(record.boundary_tokens, reused);
    return record.boundary_kind;
  };
  EXPECT_EQ(kind_at(100, 0), BoundaryKind::kNone);
  EXPECT_EQ(kind_at(300, 0), BoundaryKind::kSystem);
  EXPECT_EQ(kind_at(410, 0), BoundaryKind::kUser);
  EXPECT_EQ(kind_at(599, 0), BoundaryKind::kBetween);
  EXPECT_EQ(kind_at(890, 0), BoundaryKind::kTurn);
  EXPECT_EQ(kind_at(890, 800), BoundaryKind::kSlot);
  for (const RigModel& model : {FullModel(), WindowModel()}) {
    Rig other{RigOptions{model}};
    ParkAt(other, text, {});
    auto engine = other.MakeEngine();
    EXPECT_EQ(other.Run(*engine, Fork(text, 880, 2, 5)).record.boundary_kind,
              model.window_layers > 0 ? BoundaryKind::kWindow : BoundaryKind::kRow);
  }
}

}  // namespace
}  // namespace parkade::test
