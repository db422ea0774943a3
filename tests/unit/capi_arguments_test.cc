// What parkade.h answers to calls that are wrong, each with the words that say so.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/capi_engine.h"

extern "C" uint32_t parkade_version_in_c(void);

namespace parkade::test {
namespace {

parkade_cache_options SmallCache() {
  parkade_cache_options options;
  parkade_cache_options_init(&options, sizeof(options));
  options.ram_mib = 128;
  options.ram_min_free_mib = 0;
  return options;
}

// As a caller in C may: also a number that the enum does not have.
template <typename Enum>
void Put(int number, Enum* value) {
  static_assert(sizeof(number) == sizeof(*value));
  std::memcpy(value, &number, sizeof(number));
}

#define EXPECT_REFUSED(call, status, words)                                     \
  do {                                                                          \
    EXPECT_EQ(call, status);                                                    \
    EXPECT_NE(std::string(parkade_last_error()).find(words), std::string::npos) \
        << "the message is: " << parkade_last_error();                          \
  } while (false)

class ArgumentsTest : public ::testing::Test {
 protected:
  ArgumentsTest() {
    const parkade_cache_options options = SmallCache();
    EXPECT_EQ(parkade_open(&options, &cache_), PARKADE_OK) << parkade_last_error();
  }
  ~ArgumentsTest() override { parkade_close(cache_); }

  // A model of two planes, changed in one way.
  void ExpectModelRefused(
      const char* words,
      const std::function<void(parkade_model_options*, parkade_plane*, parkade_field*)>& change) {
    parkade_field fields[] = {{"weights", "a"}, {"rope", "b"}};
    parkade_plane planes[] = {{PARKADE_FULL, PARKADE_KEY, 0, 1, 64},
                              {PARKADE_FULL, PARKADE_VALUE, 0, 1, 64}};
    parkade_model_options options = {};
    options.struct_size = sizeof(options);
    options.fields = fields;
    options.field_count = 2;
    options.planes = planes;
    options.plane_count = 2;
    change(&options, planes, fields);
    parkade_model* model = nullptr;
    EXPECT_REFUSED(parkade_model_open(cache_, &options, &model), PARKADE_INVALID_ARGUMENT, words);
    EXPECT_EQ(model, nullptr);
  }

