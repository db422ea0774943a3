// Values for the format tests: fixed ones, which the golden files hold, and random ones.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "src/format/catalogue.h"
#include "src/format/segment.h"

namespace parkade {

// The seed of a randomised test: printed, and taken from PARKADE_SEED when that is set.
inline std::mt19937_64 SeededRandom() {
  const char* wanted = std::getenv("PARKADE_SEED");
  const std::uint64_t seed =
      wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : std::random_device{}();
  std::cout << "PARKADE_SEED=" << seed << "\n";
  return std::mt19937_64(seed);
}

// Uniform in [least, most].
inline std::uint64_t Draw(std::mt19937_64& random, std::uint64_t least, std::uint64_t most) {
  return std::uniform_int_distribution<std::uint64_t>(least, most)(random);
}

inline ParkKey SampleKey() {
  return {.conversation = {0x0123456789abcdefull, 0xfedcba9876543210ull}, .park = 0x01020304};
}

inline ParkSummary SampleSummary() {
  ParkSummary summary;
  summary.key = SampleKey();
  summary.identity = {0x1111111111111111ull, 0x2222222222222222ull};
  summary.parent = {0x3333333333333333ull, 0x4444444444444444ull};
  summary.parent_tokens = 100;
  summary.first_token = 100;
  summary.token_count = 200;  // pages end at 128, 192, 256
  summary.generation = 7;
  summary.created_unix_ms = 1700000000123;
  summary.payload_bytes = 123456789;
  summary.page_hashes = {0xa1a2a3a4a5a6a7a8ull, 0xb1b2b3b4b5b6b7b8ull, 0xc1c2c3c4c5c6c7c8ull};
  summary.window_rows = {{100, 150}, {160, 300}};
  summary.checkpoints = {128, 300};
  summary.stages.stages = {{"CUDA0", {0, 1, 2}}, {"RPC[10.0.0.2:50052]", {3, 4}}};
  return summary;
}

inline std::vector<StoredExtent> SampleExtents() {
  StoredExtent full;
  full.info = {.group = RowGroup::kFull,
               .stage = 1,
               .first = 100,
               .rows = 200,
               .part = 0,
               .parts = 1,
               .raw_bytes = 409600,
               .checksum = {0x5555555555555555ull, 0x6666666666666666ull}};
  full.ordinal = 1;
  full.codec = Codec::kLz4;
  full.stored_bytes = 300000;
  full.offset = 1024;
  StoredExtent state;
  state.info = {.group = RowGroup::kState,
                .stage = 1,
                .first = 300,
                .rows = 1,
                .part = 2,
                .parts = 3,
                .raw_bytes = 12345,
                .checksum = {0x7777777777777777ull, 0x8888888888888888ull}};
  state.ordinal = 5;
  state.codec = Codec::kRaw;
  state.stored_bytes = 12345;
  state.offset = 301120;
  return {full, state};
}

inline StoredIdentity SampleIdentity() {
  StoredIdentity stored;
  stored.identity.Set("weights", "xxh3:00ff");
  stored.identity.Set("kv_type_k", "q8_0");
  stored.identity.Set("rope", "");
  stored.layout.window_tokens = 512;
  stored.layout.planes = {
      {RowGroup::kFull, PlaneKind::kKey, 0, 8, 544},
      {RowGroup::kFull, PlaneKind::kValue, 0, 8, 544},
      {RowGroup::kWindow, PlaneKind::kKey, 1, 1, 512},
      {RowGroup::kState, PlaneKind::kState, 2, 0, 5000000},
  };
  return stored;
}

inline ConversationAttributes SampleAttributes() {
  ConversationAttributes attributes;
  attributes.conversation = SampleKey().conversation;
  attributes.last_used_unix_ms = 1700000000456;
  attributes.hits = 3;
  attributes.pinned = true;
  attributes.name = "book-club";
  attributes.name_tokens = 250;
  return attributes;
}

inline std::vector<CatalogueRow> SampleRows() {
  return {
      {CatalogueRow::Family::kManifest, ManifestKey(SampleKey()), EncodeManifest(SampleSummary())},
      {CatalogueRow::Family::kImage, ImageKey(SampleKey(), 1), EncodeImage(77, SampleExtents())},
      {CatalogueRow::Family::kTombstone, ConversationKey(SampleKey().conversation), ""},
  };
}

inline bool operator==(const StoredExtent& left, const StoredExtent& right) {
  return left.info == right.info && left.ordinal == right.ordinal && left.codec == right.codec &&
         left.stored_bytes == right.stored_bytes && left.offset == right.offset;
}

inline bool operator==(const CatalogueRow& left, const CatalogueRow& right) {
  return left.family == right.family && left.key == right.key && left.value == right.value;
}

inline bool operator==(const ConversationAttributes& left, const ConversationAttributes& right) {
  return left.conversation == right.conversation &&
         left.last_used_unix_ms == right.last_used_unix_ms && left.hits == right.hits &&
         left.pinned == right.pinned && left.name == right.name &&
         left.name_tokens == right.name_tokens;
}

}  // namespace parkade
