// A draft model's rows: the last stage of a park, restored where the draft is the same.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

constexpr std::int64_t kWaitMs = 30000;

// A model of four layers, and a draft of one.
struct Drafted {
  StateLayout main, draft, both;
  StageMap stages;  // the draft's last
  Digest128 identity;

  explicit Drafted(Rig& rig, const std::string& name = "draft a") {
    main = FullModel().layout();
    for (const PlaneKind kind : {PlaneKind::kKey, PlaneKind::kValue}) {
      Plane plane = main.planes[0];
      plane.kind = kind;
      plane.layer = kDraftLayers;
      draft.planes.push_back(plane);
    }
    both = main;
    both.planes.insert(both.planes.end(), draft.planes.begin(), draft.planes.end());
    stages.stages = {{"CPU", {0, 1, 2, 3}}, {DraftDevice(name, "CPU"), {kDraftLayers}}};
    Identity fields;
    fields.Set("weights", "drafted");
    identity = *rig.cache().RegisterIdentity(fields, main);
  }

  std::unique_ptr<FakeEngine> Engine(bool with_draft) const {
    FakeEngineOptions options;
    options.planes = (with_draft ? both : main).planes;
    options.stages = stages;
    if (!with_draft) options.stages.stages.pop_back();
    options.max_tokens = 4096;
    return std::make_unique<FakeEngine>(options);
  }

  void Park(Rig& rig, FakeEngine& engine) const {
    ParkRequest request;
    request.identity = identity;
    request.tokens = engine.tokens();
    ASSERT_TRUE(rig.cache().Park(engine, request).complete);
    rig.Settle();
  }

  // Restores all but the last token of the prompt; returns what the lookup record says.
  LookupRecord Restore(Rig& rig, FakeEngine& engine, const std::vector<Token>& prompt,
                       bool wanted) const {
    LookupRequest request;
    request.identity = identity;
    request.tokens = prompt;
    request.cacheable_tokens = static_cast<std::uint32_t>(prompt.size());
    if (wanted) {
      request.draft = stages.stages.back();
      request.draft_layout = draft;
    }
    auto restore = rig.cache().Lookup(std::move(request));
    EXPECT_TRUE(restore->WaitReady(kWaitMs));
    EXPECT_TRUE(restore->WillRestore());
    EXPECT_EQ(rig.StepToEnd(*restore, engine), Restore::State::kRestored);
    const std::uint32_t restored = restore->restored_tokens();
    engine.SetTokens({prompt.begin(), prompt.begin() + restored});
    EXPECT_EQ(engine.Verify(), absl::OkStatus());
    rig.cache().FinishLookup(std::move(restore), restored);
    return rig.cache().Lookups(1).at(0);
  }
};

RigOptions Durable() {
  RigOptions options;
  options.durable = true;
  return options;
}

TEST(ManagerDraft, IsRestoredWithItsMainModel) {
  Rig rig(Durable());
  Drafted model(rig);
  auto engine = model.Engine(true);
  const std::vector<Token> text = Tokens(1, 600);
  engine->Append(text);
  model.Park(rig, *engine);
  const std::vector<Token> longer = Fork(text, 600, 2, 10);
  auto other = model.Engine(true);
  const LookupRecord record = model.Restore(rig, *other, longer, true);
  EXPECT_EQ(record.reused_tokens, 600u);
  EXPECT_EQ(record.stage_sources.size(), 2u);
  EXPECT_EQ(record.restored_bytes, 600u * 10 * 64);
  // From the fork on, rows are the fork's own: the parent's last extent is cut for the draft, too.
  const std::vector<Token> branch = Fork(text, 300, 3, 200);
  auto forked = model.Engine(true);
  EXPECT_EQ(model.Restore(rig, *forked, branch, true).reused_tokens, 300u);
  forked->Append(absl::MakeConstSpan(branch).subspan(300));
  model.Park(rig, *forked);
  auto again = model.Engine(true);
  EXPECT_EQ(model.Restore(rig, *again, Fork(branch, 500, 4, 10), true).reused_tokens, 500u);
}

TEST(ManagerDraft, NobodyNeedsIt) {
  Rig rig(Durable());
  Drafted model(rig);
  auto engine = model.Engine(true);
  const std::vector<Token> text = Tokens(1, 600);
  engine->Append(text);
  model.Park(rig, *engine);
  const std::vector<Token> longer = Fork(text, 600, 2, 10);
  auto without = model.Engine(false);
  const LookupRecord record = model.Restore(rig, *without, longer, false);
  EXPECT_EQ(record.reused_tokens, 600u);
  EXPECT_EQ(record.stage_sources.size(), 1u);
  EXPECT_EQ(record.restored_bytes, 600u * 8 * 64);
  // Rows of another draft are not given to this one.
  const Drafted another(rig, "draft b");
  auto main_alone = another.Engine(false);
  EXPECT_EQ(another.Restore(rig, *main_alone, longer, true).stage_sources.size(), 1u);
}

TEST(ManagerDraft, WithAGapItIsLeftOut) {
  Rig rig(Durable());
  Drafted model(rig);
  const std::vector<Token> text = Tokens(1, 600);
  auto engine = model.Engine(true);
  engine->Append(absl::MakeConstSpan(text).subspan(0, 300));
  model.Park(rig, *engine);
  auto without = model.Engine(false);
  without->Append(text);
  model.Park(rig, *without);
  auto main_alone = model.Engine(false);
  const LookupRecord record = model.Restore(rig, *main_alone, Fork(text, 600, 2, 10), true);
  EXPECT_EQ(record.reused_tokens, 600u);
  EXPECT_EQ(record.stage_sources.size(), 1u);
  // Up to where it goes it is of use.
  auto both = model.Engine(true);
  EXPECT_EQ(model.Restore(rig, *both, Fork(text, 300, 3, 10), true).stage_sources.size(), 2u);
}

}  // namespace
}  // namespace parkade::test
