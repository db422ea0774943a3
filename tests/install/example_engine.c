/* An engine in C11 that keeps its conversations with Parkade: four layers on two devices, full rows
 * and rows of a sliding window, one plane in pages. What stands in a row follows from the tokens
 * before it, so that every byte that comes back can be checked.
 *
 *     example_engine DIRECTORY
 *
 * Parks a conversation, loses its memory, restores it; closes, opens again and restores it once
 * more. Prints where the tokens came from. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parkade/parkade.h"

enum {
  kLayers = 4,
  kPlanes = 2 * kLayers,
  kRowBytes = 96,
  kRows = 1024,      /* of a full plane: the context */
  kWindow = 128,     /* tokens that a window row is seen by */
  kWindowRows = 192, /* of a window plane: a ring */
  kPageRows = 16,
  kPages = kRows / kPageRows,
  kPagedPlane = 4, /* keys of layer 2 */
  kTokens = 600
};

typedef struct engine {
  parkade_plane planes[kPlanes];
  parkade_plane_rows rows[kPlanes];
  int32_t pages[kPages];
} engine;

static void check(parkade_status status, const char* what) {
  if (status == PARKADE_OK) return;
  fprintf(stderr, "%s: status %d: %s\n", what, (int)status, parkade_last_error());
  exit(1);
}

static void require(int true_enough, const char* what) {
  if (true_enough) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(1);
}

static int is_window(int plane) { return plane / 2 % 2 == 1; }

/* Layers 0 and 2 are full, 1 and 3 see a window. */
static void make_engine(engine* e) {
  memset(e, 0, sizeof *e);
  for (int i = 0; i < kPlanes; ++i) {
    e->planes[i].group = is_window(i) ? PARKADE_WINDOW : PARKADE_FULL;
    e->planes[i].kind = i % 2 == 0 ? PARKADE_KEY : PARKADE_VALUE;
    e->planes[i].layer = (uint16_t)(i / 2);
    e->planes[i].element_type = 1;
    e->planes[i].row_bytes = kRowBytes;
    e->rows[i].rows = is_window(i) ? kWindowRows : kRows;
    e->rows[i].base = malloc((size_t)e->rows[i].rows * kRowBytes);
    require(e->rows[i].base != NULL, "memory for a plane");
  }
  /* Pages that lie in any order. */
  for (int i = 0; i < kPages; ++i) e->pages[i] = (i * 37 + 5) % kPages;
  e->rows[kPagedPlane].page_rows = kPageRows;
  e->rows[kPagedPlane].pages = e->pages;
  e->rows[kPagedPlane].page_count = kPages;
}

static void free_engine(engine* e) {
  for (int i = 0; i < kPlanes; ++i) free(e->rows[i].base);
}

static unsigned char* row_at(engine* e, int plane, uint32_t position) {
  unsigned char* base = e->rows[plane].base;
  uint32_t row = position % e->rows[plane].rows;
  if (plane == kPagedPlane) {
    row = (uint32_t)e->pages[row / kPageRows] * kPageRows + row % kPageRows;
  }
  return base + (size_t)row * kRowBytes;
}

static void fill_row(unsigned char* row, int plane, uint64_t prefix) {
  uint64_t value = prefix ^ ((uint64_t)(plane + 1) << 32);
  for (int i = 0; i < kRowBytes; ++i) {
    value = value * 6364136223846793005u + 1442695040888963407u;
    row[i] = (unsigned char)(value >> 56);
  }
}

static uint64_t extend(uint64_t prefix, int32_t token) {
  return (prefix ^ (uint32_t)token) * 1099511628211u;
}

/* Reads the prompt: a row of every plane for each token. */
static void decode(engine* e, const int32_t* tokens, uint32_t count) {
  uint64_t prefix = 14695981039346656037u;
  for (uint32_t at = 0; at < count; ++at) {
    prefix = extend(prefix, tokens[at]);
    for (int plane = 0; plane < kPlanes; ++plane) fill_row(row_at(e, plane, at), plane, prefix);
  }
}

static void forget_memory(engine* e) {
  for (int i = 0; i < kPlanes; ++i) {
    memset(e->rows[i].base, 0xee, (size_t)e->rows[i].rows * kRowBytes);
  }
}

/* Every row that the engine needs to go on after `count` tokens. */
static void verify(engine* e, const int32_t* tokens, uint32_t count, uint32_t window_begin) {
  unsigned char wanted[kRowBytes];
  uint64_t prefix = 14695981039346656037u;
  require(window_begin + kWindow + 1 <= count, "the whole window is there");
  for (uint32_t at = 0; at < count; ++at) {
    prefix = extend(prefix, tokens[at]);
    for (int plane = 0; plane < kPlanes; ++plane) {
      if (is_window(plane) && at < window_begin) continue;
      fill_row(wanted, plane, prefix);
      require(memcmp(wanted, row_at(e, plane, at), kRowBytes) == 0, "a row is what it was");
    }
  }
}

static void log_line(void* user, parkade_log_level level, const char* line) {
  (void)user;
  if (level >= PARKADE_LOG_WARNING) fprintf(stderr, "parkade: %s\n", line);
}

