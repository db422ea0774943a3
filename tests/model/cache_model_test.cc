// Random turns, forks, edits, restores, evictions, forgets and restarts against a naive model: the
// list of all texts that were ever parked. After every restore each row of the engine is checked.
// PARKADE_SEED repeats a run, PARKADE_STEPS makes it longer.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <random>
#include <string>

#include "tests/model/random_prompt.h"
#include "tests/support/environment.h"
#include "tests/unit/manager_rig.h"

namespace parkade::test {
namespace {

std::uint64_t Seed() {
  static const std::uint64_t seed = FromEnvironment("PARKADE_SEED", std::random_device()());
  return seed;
}

struct Setup {
  const char* name;
  RigModel (*model)();
  bool ram;
  bool durable;
  bool disk = false;
  bool reopens() const { return durable || disk; }
};

void PrintTo(const Setup& setup, std::ostream* out) { *out << setup.name; }

class CacheModel : public ::testing::TestWithParam<Setup> {
 protected:
  CacheModel() : random_(Seed()), rig_(Options()) {
    std::printf("PARKADE_SEED=%llu\n", static_cast<unsigned long long>(Seed()));
    for (const std::vector<int>& shares :
         {std::vector<int>{1}, std::vector<int>{1, 1}, std::vector<int>{2, 1, 1}}) {
      engines_.push_back(rig_.MakeEngine(shares));
    }
  }

  static RigOptions Options() {
    RigOptions options(GetParam().model());
    options.ram = GetParam().ram;
    options.durable = GetParam().durable;
    options.disk = GetParam().disk;
    options.cache.capture_buffer_bytes = 2ull << 20;
    options.cache.ram_budget_bytes = options.ram ? kRamBudget : 0;
    return options;
  }

  std::uint32_t Below(std::uint32_t count) {
    return std::uniform_int_distribution<std::uint32_t>(0, count - 1)(random_);
  }
  bool Chance(std::uint32_t percent) { return Below(100) < percent; }
  FakeEngine& Engine() { return *engines_[Below(static_cast<std::uint32_t>(engines_.size()))]; }

  static std::uint32_t Common(const std::vector<Token>& a, const std::vector<Token>& b) {
    const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    return static_cast<std::uint32_t>(ends.first - a.begin());
  }
  // Longest prefix of the prompt that anything parked begins with; less than a page counts not.
  std::uint32_t Known(const std::vector<Token>& prompt) const {
    std::uint32_t best = 0;
    for (const auto& text : parked_) best = std::max(best, Common(prompt, text));
    return best < kPageTokens ? 0 : best;
  }

  std::vector<Token> MakePrompt() { return RandomPrompt(random_, parked_); }

  void Turn() {
    FakeEngine& engine = Engine();
    const std::vector<Token> prompt = MakePrompt();
    std::uint32_t held = Common(engine.tokens(), prompt);
    held = std::min<std::uint32_t>(held, static_cast<std::uint32_t>(prompt.size()) - 1);
    if (Chance(30)) held = 0;
    const Restored restored = rig_.Run(engine, prompt, held);
    const std::uint32_t known = Known(prompt);
    ASSERT_LE(restored.record.matched_tokens, std::max(known, held));
    if (complete_) {
      ASSERT_EQ(restored.record.matched_tokens, std::max(known, held));
    }
    if (Chance(85)) Park(engine);
  }

  void Park(FakeEngine& engine) {
    const ParkOutcome outcome = rig_.Park(engine, Chance(80));
    parked_.push_back(engine.tokens());
    if (outcome.captured_tokens < engine.tokens().size() && engine.tokens().size() >= 32) {
      complete_ = false;
    }
  }

  // Steps of one conversation that are parked while the writer is busy: all but the first become
  // one park. Looked up in the middle and in the end.
  void Burst() {
    FakeEngine& engine = *engines_[Below(2)];  // the last one is Reread's
    const std::vector<Token> prompt = MakePrompt();
    rig_.Run(engine, prompt, 0);
    if (engine.tokens().size() < kPageTokens) return;  // found by pages
    const std::size_t before = rig_.sink().events().parks.size();
    {
      StoreGate gate(rig_.tiers().front());
      bool captured = true;
      std::optional<ParkKey> held;
      for (int step = 0; step < 4; ++step) {
        if (step > 0) engine.Append(Tokens(random_(), 1 + Below(80)));
        const ParkOutcome outcome = rig_.ParkOnce(engine, Chance(80));
        captured =
            captured && outcome.complete && outcome.captured_tokens == engine.tokens().size();
        if (captured && step == 0 && rig_.cache().Queue().spill_queue_bytes > 0) {
          gate.WaitForWriter();
          held = gate.held();
        }
        if (step == 2) Reread(engine.tokens());
      }
      // Where a step was begun alone, the others wait for it together; their states stay alone.
      std::vector<ParkEvent> parks = rig_.sink().events().parks;
      parks.erase(parks.begin(), parks.begin() + static_cast<std::ptrdiff_t>(before));
      // Where a promotion came to the gate first, the writer went on.
      const bool gated = std::any_of(parks.begin(), parks.end(),
                                     [&held](const ParkEvent& park) { return held == park.key; });
      std::erase_if(parks, [](const ParkEvent& park) { return park.tokens == 0; });
      if (captured && parks.size() == 4 && gated) {
        EXPECT_EQ(parks[2].key, parks[1].key);
        EXPECT_EQ(parks[3].key, parks[1].key);
        ++collapses_;
      }
      Reread(engine.tokens());
    }
    Park(engine);
  }

