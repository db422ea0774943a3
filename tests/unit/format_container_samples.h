// A small container in memory, with every group and a park without tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/format/checksum.h"
#include "src/format/container.h"

namespace parkade {

inline ConversationId ContainerConversation() {
  return {0x0123456789abcdefull, 0xfedcba9876543210ull};
}

inline StoredIdentity ContainerIdentity() {
  StoredIdentity stored;
  stored.identity.Set("weights", "sample");
  stored.identity.Set("rope", "");
  stored.layout.window_tokens = 3;
  stored.layout.planes = {{RowGroup::kFull, PlaneKind::kKey, 0, 1, 4},
                          {RowGroup::kFull, PlaneKind::kValue, 0, 1, 2},
                          {RowGroup::kWindow, PlaneKind::kKey, 1, 1, 3},
                          {RowGroup::kState, PlaneKind::kState, 2, 0, 5}};
  return stored;
}

inline ContainerHeader SampleContainerHeader() {
  return {ContainerConversation(), ContainerIdentity().identity.digest()};
}

inline ConversationAttributes ContainerAttributes() {
  ConversationAttributes attributes;
  attributes.conversation = ContainerConversation();
  attributes.last_used_unix_ms = 1700000000456;
  attributes.hits = 3;
  attributes.pinned = true;
  attributes.name = "book-club";
  attributes.name_tokens = 6;
  return attributes;
}

// A park as a writer has it: stored[i] are the bytes of extents[i], which are not packed.
struct SampleContainerPark {
  ParkRecord record;
  std::vector<StoredExtent> extents;
  std::vector<std::string> stored;
};

// Tokens [first, first + count), all extents that the ranges give by the cutting rule.
inline SampleContainerPark MakeContainerPark(std::uint32_t park, std::uint32_t first,
                                             std::uint32_t count,
                                             std::vector<TokenRange> window_rows,
                                             std::vector<std::uint32_t> checkpoints) {
  SampleContainerPark made;
  ParkSummary& summary = made.record.summary;
  summary.key = {ContainerConversation(), park};
  summary.identity = SampleContainerHeader().identity;
  summary.first_token = first;
  summary.token_count = count;
  summary.created_unix_ms = 1700000000123;
  summary.window_rows = std::move(window_rows);
  summary.checkpoints = std::move(checkpoints);
  summary.stages.stages = {{"CUDA0", {0}}, {"RPC0", {1, 2}}};
  summary.page_hashes.resize((first + count) / kPageTokens - first / kPageTokens);
  for (std::uint32_t i = 0; i < count; ++i) {
    made.record.tokens.push_back(static_cast<Token>(1000 + 7 * (first + i)));
  }
  const StateLayout layout = ContainerIdentity().layout;
  const auto add = [&](RowGroup group, TokenRange range) {
    for (ExtentInfo info : CutIntoExtents(layout, summary.stages, group, range)) {
      std::string bytes(info.raw_bytes, '\0');
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<char>(31 * info.first + 7 * i + static_cast<int>(group));
      }
      info.checksum = Checksum(bytes);
      StoredExtent extent;
      extent.info = info;
      extent.stored_bytes = info.raw_bytes;
      summary.payload_bytes += info.raw_bytes;
      made.record.extents.push_back(info);
      made.extents.push_back(extent);
      made.stored.push_back(std::move(bytes));
    }
  };
  add(RowGroup::kFull, {first, first + count});
  for (const TokenRange& rows : summary.window_rows) add(RowGroup::kWindow, rows);
  for (const std::uint32_t at : summary.checkpoints) add(RowGroup::kState, {at, at + 1});
  return made;
}

inline std::vector<SampleContainerPark> ContainerParks() {
  return {MakeContainerPark(0, 0, 4, {{1, 4}}, {4}), MakeContainerPark(1, 4, 3, {{4, 7}}, {5, 7}),
          MakeContainerPark(2, 7, 0, {{0, 1}}, {})};
}

inline void PadContainer(std::string* bytes) {
  bytes->append((kExtentAlignment - bytes->size() % kExtentAlignment) % kExtentAlignment, '\0');
}

inline std::string ParkSegmentBytes(const SampleContainerPark& park) {
  const auto placed = LayOutContainerPark(park.record, park.extents);
  if (!placed.ok()) return std::string(placed.status().message());
  std::string bytes = placed->head;
  for (std::size_t i = 0; i < placed->extents.size(); ++i) {
    PadContainer(&bytes);
    bytes += EncodeExtentHeader(park.record.summary.key, placed->extents[i]);
    bytes += park.stored[i];
  }
  return bytes;
}

// A whole file.
inline std::string SampleContainer() {
  std::string bytes = EncodeContainerHeader(SampleContainerHeader());
  bytes +=
      EncodeContainerOpening(SampleContainerHeader(), ContainerIdentity(), ContainerAttributes());
  ContainerTrailer trailer;
  for (const SampleContainerPark& park : ContainerParks()) {
    PadContainer(&bytes);
    bytes += ParkSegmentBytes(park);
    ++trailer.parks;
    trailer.tokens = std::max(trailer.tokens, park.record.summary.end_token());
  }
  PadContainer(&bytes);
  trailer.file_bytes = bytes.size() + kContainerTrailerBytes;
  trailer.checksum = Checksum(bytes);
  return bytes + EncodeContainerTrailer(trailer);
}

}  // namespace parkade