static parkade_cache* open_cache(const char* directory) {
  parkade_cache_options options;
  parkade_cache_options_init(&options, sizeof options);
  options.ram_mib = 128;
  options.ram_min_free_mib = 0;
  options.disk_directory = directory;
  options.disk_mib = 256;
  options.disk_min_free_mib = 0;
  options.log = log_line;
  parkade_cache* cache = NULL;
  check(parkade_open(&options, &cache), "parkade_open");
  return cache;
}

static parkade_model* open_model(parkade_cache* cache, const engine* e) {
  const parkade_field fields[] = {{"weights", "example 1"}, {"rope", "10000"}};
  parkade_model_options options = {.struct_size = sizeof options};
  options.fields = fields;
  options.field_count = 2;
  options.planes = e->planes;
  options.plane_count = kPlanes;
  options.window_tokens = kWindow;
  parkade_model* model = NULL;
  check(parkade_model_open(cache, &options, &model), "parkade_model_open");
  return model;
}

static parkade_sequence* open_sequence(parkade_model* model, const engine* e) {
  const uint16_t first[] = {0, 1};
  const uint16_t second[] = {2, 3};
  parkade_stage stages[2];
  memset(stages, 0, sizeof stages);
  stages[0].name = "first half";
  stages[0].layers = first;
  stages[0].layer_count = 2;
  stages[1].name = "second half";
  stages[1].layers = second;
  stages[1].layer_count = 2;
  parkade_sequence_options options = {.struct_size = sizeof options};
  options.stages = stages;
  options.stage_count = 2;
  options.planes = e->rows;
  options.plane_count = kPlanes;
  parkade_sequence* sequence = NULL;
  check(parkade_sequence_open(model, &options, &sequence), "parkade_sequence_open");
  return sequence;
}

static void park(parkade_model* model, parkade_sequence* sequence, const int32_t* tokens) {
  parkade_park_options options = {.struct_size = sizeof options};
  options.tokens = tokens;
  options.token_count = kTokens;
  options.boundary = true;
  options.window_begin = kTokens - kWindowRows;
  parkade_park_result result = {.struct_size = sizeof result};
  check(parkade_park(model, sequence, &options, &result), "parkade_park");
  require(result.complete && result.captured_tokens == kTokens, "all of it is captured");
  require(strlen(result.conversation) == PARKADE_ID_CHARS - 1, "it has an id");
  printf("parked %u tokens\n", (unsigned)result.captured_tokens);
}

static void restore(parkade_model* model, parkade_sequence* sequence, engine* e,
                    const int32_t* prompt, const char* when) {
  parkade_lookup_options options = {.struct_size = sizeof options};
  options.tokens = prompt;
  options.token_count = kTokens + 1;
  parkade_restore* found = NULL;
  check(parkade_lookup(model, &options, &found), "parkade_lookup");
  parkade_restore_info info = {.struct_size = sizeof info};
  check(parkade_restore_plan(found, 10000, &info), "parkade_restore_plan");
  printf("%s: planned %u tokens, %u from ram, %u from disk\n", when, (unsigned)info.tokens,
         (unsigned)info.planned_tokens[PARKADE_RAM], (unsigned)info.planned_tokens[PARKADE_DISK]);
  uint32_t tokens = 0;
  check(parkade_restore_run(found, sequence, 10000, &tokens), "parkade_restore_run");
  check(parkade_restore_plan(found, 0, &info), "parkade_restore_plan");
  verify(e, prompt, tokens, info.window_begin);
  parkade_lookup_result result = {.struct_size = sizeof result};
  check(parkade_restore_finish(found, tokens, &result), "parkade_restore_finish");
  printf("%s: reused %u of %u tokens, %u from ram, %u from disk\n", when,
         (unsigned)result.reused_tokens, (unsigned)result.prompt_tokens,
         (unsigned)result.hit_tokens[PARKADE_RAM], (unsigned)result.hit_tokens[PARKADE_DISK]);
}

/* One life of the process: parks, if it is the first, and restores. */
static void live(const char* directory, engine* e, const int32_t* prompt, const char* when,
                 bool first) {
  parkade_cache* cache = open_cache(directory);
  parkade_model* model = open_model(cache, e);
  parkade_sequence* sequence = open_sequence(model, e);
  if (first) {
    decode(e, prompt, kTokens);
    park(model, sequence, prompt);
    check(parkade_drain(cache, 10000), "parkade_drain");
  }
  forget_memory(e);
  restore(model, sequence, e, prompt, when);
  parkade_sequence_close(sequence);
  parkade_model_close(model);
  parkade_close(cache);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: example_engine DIRECTORY\n");
    return 2;
  }
  require(parkade_api_version() == PARKADE_API_VERSION, "header and library belong together");
  static engine e;
  int32_t prompt[kTokens + 1];
  for (int i = 0; i <= kTokens; ++i) prompt[i] = i * i % 5003;
  make_engine(&e);
  live(argv[1], &e, prompt, "before the restart", true);
  live(argv[1], &e, prompt, "after the restart", false);
  free_engine(&e);
  return 0;
}
