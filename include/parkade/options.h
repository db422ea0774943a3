// Settings of the cache. Each says who sets it; the program's flag table (src/server) fills it.
#pragma once

#include <cstdint>
#include <string>

#include "parkade/image.h"

namespace parkade {

enum class CodecChoice { kAuto, kNone, kLz4, kZstd };

struct CacheOptions {
  // Memory the cache may hold, capture buffers, queue and index included. 0: no RAM tier; then at
  // most kFixedBytes are held. Set by users from the RAM they can spare.
  std::uint64_t ram_budget_bytes = 8192ull << 20;
  // Most root conversations in RAM; 0: no limit. Set by users who think in chats.
  std::uint32_t ram_slots = 0;
  // Memory to leave free on the machine (or control group); below it parks go to disk only.
  std::uint64_t ram_min_free_bytes = 2560ull << 20;
  // Shorter conversations are not parked.
  std::uint32_t min_tokens = 64;
  // A match is restored only when it gains at least this many tokens over what the slot holds.
  std::uint32_t min_gain_tokens = 64;
  // Buffers for capture and for reading; part of ram_budget_bytes.
  std::uint64_t capture_buffer_bytes = 128ull << 20;
  // Few, so that they stay in the processor's last cache between the read and the import.
  std::uint64_t read_buffer_bytes = 24ull << 20;
  // Memory of index and catalogue; beyond it the oldest leaves lose their index entries. 0: what
  // the buffers leave of ram_budget_bytes or, where that is less, of kFixedBytes; at least
  // kLeastIndexBytes. Set by tests.
  std::uint64_t index_bytes = 0;
  // Page hashes are HMACs under this key; empty: XXH3, seeded with the durable tier's secret. Set
  // by programs whose durable tiers are encrypted; always the same for one directory.
  std::string page_hash_key;
  // Threads that read and check ahead of the import.
  int reader_threads = 2;
  // The same for a shared tier, whose answers are waited for: values of one restore on their way at
  // a time, and lookups that ask it.
  int far_reader_threads = 4;
  int finder_threads = 2;
  // Longest wait of a request for bytes that are being read, without progress.
  std::int64_t restore_deadline_ms = 30000;
};

// What capture and read buffers, index and database buffers may hold without a RAM tier.
inline constexpr std::uint64_t kFixedBytes = 192ull << 20;
// Left to the index whatever a budget says: without it nothing on disk would be found.
inline constexpr std::uint64_t kLeastIndexBytes = 8ull << 20;

}  // namespace parkade
