/* Parkade for inference engines, in C11: keeps the state of conversations in RAM, on disk and in a
 * remote store, and gives it back. README.md beside this file shows the calls in order.
 *
 * Errors. Functions return a parkade_status; on anything but PARKADE_OK the outputs are untouched
 * and parkade_last_error() says in one line what was wrong. Nothing throws. A prompt of which
 * nothing is kept, or what is kept and damaged, is no error: fewer tokens are restored, or none.
 *
 * Threads. Parking, restoring, finishing and the calls on a sequence belong to the engine's serving
 * thread, one call at a time for all sequences of a cache: parkade_park, parkade_restore_step,
 * _run, _finish and _abandon, parkade_sequence_*. They wait for no disk and no network, except
 * parkade_restore_run. All other functions may be called from any thread, for one restore one call
 * at a time. A handle must not be in use when it is closed.
 *
 * Memory. Arrays and strings that are passed in are copied before the call returns; what they say
 * about the engine's own memory (base pointers, streams) must stay true as long as it is said.
 * Structs that begin with struct_size grow at their end: set it to sizeof the struct and what is
 * not used to zero, before each call, also where the struct is an output. */
#ifndef PARKADE_PARKADE_H_
#define PARKADE_PARKADE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PARKADE_API __attribute__((visibility("default")))
#else
#define PARKADE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when something that a program uses changes its meaning; additions do not raise it. */
#define PARKADE_API_VERSION 1
/* Of the library that is running. */
PARKADE_API uint32_t parkade_api_version(void);
/* "0.1.0"; lives as long as the library. */
PARKADE_API const char* parkade_version(void);

typedef enum parkade_status {
  PARKADE_OK = 0,
  PARKADE_INVALID_ARGUMENT = 1,    /* the call is wrong, whatever the state is */
  PARKADE_FAILED_PRECONDITION = 2, /* not in this state; the message says which */
  PARKADE_NOT_FOUND = 3,
  PARKADE_ALREADY_EXISTS = 4,
  PARKADE_NO_ROOM = 5,
  PARKADE_UNAVAILABLE = 6, /* a medium or a device can't be used now */
  PARKADE_TIMEOUT = 7,
  PARKADE_UNSUPPORTED = 8, /* not in this build */
  PARKADE_INTERNAL = 9
} parkade_status;

/* Of this thread's last call that did not return PARKADE_OK; "" before the first. Valid until the
 * thread's next such call. */
PARKADE_API const char* parkade_last_error(void);

typedef struct parkade_cache parkade_cache;
typedef struct parkade_model parkade_model;
typedef struct parkade_sequence parkade_sequence;
typedef struct parkade_restore parkade_restore;

/* ---- cache ---- */

typedef enum parkade_log_level {
  PARKADE_LOG_DEBUG = 0,
  PARKADE_LOG_INFO = 1,
  PARKADE_LOG_WARNING = 2,
  PARKADE_LOG_ERROR = 3
} parkade_log_level;

/* One line without its end, valid during the call. From any thread, several at a time; must not
 * call into the library. */
typedef void (*parkade_log_fn)(void* user, parkade_log_level level, const char* line);

typedef struct parkade_cache_options {
  size_t struct_size;
  uint64_t ram_mib;           /* all memory the cache may hold, 45 MiB or more of it for buffers and
                                 index. 0: no RAM tier; then at most 192 MiB for those */
  uint64_t ram_min_free_mib;  /* to leave free on the machine; below it, parks go to disk only */
  const char* disk_directory; /* made if it is not there, mode 0700; NULL or "": no disk tier. One
                                 process at a time */
  uint64_t disk_mib;          /* 0: the smaller of 64 GiB and 20 % of the free space plus what is
                                 there already */
  uint64_t disk_min_free_mib; /* to leave free on the file system */
  const char* remote_url;     /* redis://[USER:PASSWORD@]HOST[:PORT][,...][/PREFIX], rediss://; NULL
                                 or "": no remote tier */
  const char* key_file;       /* 32 bytes or 64 hexadecimal digits, mode 0600: disk and remote are
                                 encrypted; NULL or "": they are not */
  uint32_t min_tokens;        /* shorter sequences are not parked */
  uint32_t min_gain_tokens;   /* nor restored what gains fewer over what the slot holds */
  parkade_log_fn log;         /* NULL: no log */
  void* log_user;
} parkade_cache_options;

/* Sets struct_size, which is sizeof *options, and the defaults: 8192 MiB of RAM with 2560 left
 * free, no disk (4096 MiB left free), no remote, 64 tokens each. Does nothing on a size that this
 * library does not know. */