  // Another sequence goes on where `text` stops; every row is checked.
  void Reread(const std::vector<Token>& text) {
    FakeEngine& other = *engines_.back();
    const std::vector<Token> prompt = Fork(text, text.size(), random_(), 3);
    const std::uint32_t held = Common(other.tokens(), prompt);
    rig_.Run(other, prompt, std::min<std::uint32_t>(held, prompt.size() - 1));
  }

  void Abandon() {
    FakeEngine& engine = Engine();
    std::unique_ptr<Restore> restore = rig_.cache().Lookup(rig_.Request(MakePrompt()));
    if (Chance(30)) return;
    restore->WaitReady(30000);
    if (Chance(30) || !restore->WillRestore()) return;
    restore->Step(engine, 0);
    engine.Clear();
  }

  std::optional<ConversationInfo> Any() {
    const std::vector<ConversationInfo> list = rig_.cache().List(1000, ConversationId());
    if (list.empty()) return std::nullopt;
    return list[Below(static_cast<std::uint32_t>(list.size()))];
  }

  void Shrink() {
    complete_ = false;
    const TierKind kind = Chance(50) ? TierKind::kRam : TierKind::kDisk;
    std::uint64_t used = 0;
    for (const TierInfo& tier : rig_.cache().Tiers()) {
      if (tier.kind == kind) used = tier.usage.used_bytes;
    }
    // Of RAM's budget buffers and index are taken first.
    const std::uint64_t less = Below(static_cast<std::uint32_t>(used / 2 + 1));
    (void)rig_.cache().SetBudget(kind, kind == TierKind::kRam ? kRamBudget / 100 : used - less);
    (void)rig_.cache().SetBudget(kind, kind == TierKind::kRam ? kRamBudget : 1ull << 30);
  }

  void Step() {
    const std::uint32_t what = Below(100);
    if (what < 62) return Turn();
    if (what < 70) return Burst();
    if (what < 80) return Abandon();
    if (what < 84) return Shrink();
    if (what < 90 && GetParam().reopens()) {
      rig_.Settle();
      rig_.Close();
      rig_.Open();
      return;
    }
    const std::optional<ConversationInfo> some = Any();
    if (!some.has_value()) return;
    if (what < 94) {
      complete_ = false;
      EXPECT_TRUE(rig_.cache().Forget(some->id).ok());
      EXPECT_FALSE(rig_.cache().Get(some->id).has_value());
    } else {
      (void)rig_.cache().Pin(some->id, !some->pinned, "name");
    }
  }

  static constexpr std::uint64_t kRamBudget = 128ull << 20;

  std::mt19937_64 random_;
  Rig rig_;
  std::vector<std::unique_ptr<FakeEngine>> engines_;
  std::vector<std::vector<Token>> parked_;
  int collapses_ = 0;     // bursts of which the later steps became one park
  bool complete_ = true;  // nothing that was parked has been given up since
};

TEST_P(CacheModel, RandomOperations) {
  const std::uint64_t steps = FromEnvironment("PARKADE_STEPS", 200);
  for (std::uint64_t step = 0; step < steps && !HasFailure(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    Step();
  }
  rig_.ExpectNothingLeaks();
}

TEST_P(CacheModel, WhileNothingIsGivenUpEveryPrefixIsFound) {
  for (int turn = 0; turn < 60 && !HasFailure(); ++turn) {
    SCOPED_TRACE("turn " + std::to_string(turn));
    if (turn % 6 == 5) {
      Burst();
    } else {
      Turn();
    }
    if (GetParam().reopens() && turn % 20 == 19) {
      rig_.Settle();
      rig_.Close();
      rig_.Open();
    }
    ASSERT_TRUE(complete_);
  }
  EXPECT_GT(collapses_, 0);
  rig_.ExpectNothingLeaks();
}

INSTANTIATE_TEST_SUITE_P(All, CacheModel,
                         ::testing::Values(Setup{"FullRam", FullModel, true, false},
                                           Setup{"FullBoth", FullModel, true, true},
                                           Setup{"FullDurable", FullModel, false, true},
                                           Setup{"WindowRam", WindowModel, true, false},
                                           Setup{"WindowBoth", WindowModel, true, true},
                                           Setup{"StateBoth", StateModel, true, true},
                                           Setup{"MixedRam", MixedModel, true, false},
                                           Setup{"MixedBoth", MixedModel, true, true},
                                           Setup{"FullDisk", FullModel, false, false, true},
                                           Setup{"MixedRamDisk", MixedModel, true, false, true}),
                         [](const ::testing::TestParamInfo<Setup>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace parkade::test
