// parkade.h with planes in the memory of cards: those of the program's runtime.

#include <gtest/gtest.h>

#include <random>

#include "tests/support/copier_side.h"
#include "tests/support/environment.h"
#include "tests/unit/capi_engine.h"

namespace parkade::test {
namespace {

class CapiCuda : public testing::TestWithParam<CopierKind> {
 protected:
  void SetUp() override {
    const std::uint64_t seed = FromEnvironment("PARKADE_SEED", std::random_device()());
    std::printf("PARKADE_SEED=%llu\n", static_cast<unsigned long long>(seed));
    side_ = GetParam().make(seed);
    if (!side_->unavailable().empty()) GTEST_SKIP() << side_->unavailable();
    parkade_cache_options options;
    parkade_cache_options_init(&options, sizeof(options));
    options.ram_mib = 128;
    options.ram_min_free_mib = 0;
    options.min_gain_tokens = 1;
    ASSERT_EQ(parkade_open(&options, &cache_), PARKADE_OK) << parkade_last_error();
  }
  void TearDown() override { parkade_close(cache_); }

  // Full, window and state planes; some of them in pages.
  CEngineOptions On(Layers stages) {
    CEngineOptions options;
    options.model = MakeCModel(4, 2, 1);
    options.stages = std::move(stages);
    options.window_rows = 256;
    options.paged = {1, 2, 5};
    options.side = side_.get();
    for (std::size_t stage = 0; stage < options.stages.size(); ++stage) {
      options.cards.push_back(static_cast<int>(stage) % side_->devices());
    }
    return options;
  }

  // All of `tokens`, from the RAM tier, by a prompt that goes on after them.
  static void ExpectComesBack(CEngine& engine, const std::vector<std::int32_t>& tokens) {
    std::vector<std::int32_t> prompt = tokens;
    prompt.push_back(7);
    EXPECT_EQ(engine.Restore(prompt).hit_tokens[PARKADE_RAM], tokens.size());
  }
  void ExpectIsParkedAndComesBack(CEngine& engine, const std::vector<std::int32_t>& tokens) {
    engine.Decode(tokens);
    engine.ParkAll(tokens);
    EXPECT_EQ(parkade_drain(cache_, 30000), PARKADE_OK) << parkade_last_error();
    engine.Wipe();
    ExpectComesBack(engine, tokens);
  }

  parkade_stats Stats() {
    parkade_stats stats = {};
    stats.struct_size = sizeof(stats);
    EXPECT_EQ(parkade_get_stats(cache_, &stats), PARKADE_OK) << parkade_last_error();
    return stats;
  }

  std::unique_ptr<CopierSide> side_;
  parkade_cache* cache_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Kinds, CapiCuda, testing::ValuesIn(CopierKinds()),
                         [](const auto& info) { return info.param.name; });

TEST_P(CapiCuda, WhatIsParkedFromCardsComesBackToThem) {
  const auto tokens = CTokens(1, 1500);
  {
    CEngine engine(cache_, On({{0, 1, 2, 3}, {4, 5, 6}}));
    ExpectIsParkedAndComesBack(engine, tokens);
  }
  // Other cards, other pages.
  CEngineOptions other = On({{0}, {1, 2, 3, 4, 5, 6}});
  other.paged = {0, 3};
  CEngine engine(cache_, other);
  ExpectComesBack(engine, tokens);
}

TEST_P(CapiCuda, BuffersAreLockedFromTheFirstCardOn) {
  EXPECT_EQ(Stats().page_locked_bytes, 0u);
  CEngine engine(cache_, On({{0, 1, 2, 3, 4, 5, 6}}));
  // It comes behind the call.
  for (int turn = 0; turn < 20000 && Stats().page_locked_bytes == 0; ++turn) {
    std::vector<std::int32_t> other = CTokens(100 + turn, 100);
    engine.Decode(other);
    engine.ParkAll(other);
  }
  EXPECT_GT(Stats().page_locked_bytes, 0u);
  EXPECT_LE(Stats().page_locked_bytes, 128u << 20);
  ExpectIsParkedAndComesBack(engine, CTokens(2, 1000));
}

TEST_P(CapiCuda, ACardThatIsNotThereIsAnError) {
  CEngine engine(cache_, {MakeCModel(4)});
  const std::uint16_t layers[] = {0, 1, 2, 3};
  parkade_stage stage = {};
  stage.layers = layers;
  stage.layer_count = 4;
  stage.device = PARKADE_CUDA;
  stage.ordinal = side_->devices();
  parkade_sequence_options options = {};
  options.struct_size = sizeof(options);
  options.stages = &stage;
  options.stage_count = 1;
  parkade_sequence* sequence = nullptr;
  EXPECT_EQ(parkade_sequence_open(engine.model(), &options, &sequence), PARKADE_UNAVAILABLE);
  EXPECT_EQ(sequence, nullptr);
  EXPECT_EQ(Stats().page_locked_bytes, 0u);
}

}  // namespace
}  // namespace parkade::test