PARKADE_API void parkade_cache_options_init(parkade_cache_options* options, size_t struct_size);

/* Reads the catalogue of the disk tier, no state; a remote that can't be reached now is used when
 * it is there. INVALID_ARGUMENT, FAILED_PRECONDITION (another process has the directory, or it has
 * another key), NO_ROOM, UNAVAILABLE. */
PARKADE_API parkade_status parkade_open(const parkade_cache_options* options,
                                        parkade_cache** cache);
/* Ends what is under way; what is queued for the disk is written unless that takes too long, see
 * parkade_drain. Restores that are open are abandoned; their handles, and those of models and
 * sequences, stay and must be closed, every other call on them fails. NULL is allowed. */
PARKADE_API void parkade_close(parkade_cache* cache);
/* Waits until all that was parked is where it stays. TIMEOUT: what nobody had begun to write in
 * time is dropped; what was begun goes on. */
PARKADE_API parkade_status parkade_drain(parkade_cache* cache, int64_t deadline_ms);

/* ---- model: what must be equal, besides the tokens, for state to be reusable ---- */

/* Compared byte for byte, in the order given. Name everything that changes the rows a token gets:
 * digest of the weights, adapters and their scales, element types, RoPE values in force. Names are
 * unique and not empty; "layout" is the library's, for the planes. */
typedef struct parkade_field {
  const char* name;
  const char* value;
} parkade_field;

/* How long a row lives. FULL: one row a token, always needed. WINDOW: one row a token, needed for
 * the last window_tokens + 1. STATE: one row in all, valid for all tokens at one position. */
typedef enum parkade_group {
  PARKADE_FULL = 0,
  PARKADE_WINDOW = 1,
  PARKADE_STATE = 2
} parkade_group;
typedef enum parkade_kind {
  PARKADE_KEY = 0,
  PARKADE_VALUE = 1,
  PARKADE_CONV = 2,
  PARKADE_RECURRENT = 3,
  PARKADE_EXTRA = 4
} parkade_kind;

/* One tensor of a layer: rows of row_bytes contiguous bytes. At most one of a group, layer and
 * kind. The full rows of one token, all planes together, are at most 8 MiB; the window rows too. */
typedef struct parkade_plane {
  parkade_group group;
  parkade_kind kind;
  uint16_t layer;        /* below 32768 */
  uint32_t element_type; /* the engine's own number, compared only */
  uint64_t row_bytes;
} parkade_plane;

typedef struct parkade_model_options {
  size_t struct_size;
  const parkade_field* fields;
  size_t field_count;
  const parkade_plane* planes; /* any order; a sequence gives its rows in the same */
  size_t plane_count;
  uint32_t window_tokens; /* rows of a window plane that a token sees; 0: no window planes */
} parkade_model_options;

/* Cheap; several models, one for each set of adapters, may share their planes. */
PARKADE_API parkade_status parkade_model_open(parkade_cache* cache,
                                              const parkade_model_options* options,
                                              parkade_model** model);
PARKADE_API void parkade_model_close(parkade_model* model);

/* ---- sequence: where the rows of one slot are ---- */

typedef enum parkade_device { PARKADE_HOST = 0, PARKADE_CUDA = 1 } parkade_device;

/* Layers on one device. How they are split may differ from when they were parked. */
typedef struct parkade_stage {
  const char* name;       /* shown only; NULL: as the device is called */
  const uint16_t* layers; /* ascending; each layer of the model is in exactly one stage */
  size_t layer_count;
  parkade_device device;
  int32_t ordinal; /* of a CUDA device */
  void* stream;    /* its cudaStream_t: copies out come after what is queued there */
} parkade_stage;

/* Rows of one plane, in the memory of its layer's device. Row r begins r * row_stride bytes after
 * base; with pages, row r is row r % page_rows of page pages[r / page_rows], and page p begins
 * p * page_stride bytes after base. The row of a token at position p is p (FULL), p % rows (WINDOW:
 * a ring, or as many rows as tokens), 0 (STATE). */
typedef struct parkade_plane_rows {
  void* base;
  uint32_t rows;        /* [0, rows) may be read and written */
  uint64_t row_stride;  /* bytes; 0: row_bytes */
  uint32_t page_rows;   /* 0: no pages */
  uint64_t page_stride; /* bytes; 0: page_rows * row_stride */
  const int32_t* pages; /* negative: that page is not there */
  size_t page_count;    /* page_count * page_rows is at least rows */
} parkade_plane_rows;