  parkade_cache* cache_ = nullptr;
};

TEST_F(ArgumentsTest, VersionsAreTheHeaders) {
  EXPECT_EQ(parkade_api_version(), static_cast<std::uint32_t>(PARKADE_API_VERSION));
  EXPECT_EQ(parkade_version_in_c(), parkade_api_version());
  EXPECT_STREQ(parkade_version(), PARKADE_VERSION);
}

TEST_F(ArgumentsTest, LastErrorIsTheThreads) {
  parkade_stats stats = {};
  EXPECT_EQ(parkade_get_stats(cache_, &stats), PARKADE_INVALID_ARGUMENT);
  const std::string mine = parkade_last_error();
  EXPECT_FALSE(mine.empty());
  std::thread([] { EXPECT_STREQ(parkade_last_error(), ""); }).join();
  stats.struct_size = sizeof(stats);
  EXPECT_EQ(parkade_get_stats(cache_, &stats), PARKADE_OK);
  EXPECT_EQ(parkade_last_error(), mine);
}

TEST_F(ArgumentsTest, OptionsThatAreWrong) {
  parkade_cache* cache = nullptr;
  EXPECT_REFUSED(parkade_open(nullptr, &cache), PARKADE_INVALID_ARGUMENT, "options is NULL");
  parkade_cache_options options = SmallCache();
  EXPECT_REFUSED(parkade_open(&options, nullptr), PARKADE_INVALID_ARGUMENT, "cache is NULL");
  options.ram_mib = 0;
  EXPECT_REFUSED(parkade_open(&options, &cache), PARKADE_INVALID_ARGUMENT, "ram_mib or disk");
  options.ram_mib = UINT64_MAX;
  EXPECT_REFUSED(parkade_open(&options, &cache), PARKADE_INVALID_ARGUMENT, "1 PiB");
  options = SmallCache();
  options.remote_url = "http://here";
  EXPECT_REFUSED(parkade_open(&options, &cache), PARKADE_INVALID_ARGUMENT, "remote_url: ");
  options.remote_url = "";
  options.key_file = "/nowhere/key";
  EXPECT_REFUSED(parkade_open(&options, &cache), PARKADE_INVALID_ARGUMENT, "/nowhere/key");
  options.key_file = "";
  options.disk_directory = "/dev/null";
  EXPECT_REFUSED(parkade_open(&options, &cache), PARKADE_INVALID_ARGUMENT, "/dev/null");
  EXPECT_EQ(cache, nullptr);
}

// A program may be older than the library, or newer as long as it asks for nothing new.
TEST_F(ArgumentsTest, StructsOfOtherSizes) {
  struct Longer {
    parkade_cache_options known;
    std::uint64_t later;
  } longer;
  std::memset(&longer, 0x5a, sizeof(longer));
  parkade_cache_options_init(&longer.known, sizeof(longer));
  EXPECT_EQ(longer.known.struct_size, sizeof(longer));
  EXPECT_EQ(longer.later, 0u);
  EXPECT_EQ(longer.known.ram_mib, 8192u);
  EXPECT_EQ(longer.known.min_tokens, 64u);
  longer.known.ram_mib = 128;
  parkade_cache* cache = nullptr;
  EXPECT_EQ(parkade_open(&longer.known, &cache), PARKADE_OK) << parkade_last_error();
  parkade_close(cache);
  cache = nullptr;
  longer.later = 1;
  EXPECT_REFUSED(parkade_open(&longer.known, &cache), PARKADE_INVALID_ARGUMENT, "newer library");
  parkade_cache_options shorter = SmallCache();
  shorter.struct_size = SIZE_MAX;
  EXPECT_REFUSED(parkade_open(&shorter, &cache), PARKADE_INVALID_ARGUMENT, "set it to sizeof");
  shorter.struct_size = sizeof(shorter) - 8;
  EXPECT_REFUSED(parkade_open(&shorter, &cache), PARKADE_INVALID_ARGUMENT, "struct_size");
  std::memset(&shorter, 0x5a, sizeof(shorter));
  const parkade_cache_options before = shorter;
  parkade_cache_options_init(&shorter, 4);
  EXPECT_EQ(std::memcmp(&before, &shorter, sizeof(shorter)), 0);
  parkade_stats stats = {};
  // That of a program which does not know the field that came later.
  stats.struct_size = offsetof(parkade_stats, page_locked_bytes);
  stats.page_locked_bytes = 77;
  EXPECT_EQ(parkade_get_stats(cache_, &stats), PARKADE_OK) << parkade_last_error();
  EXPECT_EQ(stats.struct_size, offsetof(parkade_stats, page_locked_bytes));
  EXPECT_EQ(stats.page_locked_bytes, 77u);
  EXPECT_GT(stats.budget_bytes[PARKADE_RAM], 0u);
  stats.struct_size -= 8;
  EXPECT_REFUSED(parkade_get_stats(cache_, &stats), PARKADE_INVALID_ARGUMENT, "struct_size");
}

TEST_F(ArgumentsTest, ModelsThatAreNone) {
  using Options = parkade_model_options;
  using Plane = parkade_plane;
  using Field = parkade_field;
  ExpectModelRefused("without fields", [](Options* o, Plane*, Field*) { o->field_count = 0; });
  ExpectModelRefused("fields is NULL", [](Options* o, Plane*, Field*) { o->fields = nullptr; });
  ExpectModelRefused("field 1 has no name", [](Options*, Plane*, Field* f) { f[1].name = ""; });
  ExpectModelRefused("no value", [](Options*, Plane*, Field* f) { f[1].value = nullptr; });
  ExpectModelRefused("there twice", [](Options*, Plane*, Field* f) { f[1].name = "weights"; });
  ExpectModelRefused("by the library", [](Options*, Plane*, Field* f) { f[1].name = "layout"; });
  ExpectModelRefused("has planes", [](Options* o, Plane*, Field*) { o->plane_count = 0; });
  ExpectModelRefused("plane 1: there is another one",
                     [](Options*, Plane* p, Field*) { p[1].kind = PARKADE_KEY; });
  ExpectModelRefused("plane 1: row_bytes is 0",
                     [](Options*, Plane* p, Field*) { p[1].row_bytes = 0; });
  ExpectModelRefused("plane 0: row too long",
                     [](Options*, Plane* p, Field*) { p[0].row_bytes = (8u << 20) + 1; });
  ExpectModelRefused("more than 8 MiB",
                     [](Options*, Plane* p, Field*) { p[0].row_bytes = 8u << 20; });
  ExpectModelRefused("below 32768", [](Options*, Plane* p, Field*) { p[0].layer = 32768; });
  ExpectModelRefused("no such group", [](Options*, Plane* p, Field*) { Put(3, &p[0].group); });
  ExpectModelRefused("no such kind", [](Options*, Plane* p, Field*) { Put(5, &p[0].kind); });
  ExpectModelRefused("window planes", [](Options* o, Plane*, Field*) { o->window_tokens = 9; });
  ExpectModelRefused("window planes",
                     [](Options*, Plane* p, Field*) { p[0].group = PARKADE_WINDOW; });
  ExpectModelRefused("struct_size", [](Options* o, Plane*, Field*) { o->struct_size = 0; });
}

TEST_F(ArgumentsTest, StagesThatDoNotFit) {
  CEngine engine(cache_, {MakeCModel(3)});
  const auto open = [&](const Layers& layers, int device = PARKADE_HOST) {
    std::vector<parkade_stage> stages;
    for (const auto& own : layers) {
      parkade_stage stage = {};
      stage.layers = own.data();
      stage.layer_count = own.size();
      Put(device, &stage.device);
      stage.ordinal = 4096;
      stages.push_back(stage);
    }
    parkade_sequence_options options = {};
    options.struct_size = sizeof(options);
    options.stages = stages.data();
    options.stage_count = stages.size();
    parkade_sequence* sequence = nullptr;
    const parkade_status status = parkade_sequence_open(engine.model(), &options, &sequence);
    parkade_sequence_close(sequence);
    return status;
  };
  EXPECT_EQ(open({{0, 2}, {1}}), PARKADE_OK);
  EXPECT_REFUSED(open({}), PARKADE_INVALID_ARGUMENT, "has stages");
  EXPECT_REFUSED(open({{0, 1}}), PARKADE_INVALID_ARGUMENT, "layer 2 is in no stage");
  EXPECT_REFUSED(open({{0, 1}, {1, 2}}), PARKADE_INVALID_ARGUMENT, "layer 1 is in two");
  EXPECT_REFUSED(open({{0, 2, 1}}), PARKADE_INVALID_ARGUMENT, "do not ascend");
  EXPECT_REFUSED(open({{0, 1, 2}, {}}), PARKADE_INVALID_ARGUMENT, "stage 1 is empty");
  EXPECT_REFUSED(open({{0, 1, 2, 3}}), PARKADE_INVALID_ARGUMENT, "layer 3");
  EXPECT_REFUSED(open({{0, 1, 2}}, 7), PARKADE_INVALID_ARGUMENT, "no such device");
  // A card that no machine has.
  const parkade_status none = PARKADE_WITH_CUDA ? PARKADE_UNAVAILABLE : PARKADE_UNSUPPORTED;
  EXPECT_EQ(open({{0, 1, 2}}, PARKADE_CUDA), none) << parkade_last_error();
}

TEST_F(ArgumentsTest, RowsThatAreNowhere) {
  CEngine engine(cache_, {.model = MakeCModel(1), .paged = {1}});
  const std::vector<parkade_plane_rows> good = engine.rows();
  const auto with = [&](std::size_t plane, const std::function<void(parkade_plane_rows*)>& change) {
    engine.rows() = good;
    change(&engine.rows()[plane]);
    return engine.SetPlanes();
  };
  using Rows = parkade_plane_rows;
  const parkade_status bad = PARKADE_INVALID_ARGUMENT;
  EXPECT_REFUSED(with(0, [](Rows* r) { r->base = nullptr; }), bad, "plane 0: base is NULL");
  EXPECT_REFUSED(with(0, [](Rows* r) { r->row_stride = 63; }), bad, "less than row_bytes");
  EXPECT_REFUSED(with(0, [](Rows* r) { r->row_stride = 1ull << 40; }), bad, "too large");
  EXPECT_REFUSED(with(0, [](Rows* r) { r->page_count = 4; }), bad, "without page_rows");
  EXPECT_REFUSED(with(1, [](Rows* r) { r->page_count = 4; }), bad, "plane 1: fewer pages");
  EXPECT_REFUSED(with(1, [](Rows* r) { r->pages = nullptr; }), bad, "pages is NULL");
  EXPECT_REFUSED(with(1, [](Rows* r) { r->page_stride = 47; }), bad, "less than a page");
  engine.rows() = good;
  EXPECT_REFUSED(parkade_sequence_set_planes(engine.sequence(), good.data(), 1), bad,
                 "rows of 1 planes, the model has 2");
  EXPECT_REFUSED(parkade_sequence_set_planes(engine.sequence(), nullptr, 2), bad, "planes is NULL");
  EXPECT_EQ(engine.SetPlanes(), PARKADE_OK);
}

TEST_F(ArgumentsTest, LookupsAndParksThatAreNone) {
  CEngine engine(cache_, {MakeCModel(2)});
  const std::vector<std::int32_t> tokens = CTokens(1, 200);
  parkade_lookup_options lookup = {};
  lookup.struct_size = sizeof(lookup);
  lookup.tokens = tokens.data();
  lookup.token_count = tokens.size();
  const auto with = [&](const std::function<void(parkade_lookup_options*)>& change) {
    parkade_lookup_options changed = lookup;
    change(&changed);
    parkade_restore* restore = nullptr;
    const parkade_status status = parkade_lookup(engine.model(), &changed, &restore);
    EXPECT_EQ(restore, nullptr);
    return status;
  };
  using Options = parkade_lookup_options;
  const parkade_status bad = PARKADE_INVALID_ARGUMENT;
  EXPECT_REFUSED(with([](Options* o) { o->tokens = nullptr; }), bad, "tokens is NULL");
  EXPECT_REFUSED(with([](Options* o) { o->token_count = 0; }), bad, "token_count is 0");
  EXPECT_REFUSED(with([](Options* o) { o->held_tokens = 201; }), bad, "above token_count");
  EXPECT_REFUSED(with([](Options* o) { o->cacheable_tokens = 201; }), bad, "above token_count");
  const parkade_range ranges[] = {{10, 20}, {15, 30}};
  EXPECT_REFUSED(with([&](Options* o) { o->whole_range_count = 2; }), bad, "whole_ranges is NULL");
  EXPECT_REFUSED(with([&](Options* o) { o->whole_ranges = ranges, o->whole_range_count = 2; }), bad,
                 "not ascending");
  EXPECT_REFUSED(parkade_lookup(nullptr, &lookup, nullptr), bad, "model is NULL");

  parkade_park_options park = {};
  park.struct_size = sizeof(park);
  park.tokens = tokens.data();
  park.token_count = tokens.size();
  park.window_begin = 201;
  parkade_park_result result = {};
  result.struct_size = sizeof(result);
  const auto try_park = [&] {
    return parkade_park(engine.model(), engine.sequence(), &park, &result);
  };
  EXPECT_REFUSED(try_park(), bad, "window_begin");
  park.window_begin = 0;
  result.struct_size = 0;
  EXPECT_REFUSED(try_park(), bad, "struct_size");
  CEngine other(cache_, {MakeCModel(3)});
  result.struct_size = sizeof(result);
  EXPECT_REFUSED(parkade_park(engine.model(), other.sequence(), &park, &result), bad,
                 "not those of the model");
}

TEST_F(ArgumentsTest, RestoresThatCanNotBe) {
  const parkade_status bad = PARKADE_INVALID_ARGUMENT;
  CEngine engine(cache_, {MakeCModel(2)});
  CEngine other(cache_, {MakeCModel(3)});
  parkade_restore* restore = engine.Lookup(CTokens(1, 200));
  parkade_restore_state state = PARKADE_PLANNING;
  EXPECT_REFUSED(parkade_restore_step(restore, other.sequence(), 0, &state), bad, "not those of");
  EXPECT_REFUSED(parkade_restore_step(restore, engine.sequence(), 0, nullptr), bad,
                 "state is NULL");
  EXPECT_REFUSED(parkade_restore_step(restore, nullptr, 0, &state), bad, "sequence is NULL");
  EXPECT_REFUSED(parkade_restore_run(restore, engine.sequence(), 0, nullptr), bad, "is NULL");
  EXPECT_REFUSED(parkade_restore_step(nullptr, engine.sequence(), 0, &state), bad, "restore is");
  EXPECT_REFUSED(parkade_restore_plan(restore, 0, nullptr), bad, "info is NULL");
  // It is counted all the same.
  parkade_lookup_result result = {};
  EXPECT_REFUSED(parkade_restore_finish(restore, 0, &result), bad, "struct_size");
  parkade_stats stats = {};
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(parkade_get_stats(cache_, &stats), PARKADE_OK);
  EXPECT_EQ(stats.lookups, 1u);
  EXPECT_EQ(stats.miss_tokens, 200u);
  EXPECT_REFUSED(parkade_restore_finish(nullptr, 0, nullptr), bad, "restore is NULL");
}

TEST_F(ArgumentsTest, ManagementOfNothing) {
  const parkade_status bad = PARKADE_INVALID_ARGUMENT;
  const char* nobody = "0123456789abcdef0123456789abcdef";
  EXPECT_REFUSED(parkade_forget(cache_, "xyz", nullptr), bad, "32 hexadecimal");
  EXPECT_REFUSED(parkade_forget(cache_, nullptr, nullptr), bad, "id is NULL");
  EXPECT_EQ(parkade_forget(cache_, nobody, nullptr), PARKADE_NOT_FOUND);
  EXPECT_EQ(parkade_pin(cache_, nobody, true, nullptr), PARKADE_NOT_FOUND);
  EXPECT_REFUSED(parkade_list(cache_, 0, nullptr, nullptr), bad, "visit is NULL");
  EXPECT_REFUSED(parkade_drain(cache_, -1), bad, "negative");
  EXPECT_REFUSED(parkade_drain(nullptr, 1), bad, "cache is NULL");
  EXPECT_REFUSED(parkade_note_prompt_read(cache_, 0, 0, 1), bad, "above 0");
  EXPECT_EQ(parkade_note_prompt_read(cache_, 0, 1000, 0.5), PARKADE_OK);
  parkade_close(nullptr);
  parkade_model_close(nullptr);
  parkade_sequence_close(nullptr);
  parkade_restore_abandon(nullptr);
}

}  // namespace
}  // namespace parkade::test
