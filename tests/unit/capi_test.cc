// parkade.h from park to restore, on rows whose every byte is known.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/support/test_root.h"
#include "tests/unit/capi_engine.h"

namespace parkade::test {
namespace {

std::vector<std::int32_t> With(std::vector<std::int32_t> tokens,
                               const std::vector<std::int32_t>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

class CapiTest : public ::testing::Test {
 protected:
  CapiTest() { Open(); }
  ~CapiTest() override { parkade_close(cache_); }

  void Open(const std::string& directory = "") {
    parkade_cache_options options;
    parkade_cache_options_init(&options, sizeof(options));
    options.ram_mib = 128;
    options.ram_min_free_mib = 0;
    options.min_gain_tokens = 1;
    options.disk_directory = directory.c_str();
    options.disk_mib = 256;
    options.disk_min_free_mib = 0;
    options.log = [](void* user, parkade_log_level level, const char* line) {
      auto* test = static_cast<CapiTest*>(user);
      absl::MutexLock lock(&test->mu_);
      if (level >= PARKADE_LOG_WARNING) test->warnings_ += std::string(line) + "\n";
    };
    options.log_user = this;
    ASSERT_EQ(parkade_open(&options, &cache_), PARKADE_OK) << parkade_last_error();
  }

  void Drain() { EXPECT_EQ(parkade_drain(cache_, 30000), PARKADE_OK) << parkade_last_error(); }

  parkade_stats Stats() {
    parkade_stats stats = {};
    stats.struct_size = sizeof(stats);
    EXPECT_EQ(parkade_get_stats(cache_, &stats), PARKADE_OK) << parkade_last_error();
    return stats;
  }

  // Of all conversations, those that are durable.
  std::uint64_t ListedTokens() {
    std::uint64_t tokens = 0;
    const auto add = [](void* user, const parkade_conversation* conversation) {
      *static_cast<std::uint64_t*>(user) += conversation->durable_tokens;
      return true;
    };
    EXPECT_EQ(parkade_list(cache_, 0, add, &tokens), PARKADE_OK) << parkade_last_error();
    return tokens;
  }

  std::string warnings() {
    absl::MutexLock lock(&mu_);
    return warnings_;
  }

  // A restore of which the plan is ready.
  parkade_restore* Planned(CEngine* engine, const std::vector<std::int32_t>& prompt,
                           parkade_restore_info* info) {
    parkade_restore* restore = engine->Lookup(prompt);
    *info = {};
    info->struct_size = sizeof(*info);
    EXPECT_EQ(parkade_restore_plan(restore, 30000, info), PARKADE_OK) << parkade_last_error();
    return restore;
  }

  parkade_cache* cache_ = nullptr;
  absl::Mutex mu_;
  std::string warnings_ ABSL_GUARDED_BY(mu_);
};

TEST_F(CapiTest, WhatIsParkedComesBack) {
  CEngine engine(cache_, {MakeCModel(4)});
  const auto tokens = CTokens(1, 700);
  engine.Decode(tokens);
  const std::string id = engine.ParkAll(tokens);
  engine.Wipe();
  Drain();
  const parkade_lookup_result result = engine.Restore(With(tokens, {7}));
  EXPECT_EQ(result.prompt_tokens, 701u);
  EXPECT_EQ(result.matched_tokens, 700u);
  EXPECT_EQ(result.hit_tokens[PARKADE_RAM], 700u);
  EXPECT_EQ(result.restored_bytes, 700u * 4 * (64 + 48));
  EXPECT_STREQ(result.miss_reason, "new");
  const parkade_stats stats = Stats();
  EXPECT_EQ(stats.lookups, 1u);
  EXPECT_EQ(stats.prompt_tokens, 701u);
  EXPECT_EQ(stats.hit_tokens[PARKADE_RAM], 700u);
  EXPECT_EQ(stats.miss_tokens, 1u);
  EXPECT_EQ(stats.restored_bytes, result.restored_bytes);
  EXPECT_EQ(stats.parked_bytes, result.restored_bytes);
  EXPECT_EQ(stats.skipped_tokens, 0u);
  EXPECT_GE(stats.used_bytes[PARKADE_RAM], stats.parked_bytes);
  EXPECT_GT(stats.budget_bytes[PARKADE_RAM], stats.used_bytes[PARKADE_RAM]);
  EXPECT_EQ(stats.queue_bytes, 0u);
  EXPECT_EQ(warnings(), "");
}

// The next turn adds its own rows to what is there, under the same id.
TEST_F(CapiTest, NextTurnParksOnlyWhatIsNew) {
  CEngine engine(cache_, {MakeCModel(2)});
  const auto first = CTokens(1, 300);
  const auto both = With(first, CTokens(2, 50));
  engine.Decode(both);
  const std::string id = engine.ParkAll(first);
  EXPECT_EQ(engine.ParkAll(both), id);
  EXPECT_EQ(engine.ParkAll(both), id);
  EXPECT_EQ(Stats().parked_bytes, 350u * 2 * (64 + 48));
}

TEST_F(CapiTest, ShortOnesAreNotParked) {
  CEngine engine(cache_, {MakeCModel(1)});
  const auto tokens = CTokens(1, 63);
  engine.Decode(tokens);
  parkade_park_result result;
  ASSERT_EQ(engine.Park(tokens, &result), PARKADE_OK);
  EXPECT_STREQ(result.conversation, "");
  EXPECT_EQ(result.captured_tokens, 0u);
  EXPECT_EQ(Stats().skipped_tokens, 63u);
}

TEST_F(CapiTest, DifferingFieldOrPlanesNeverMeet) {
  const auto tokens = CTokens(1, 300);
  CEngine engine(cache_, {MakeCModel(2)});
  engine.Decode(tokens);
  engine.ParkAll(tokens);
  CEngineOptions field = {MakeCModel(2)};
  field.model.weights = "b";
  CEngine other(cache_, field);
  const parkade_lookup_result result = other.Restore(With(tokens, {7}));
  EXPECT_EQ(result.reused_tokens, 0u);
  EXPECT_STREQ(result.miss_reason, "identity");
  CEngineOptions planes = {MakeCModel(2)};
  planes.model.planes[0].element_type = 2;
  CEngine quantised(cache_, planes);
  EXPECT_EQ(quantised.Restore(With(tokens, {7})).reused_tokens, 0u);
  EXPECT_EQ(engine.Restore(With(tokens, {7})).reused_tokens, 300u);
}

TEST_F(CapiTest, PlanesInAnyOrderAreTheSameModel) {
  const auto tokens = CTokens(1, 300);
  CEngineOptions options = {MakeCModel(2, 2, 1)};
  CEngine engine(cache_, options);
  engine.Decode(tokens);
  engine.ParkAll(tokens);
  std::reverse(options.model.planes.begin(), options.model.planes.end());
  CEngine reversed(cache_, options);
  EXPECT_EQ(reversed.Restore(With(tokens, {7})).hit_tokens[PARKADE_RAM], 300u);
}

// Layers are cut and joined: what two devices held comes back on three.
TEST_F(CapiTest, AnotherSplitAtRestore) {
  const auto tokens = CTokens(1, 600);
  CEngine engine(cache_, {.model = MakeCModel(4, 2, 2), .stages = {{0, 1, 2, 3}, {4, 5, 6, 7}}});
  engine.Decode(tokens);
  engine.ParkAll(tokens);
  CEngine other(
      cache_,
      {.model = MakeCModel(4, 2, 2), .stages = {{0, 4, 6}, {1, 2}, {3, 5, 7}}, .paged = {0, 3, 6}});
  other.Wipe();
  EXPECT_EQ(other.Restore(With(tokens, {7})).hit_tokens[PARKADE_RAM], 600u);
  EXPECT_EQ(warnings(), "");
}

TEST_F(CapiTest, WindowRowsInARing) {
  const auto tokens = CTokens(1, 600);
  CEngine engine(cache_, {.model = MakeCModel(1, 2), .window_rows = 160, .paged = {2}});
  engine.Decode(tokens);
  engine.ParkAll(tokens);
  engine.Wipe();
  EXPECT_EQ(engine.Restore(With(tokens, {7})).reused_tokens, 600u);
  // The window of an earlier position is gone.
  EXPECT_EQ(engine.Restore(With({tokens.begin(), tokens.begin() + 400}, {7})).reused_tokens, 0u);
  CEngine narrow(cache_, {.model = MakeCModel(1, 2), .window_rows = 101});
  EXPECT_EQ(narrow.Restore(With(tokens, {7})).reused_tokens, 600u);
  EXPECT_EQ(warnings(), "");
  CEngine too_narrow(cache_, {.model = MakeCModel(1, 2), .window_rows = 100});
  EXPECT_EQ(too_narrow.Restore(With(tokens, {7})).reused_tokens, 0u);
  EXPECT_NE(warnings().find("window key plane of layer 1 has 100 rows, not 101"),
            std::string::npos);
}

// As engines keep windows that give their pages back: those that slid out are not there.
TEST_F(CapiTest, WindowPagesThatSlidOut) {
  const auto tokens = CTokens(1, 600);
  CEngineOptions options = {.model = MakeCModel(1, 1), .paged = {2, 3}};
  CEngine engine(cache_, options);
  for (const std::size_t plane : {2, 3}) {
    std::fill_n(engine.pages(plane).begin(), 480 / 16, -1);
  }
  ASSERT_EQ(engine.SetPlanes(), PARKADE_OK);
  engine.Decode(tokens);
  parkade_park_options park = {};
  park.struct_size = sizeof(park);
  park.tokens = tokens.data();
  park.token_count = tokens.size();
  park.boundary = true;
  park.window_begin = 479;
  parkade_park_result result = {};
  result.struct_size = sizeof(result);
  EXPECT_EQ(parkade_park(engine.model(), engine.sequence(), &park, &result),
            PARKADE_FAILED_PRECONDITION);
  EXPECT_STREQ(parkade_last_error(),
               "the window key plane of layer 1: the page with the row of position 479 is not "
               "there");
  park.window_begin = 480;
  ASSERT_EQ(parkade_park(engine.model(), engine.sequence(), &park, &result), PARKADE_OK);
  EXPECT_EQ(result.captured_tokens, 600u);
  engine.Wipe();
  EXPECT_EQ(engine.Restore(With(tokens, {7})).reused_tokens, 600u);
}

TEST_F(CapiTest, StateIsThatOfItsPosition) {
  const auto tokens = CTokens(1, 400);
  CEngine engine(cache_, {MakeCModel(1, 0, 2)});
  const std::vector<std::int32_t> first(tokens.begin(), tokens.begin() + 300);
  engine.Decode(first);
  engine.ParkAll(first);
  engine.Decode(tokens);
  engine.ParkAll(tokens);
  engine.Wipe();
  EXPECT_EQ(engine.Restore(With(tokens, {7})).reused_tokens, 400u);
  EXPECT_EQ(engine.Restore(With(first, {7, 8})).reused_tokens, 300u);
  const std::vector<std::int32_t> between(tokens.begin(), tokens.begin() + 350);
  EXPECT_EQ(engine.Restore(With(between, {7})).reused_tokens, 300u);
}

TEST_F(CapiTest, ParkWithoutABoundaryKeepsRowsAlone) {
  const auto tokens = CTokens(1, 400);
  CEngine engine(cache_, {MakeCModel(1, 0, 1)});
  engine.Decode(tokens);
  engine.ParkAll(tokens, false);
  EXPECT_EQ(engine.Restore(With(tokens, {7})).reused_tokens, 0u);
  engine.Decode(tokens);
  engine.ParkAll(tokens);
  EXPECT_EQ(engine.Restore(With(tokens, {7})).reused_tokens, 400u);
}

TEST_F(CapiTest, MissingPage) {
  const auto tokens = CTokens(1, 500);
  CEngine engine(cache_, {.model = MakeCModel(2), .paged = {1}});
  engine.Decode(tokens);
  const std::int32_t page = std::exchange(engine.pages(1)[20], -1);
  ASSERT_EQ(engine.SetPlanes(), PARKADE_OK);
  parkade_park_result result;
  EXPECT_EQ(engine.Park(tokens, &result), PARKADE_FAILED_PRECONDITION);
  EXPECT_STREQ(parkade_last_error(),
               "the full value plane of layer 0: the page with the row of position 320 is not "
               "there");
  engine.pages(1)[20] = page;
  ASSERT_EQ(engine.SetPlanes(), PARKADE_OK);
  engine.ParkAll(tokens);
  // Room is missing for what comes back: a miss, not an error.
  engine.pages(1)[20] = -1;
  ASSERT_EQ(engine.SetPlanes(), PARKADE_OK);
  parkade_restore_info info;
  parkade_restore* restore = Planned(&engine, With(tokens, {7}), &info);
  EXPECT_EQ(info.state, PARKADE_READING);
  EXPECT_EQ(info.tokens, 500u);
  EXPECT_EQ(info.planned_tokens[PARKADE_RAM], 500u);
  std::uint32_t restored = 99;
  EXPECT_EQ(parkade_restore_run(restore, engine.sequence(), 30000, &restored), PARKADE_OK);
  EXPECT_EQ(restored, 0u);
  EXPECT_EQ(parkade_restore_plan(restore, 0, &info), PARKADE_OK);
  EXPECT_EQ(info.state, PARKADE_FAILED);
  EXPECT_EQ(parkade_restore_finish(restore, 0, nullptr), PARKADE_OK);
  EXPECT_NE(warnings().find("position 320 is not there"), std::string::npos) << warnings();
  engine.pages(1)[20] = page;
  ASSERT_EQ(engine.SetPlanes(), PARKADE_OK);
  engine.Wipe();
  EXPECT_EQ(engine.Restore(With(tokens, {7})).reused_tokens, 500u);
}

TEST_F(CapiTest, MoreTokensThanRows) {
  const auto tokens = CTokens(1, 500);
  CEngine engine(cache_, {MakeCModel(2)});
  engine.Decode(tokens);
  engine.ParkAll(tokens);
  CEngine small(cache_, {.model = MakeCModel(2), .rows = 499});
  parkade_park_result result;
  EXPECT_EQ(small.Park(tokens, &result), PARKADE_FAILED_PRECONDITION);
  EXPECT_STREQ(parkade_last_error(), "the full key plane of layer 0 has 499 rows, not 500");
  EXPECT_EQ(small.Restore(With(tokens, {7})).reused_tokens, 0u);
  EXPECT_EQ(engine.Restore(tokens).reused_tokens, 499u);
}

TEST_F(CapiTest, HeldTokensAndWholeRanges) {
  const auto tokens = CTokens(1, 500);
  CEngine engine(cache_, {MakeCModel(2)});
  engine.Decode(tokens);
  engine.ParkAll(tokens);
  const auto plan = [&](std::uint32_t held, std::uint32_t cacheable,
                        std::vector<parkade_range> whole) {
    parkade_lookup_options options = {};
    options.struct_size = sizeof(options);
    options.tokens = tokens.data();
    options.token_count = tokens.size();
    options.held_tokens = held;
    options.cacheable_tokens = cacheable;
    options.whole_ranges = whole.data();
    options.whole_range_count = whole.size();
    parkade_restore* restore = nullptr;
    EXPECT_EQ(parkade_lookup(engine.model(), &options, &restore), PARKADE_OK);
    parkade_restore_info info = {};
    info.struct_size = sizeof(info);
    EXPECT_EQ(parkade_restore_plan(restore, 30000, &info), PARKADE_OK);
    parkade_restore_abandon(restore);
    return info;
  };
  EXPECT_EQ(plan(0, 0, {}).tokens, 499u);
  EXPECT_EQ(plan(498, 0, {}).tokens, 499u);
  const parkade_restore_info held = plan(499, 0, {});
  EXPECT_EQ(held.state, PARKADE_MISS);
  EXPECT_EQ(held.tokens, 0u);
  EXPECT_EQ(plan(0, 300, {}).tokens, 300u);
  EXPECT_EQ(plan(0, 300, {{100, 200}, {280, 320}}).tokens, 280u);
  EXPECT_EQ(plan(0, 0, {{450, 500}}).tokens, 450u);
  // Whoever abandons is not counted.
  EXPECT_EQ(Stats().lookups, 0u);
}

TEST_F(CapiTest, TwoSequencesInTurns) {
  const std::vector<std::vector<std::int32_t>> tokens = {CTokens(1, 900), CTokens(2, 800)};
  CEngine first(cache_, {MakeCModel(3)});
  CEngine second(cache_, {.model = MakeCModel(3), .stages = {{0}, {1, 2}}});
  first.Decode(tokens[0]);
  first.ParkAll(tokens[0]);
  first.Wipe();
  second.Decode(tokens[1]);
  second.ParkAll(tokens[1]);
  second.Wipe();
  parkade_restore_info info;
  parkade_restore* restores[] = {Planned(&first, With(tokens[0], {7}), &info),
                                 Planned(&second, With(tokens[1], {7}), &info)};
  CEngine* engines[] = {&first, &second};
  parkade_restore_state states[] = {PARKADE_READING, PARKADE_READING};
  ASSERT_EQ(parkade_restore_step(restores[0], first.sequence(), 0, &states[0]), PARKADE_OK);
  ASSERT_EQ(states[0], PARKADE_READING);
  // What is under way belongs to one sequence, and a sequence to what is under way.
  parkade_restore_state state = PARKADE_PLANNING;
  EXPECT_EQ(parkade_restore_step(restores[0], second.sequence(), 0, &state),
            PARKADE_INVALID_ARGUMENT);
  EXPECT_STREQ(parkade_last_error(), "the restore was begun in another sequence");
  EXPECT_EQ(parkade_restore_step(restores[1], first.sequence(), 0, &state),
            PARKADE_FAILED_PRECONDITION);
  EXPECT_EQ(first.SetPlanes(), PARKADE_FAILED_PRECONDITION);
  parkade_park_result park;
  EXPECT_EQ(first.Park(tokens[0], &park), PARKADE_FAILED_PRECONDITION);
  for (int step = 0;
       step < 100000 && (states[0] == PARKADE_READING || states[1] == PARKADE_READING); ++step) {
    for (const int i : {0, 1}) {
      ASSERT_EQ(parkade_restore_step(restores[i], engines[i]->sequence(), 0, &states[i]),
                PARKADE_OK);
    }
    std::this_thread::yield();
  }
  for (const int i : {0, 1}) {
    EXPECT_EQ(states[i], PARKADE_RESTORED);
    const auto count = static_cast<std::uint32_t>(tokens[i].size());
    EXPECT_EQ(engines[i]->Wrong(tokens[i], count, 0), "");
    EXPECT_EQ(parkade_restore_finish(restores[i], count, nullptr), PARKADE_OK);
  }
  EXPECT_EQ(Stats().hit_tokens[PARKADE_RAM], 1700u);
}

TEST_F(CapiTest, RunMayBeGoneOnWith) {
  const auto tokens = CTokens(1, 1800);
  CEngine engine(cache_, {MakeCModel(6)});
  engine.Decode(tokens);
  engine.ParkAll(tokens);
  engine.Wipe();
  parkade_restore* restore = engine.Lookup(With(tokens, {7}));
  std::uint32_t restored = 99;
  parkade_status status = PARKADE_TIMEOUT;
  for (int call = 0; call < 100000 && status == PARKADE_TIMEOUT; ++call) {
    EXPECT_EQ(restored, 99u);
    status = parkade_restore_run(restore, engine.sequence(), 0, &restored);
  }
  EXPECT_EQ(status, PARKADE_OK);
  EXPECT_EQ(restored, 1800u);
  EXPECT_EQ(engine.Wrong(tokens, restored, 0), "");
  EXPECT_EQ(parkade_restore_finish(restore, restored, nullptr), PARKADE_OK);
}

TEST_F(CapiTest, AbandonedHalfWay) {
  const auto tokens = CTokens(1, 900);
  CEngine engine(cache_, {MakeCModel(3)});
  engine.Decode(tokens);
  engine.ParkAll(tokens);
  parkade_restore_info info;
  parkade_restore* restore = Planned(&engine, With(tokens, {7}), &info);
  parkade_restore_state state = PARKADE_PLANNING;
  ASSERT_EQ(parkade_restore_step(restore, engine.sequence(), 0, &state), PARKADE_OK);
  ASSERT_EQ(state, PARKADE_READING);
  parkade_restore_abandon(restore);
  EXPECT_EQ(engine.SetPlanes(), PARKADE_OK);
  engine.Wipe();
  EXPECT_EQ(engine.Restore(With(tokens, {7})).reused_tokens, 900u);
}

TEST_F(CapiTest, SequenceClosedHalfWay) {
  const auto tokens = CTokens(1, 900);
  CEngine engine(cache_, {MakeCModel(3)});
  engine.Decode(tokens);
  engine.ParkAll(tokens);
  parkade_restore* restore = nullptr;
  {
    CEngine other(cache_, {MakeCModel(3)});
    parkade_restore_info info;
    restore = Planned(&other, With(tokens, {7}), &info);
    parkade_restore_state state = PARKADE_PLANNING;
    ASSERT_EQ(parkade_restore_step(restore, other.sequence(), 0, &state), PARKADE_OK);
    ASSERT_EQ(state, PARKADE_READING);
  }
  std::uint32_t restored = 0;
  EXPECT_EQ(parkade_restore_run(restore, engine.sequence(), 1000, &restored),
            PARKADE_INVALID_ARGUMENT);
  EXPECT_EQ(parkade_restore_finish(restore, 0, nullptr), PARKADE_OK);
  EXPECT_EQ(Stats().miss_tokens, 901u);
}

TEST_F(CapiTest, ClosedWithAllOpen) {
  const auto tokens = CTokens(1, 900);
  auto engine = std::make_unique<CEngine>(cache_, CEngineOptions{MakeCModel(3)});
  engine->Decode(tokens);
  engine->ParkAll(tokens);
  parkade_restore_info info;
  parkade_restore* begun = Planned(engine.get(), With(tokens, {7}), &info);
  parkade_restore* planned = engine->Lookup(With(tokens, {8}));
  parkade_restore_state state = PARKADE_PLANNING;
  ASSERT_EQ(parkade_restore_step(begun, engine->sequence(), 0, &state), PARKADE_OK);
  parkade_close(std::exchange(cache_, nullptr));
  EXPECT_EQ(parkade_restore_step(begun, engine->sequence(), 0, &state),
            PARKADE_FAILED_PRECONDITION);
  EXPECT_STREQ(parkade_last_error(), "the cache is closed");
  EXPECT_EQ(parkade_restore_plan(planned, 0, &info), PARKADE_FAILED_PRECONDITION);
  EXPECT_EQ(parkade_restore_finish(planned, 0, nullptr), PARKADE_FAILED_PRECONDITION);
  parkade_restore_abandon(begun);
  parkade_park_result park;
  EXPECT_EQ(engine->Park(tokens, &park), PARKADE_FAILED_PRECONDITION);
  EXPECT_STREQ(parkade_last_error(), "the cache is closed");
  EXPECT_EQ(engine->SetPlanes(), PARKADE_OK);
}

// The largest rows that a model may have, and the smallest buffers.
TEST_F(CapiTest, LargestRowsAreCaptured) {
  parkade_close(std::exchange(cache_, nullptr));
  parkade_cache_options options;
  parkade_cache_options_init(&options, sizeof(options));
  options.ram_mib = 1;
  options.ram_min_free_mib = 0;
  options.min_tokens = 1;
  ASSERT_EQ(parkade_open(&options, &cache_), PARKADE_OK) << parkade_last_error();
  CModel model = MakeCModel(1);
  for (parkade_plane& plane : model.planes) plane.row_bytes = 4u << 20;
  CEngine engine(cache_, {.model = model, .rows = 1});
  engine.ParkAll(CTokens(1, 1));
  EXPECT_EQ(Stats().parked_bytes, 8u << 20);
}

TEST_F(CapiTest, ListPinForget) {
  CEngine engine(cache_, {MakeCModel(1)});
  std::vector<std::string> ids;
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    const auto tokens = CTokens(seed, 100 * seed);
    engine.Decode(tokens);
    ids.push_back(engine.ParkAll(tokens));
  }
  Drain();
  struct Seen {
    std::vector<parkade_conversation> all;
    std::vector<std::string> names;
    std::size_t most = 99;
  };
  const auto list = [&](std::uint32_t limit, std::size_t most) {
    Seen seen;
    seen.most = most;
    const auto visit = [](void* user, const parkade_conversation* conversation) {
      auto* list = static_cast<Seen*>(user);
      list->all.push_back(*conversation);
      list->names.emplace_back(conversation->name);
      return list->all.size() < list->most;
    };
    EXPECT_EQ(parkade_list(cache_, limit, visit, &seen), PARKADE_OK);
    return seen;
  };
  EXPECT_EQ(list(0, 99).all.size(), 3u);
  EXPECT_EQ(list(2, 99).all.size(), 2u);
  EXPECT_EQ(list(0, 1).all.size(), 1u);
  EXPECT_EQ(parkade_pin(cache_, ids[1].c_str(), true, "kept"), PARKADE_OK);
  EXPECT_EQ(parkade_pin(cache_, ids[2].c_str(), true, "kept"), PARKADE_ALREADY_EXISTS);
  const Seen seen = list(0, 99);
  for (std::size_t i = 0; i < seen.all.size(); ++i) {
    const parkade_conversation& one = seen.all[i];
    const auto place = std::find(ids.begin(), ids.end(), one.id) - ids.begin();
    ASSERT_LT(place, 3);
    EXPECT_EQ(one.tokens, 100u * (place + 1));
    EXPECT_EQ(one.durable_tokens, 0u);
    EXPECT_EQ(one.bytes, one.tokens * (64u + 48));
    EXPECT_EQ(one.pinned, place == 1);
    EXPECT_EQ(seen.names[i], place == 1 ? "kept" : "");
    EXPECT_TRUE(one.in_tier[PARKADE_RAM]);
    EXPECT_FALSE(one.in_tier[PARKADE_DISK]);
  }
  std::uint32_t kept = 99;
  EXPECT_EQ(parkade_forget(cache_, ids[0].c_str(), &kept), PARKADE_OK);
  EXPECT_EQ(kept, 0u);
  EXPECT_EQ(parkade_forget(cache_, ids[0].c_str(), &kept), PARKADE_NOT_FOUND);
  EXPECT_EQ(list(0, 99).all.size(), 2u);
  EXPECT_EQ(engine.Restore(With(CTokens(1, 100), {7})).reused_tokens, 0u);
  EXPECT_EQ(engine.Restore(With(CTokens(2, 200), {7})).reused_tokens, 200u);
}

TEST_F(CapiTest, DiskServesAfterClosing) {
  std::string folder = DiskTestRoot() + "/parkade-capi-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto tokens = CTokens(1, 700);
  const CEngineOptions options = {.model = MakeCModel(2, 1, 1), .stages = {{0, 1}, {2, 3}}};
  parkade_close(std::exchange(cache_, nullptr));
  Open(folder);
  {
    CEngine engine(cache_, options);
    engine.Decode(tokens);
    engine.ParkAll(tokens);
    parkade_cache* second = nullptr;
    parkade_cache_options again;
    parkade_cache_options_init(&again, sizeof(again));
    again.disk_directory = folder.c_str();
    EXPECT_EQ(parkade_open(&again, &second), PARKADE_FAILED_PRECONDITION);
    EXPECT_NE(std::string(parkade_last_error()).find(folder), std::string::npos);
    for (std::uint32_t seed = 2; seed < 22; ++seed) {
      const auto more = CTokens(seed, 1000);
      engine.Decode(more);
      engine.ParkAll(more);
    }
  }
  // What is queued is written.
  parkade_close(std::exchange(cache_, nullptr));
  Open(folder);
  EXPECT_EQ(ListedTokens(), 700u + 20 * 1000);
  {
    CEngine engine(cache_, options);
    parkade_restore_info info;
    parkade_restore* restore = Planned(&engine, With(tokens, {7}), &info);
    EXPECT_EQ(info.planned_tokens[PARKADE_DISK], 700u);
    EXPECT_EQ(info.planned_tokens[PARKADE_RAM], 0u);
    std::uint32_t restored = 0;
    EXPECT_EQ(parkade_restore_run(restore, engine.sequence(), 30000, &restored), PARKADE_OK);
    EXPECT_EQ(engine.Wrong(tokens, restored, 599), "");
    EXPECT_EQ(parkade_restore_finish(restore, restored, nullptr), PARKADE_OK);
    EXPECT_EQ(Stats().hit_tokens[PARKADE_DISK], 700u);
  }
  parkade_close(std::exchange(cache_, nullptr));
  std::filesystem::remove_all(folder);
}

TEST_F(CapiTest, DrainWithoutTime) {
  std::string folder = DiskTestRoot() + "/parkade-capi-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  parkade_close(std::exchange(cache_, nullptr));
  Open(folder);
  {
    CEngine engine(cache_, {MakeCModel(8)});
    parkade_status status = PARKADE_OK;
    // The writer may be quicker.
    for (std::uint32_t seed = 1; seed <= 100 && status == PARKADE_OK; ++seed) {
      const auto tokens = CTokens(seed, 2000);
      engine.ParkAll(tokens);
      status = parkade_drain(cache_, 0);
    }
    EXPECT_EQ(status, PARKADE_TIMEOUT);
    EXPECT_EQ(parkade_drain(cache_, 30000), PARKADE_OK) << parkade_last_error();
    EXPECT_EQ(Stats().queue_bytes, 0u);
  }
  parkade_close(std::exchange(cache_, nullptr));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace parkade::test