typedef struct parkade_sequence_options {
  size_t struct_size;
  const parkade_stage* stages;
  size_t stage_count;
  const parkade_plane_rows* planes; /* one for each of the model's; NULL: none yet */
  size_t plane_count;
} parkade_sequence_options;

/* The first CUDA stage on a card and stream takes 16 MiB of the card's memory, which all sequences
 * share. From then on buffers and what the RAM tier keeps are page-locked, as far as the system and
 * ram_mib allow. UNSUPPORTED: this build is without CUDA; UNAVAILABLE: no such card or driver. */
PARKADE_API parkade_status parkade_sequence_open(parkade_model* model,
                                                 const parkade_sequence_options* options,
                                                 parkade_sequence** sequence);
/* Whenever memory moves or a page table changes, before the next park or restore.
 * FAILED_PRECONDITION: a restore into this sequence is not finished. */
PARKADE_API parkade_status parkade_sequence_set_planes(parkade_sequence* sequence,
                                                       const parkade_plane_rows* planes,
                                                       size_t plane_count);
/* Ends a restore into it. */
PARKADE_API void parkade_sequence_close(parkade_sequence* sequence);

/* ---- lookup and restore ---- */

typedef struct parkade_range {
  uint32_t begin;
  uint32_t end;
} parkade_range;

typedef struct parkade_lookup_options {
  size_t struct_size;
  const int32_t* tokens; /* the whole prompt */
  size_t token_count;
  uint32_t held_tokens;      /* of the prompt, that the sequence holds and could go on from */
  bool held_all;             /* it holds nothing else */
  uint32_t cacheable_tokens; /* what follows these is not told by its ids; 0: all can be kept */
  const parkade_range*
      whole_ranges; /* reused whole or not at all (a picture): ascending, disjoint */
  size_t whole_range_count;
} parkade_lookup_options;

typedef enum parkade_restore_state {
  PARKADE_PLANNING = 0, /* comparing tokens */
  PARKADE_MISS = 1,     /* nothing better than what the sequence holds, which is untouched */
  PARKADE_READING = 2,  /* bytes are on their way */
  PARKADE_RESTORED = 3, /* the sequence holds restored_tokens */
  PARKADE_FAILED = 4    /* a miss, too, but what the sequence held is undefined */
} parkade_restore_state;

/* Where tokens came from: the sequence itself, or a tier. */
typedef enum parkade_source {
  PARKADE_SLOT = 0,
  PARKADE_RAM = 1,
  PARKADE_DISK = 2,
  PARKADE_REMOTE = 3
} parkade_source;
#define PARKADE_SOURCES 4

typedef struct parkade_restore_info {
  size_t struct_size;
  parkade_restore_state state;
  uint32_t tokens;       /* planned while READING, held when RESTORED, else 0 */
  uint32_t window_begin; /* when RESTORED: window rows of [window_begin, tokens) are there */
  uint32_t planned_tokens[PARKADE_SOURCES]; /* of the plan, by where they are read from */
} parkade_restore_info;

typedef struct parkade_lookup_result {
  size_t struct_size;
  uint32_t prompt_tokens;
  uint32_t matched_tokens; /* equal to something parked, or held */
  uint32_t reused_tokens;
  uint32_t hit_tokens[PARKADE_SOURCES]; /* their sum is reused_tokens */
  uint64_t restored_bytes;
  double restore_seconds;
  char miss_reason[16]; /* why most of the others are computed: "new", "cold", "diverged" ... */
} parkade_lookup_result;

/* Returns at once; on PARKADE_OK *restore is to be finished or abandoned. A prompt matches from its
 * first token on, at least 64 of them. */
PARKADE_API parkade_status parkade_lookup(parkade_model* model,
                                          const parkade_lookup_options* options,
                                          parkade_restore** restore);
/* Waits until the state is not PLANNING. TIMEOUT: *info says what is so far. */
PARKADE_API parkade_status parkade_restore_plan(parkade_restore* restore, int64_t timeout_ms,
                                                parkade_restore_info* info);
/* Imports what is ready for at most budget_us, at least one extent (up to 4 MiB); *state tells how
 * it stands. Restores that go on at the same time are stepped in turns: they share buffers. The
 * planes must have rows for all planned tokens, or it fails. Park what the sequence holds first. */
PARKADE_API parkade_status parkade_restore_step(parkade_restore* restore,
                                                parkade_sequence* sequence, int64_t budget_us,
                                                parkade_restore_state* state);
/* Steps until it has ended. TIMEOUT: it may be gone on with, or abandoned. */
PARKADE_API parkade_status parkade_restore_run(parkade_restore* restore, parkade_sequence* sequence,
                                               int64_t timeout_ms, uint32_t* restored_tokens);
/* The engine goes on after reused_tokens of the prompt: this is counted, and the handle closed,
 * whatever comes back. *result may be NULL. */
PARKADE_API parkade_status parkade_restore_finish(parkade_restore* restore, uint32_t reused_tokens,
                                                  parkade_lookup_result* result);
/* Closes the handle and counts nothing. A sequence that it was restored into half holds nothing
 * that is defined. */
PARKADE_API void parkade_restore_abandon(parkade_restore* restore);
/* What reading prompts costs here: a restore that would take longer is not made. */
PARKADE_API parkade_status parkade_note_prompt_read(parkade_cache* cache, uint32_t first_token,
                                                    uint32_t tokens, double seconds);

/* ---- park ---- */

#define PARKADE_ID_CHARS 33 /* 32 hexadecimal digits and the end */

typedef struct parkade_park_options {
  size_t struct_size;
  const int32_t* tokens; /* all that the sequence holds; a STATE row is behind the last one */
  size_t token_count;
  bool boundary;         /* keep window and state rows, too: a prompt may go on from here */
  uint32_t window_begin; /* window rows of [window_begin, token_count) are in memory */
} parkade_park_options;

typedef struct parkade_park_result {
  size_t struct_size;
  uint32_t captured_tokens; /* held by a tier or on their way to one: memory may be reused */
  bool complete;            /* false: buffers are full; call again later, it goes on */
  char conversation[PARKADE_ID_CHARS]; /* what holds them; "": nothing does */
} parkade_park_result;

/* Copies what no tier has yet, once, and returns; tiers are written behind the call. A prefix that
 * is kept already costs nothing. FAILED_PRECONDITION: the planes do not have these rows. */
PARKADE_API parkade_status parkade_park(parkade_model* model, parkade_sequence* sequence,
                                        const parkade_park_options* options,
                                        parkade_park_result* result);

/* ---- management ---- */

/* Not listed or matched from the return on. *kept_tokens, which may be NULL: what forks of it still
 * need. */
PARKADE_API parkade_status parkade_forget(parkade_cache* cache, const char* id,
                                          uint32_t* kept_tokens);
/* Pinned ones are not evicted. A name of NULL leaves the name, "" takes it away. NO_ROOM: pins
 * would hold more than 80 % of a tier. */
PARKADE_API parkade_status parkade_pin(parkade_cache* cache, const char* id, bool pinned,
                                       const char* name);

typedef struct parkade_conversation {
  size_t struct_size;
  char id[PARKADE_ID_CHARS];
  const char* name; /* "": none; valid during the call */
  uint32_t tokens;
  uint32_t durable_tokens; /* would be there after a crash */
  uint64_t bytes;          /* its own, without what it shares with the one it is a fork of */
  bool pinned;
  bool in_tier[PARKADE_SOURCES];
  int64_t last_used_unix_ms;
  uint64_t hits;
} parkade_conversation;

/* Calls `visit` for at most `limit` conversations (0: all), until it returns false. */
PARKADE_API parkade_status parkade_list(parkade_cache* cache, uint32_t limit,
                                        bool (*visit)(void* user,
                                                      const parkade_conversation* conversation),
                                        void* user);

/* Counts are since parkade_open, bytes of state; the rest is as of now. */
typedef struct parkade_stats {
  size_t struct_size;
  uint64_t lookups;
  uint64_t prompt_tokens; /* hits and misses together */
  uint64_t hit_tokens[PARKADE_SOURCES];
  uint64_t miss_tokens;
  uint64_t restored_bytes;
  uint64_t parked_bytes;
  uint64_t skipped_tokens;              /* that were to be parked and were not */
  uint64_t used_bytes[PARKADE_SOURCES]; /* by tier; what others have in a remote is not known */
  uint64_t budget_bytes[PARKADE_SOURCES];
  uint64_t queue_bytes; /* captured, and not yet where it stays */
  uint64_t index_bytes;
  uint64_t page_locked_bytes; /* for cards: a part of ram_mib, whether it is in use or not */
} parkade_stats;
PARKADE_API parkade_status parkade_get_stats(parkade_cache* cache, parkade_stats* stats);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PARKADE_PARKADE_H_ */
