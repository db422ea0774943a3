// Vocabulary of stored state: tokens, planes, stages, extents, parks. See DESIGN section 1 and
// src/format/FORMAT.md. Everything here is a value; nothing refers to an engine or a medium.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parkade/identity.h"

namespace parkade {

using Token = std::int32_t;

// Tokens are indexed in pages; a page is full or not indexed.
inline constexpr std::uint32_t kPageTokens = 64;
// An extent holds at most this many token rows ...
inline constexpr std::uint32_t kExtentRows = 256;
// ... and at most this many raw bytes; a longer row is cut into parts.
inline constexpr std::uint64_t kExtentBytes = 4ull << 20;
// A park, and so the segment that holds it, carries at most this many raw payload bytes.
inline constexpr std::uint64_t kParkBytes = 60ull << 20;

using ConversationId = Digest128;

// Positions at which recurrent state is kept in the middle of a long prompt: from here on,
// doubling. A branch in the middle loses at most half of what lies before it, and a conversation
// has as many of them as its length has doublings, however it is cut into messages. Counted from
// the start, not from where reading began, so that a prefix that is read again, or shared, has them
// where it had them: they are kept once.
inline constexpr std::uint32_t kFirstBetween = 512;

inline bool IsBetween(std::uint32_t position) {
  return position >= kFirstBetween && (position & (position - 1)) == 0;
}

// Half-open range of token positions.
struct TokenRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// Kinds of planes by how long a row lives. Values are stored.
enum class RowGroup : std::uint8_t {
  kFull = 0,    // one row a token, kept for the whole conversation
  kWindow = 1,  // one row a token, needed only for the last `window_tokens` + 1 tokens
  kState = 2,   // recurrent state: one row, valid at exactly one position (a checkpoint)
};

// Values are stored.
enum class PlaneKind : std::uint8_t { kKey = 0, kValue = 1, kConv = 2, kState = 3, kExtra = 4 };

// One layer's K or V (or recurrent tensor): rows of `row_bytes` bytes.
struct Plane {
  RowGroup group = RowGroup::kFull;
  PlaneKind kind = PlaneKind::kKey;
  std::uint16_t layer = 0;
  std::uint32_t element_type = 0;  // the engine's number, compared only
  std::uint64_t row_bytes = 0;
  friend bool operator==(const Plane&, const Plane&) = default;
};

// All planes of a model's memory in canonical order: by group, then layer, then kind.
// Part of the identity: two images with different layouts never meet.
struct StateLayout {
  std::vector<Plane> planes;
  std::uint32_t window_tokens = 0;  // rows a token of a window plane can see; 0: no window planes
  bool has_group(RowGroup group) const;
  // No window planes and no recurrent state: one can go on at any position whose rows are there.
  bool rows_alone() const;
  friend bool operator==(const StateLayout&, const StateLayout&) = default;
};

// A contiguous range of layers on one device. A layer belongs to exactly one stage.
struct Stage {
  std::string device;                 // as the engine names it, shown only
  std::vector<std::uint16_t> layers;  // ascending
  friend bool operator==(const Stage&, const Stage&) = default;
};

// Layers of a draft model are numbered from here on. Their rows form the last stage of a park that
// has them: they are of use, but nothing needs them, and their planes are no part of the identity.
inline constexpr std::uint16_t kDraftLayers = 0x8000;

inline bool IsDraft(const Stage& stage) {
  return !stage.layers.empty() && stage.layers.front() >= kDraftLayers;
}

// A draft stage's device begins with its name, which tells apart drafts whose rows differ.
std::string DraftDevice(std::string_view name, std::string_view device);
// That part of it.
std::string_view DraftName(const Stage& stage);

struct StageMap {
  std::vector<Stage> stages;
  friend bool operator==(const StageMap&, const StageMap&) = default;
};

// Values are stored.
enum class Codec : std::uint8_t { kRaw = 0, kLz4 = 1, kZstd = 2, kZstdShuffled = 3 };

// The unit that is stored, checked and moved.
//
// Raw payload of (stage, group, first, rows): for each plane of the layout whose group is `group`
// and whose layer is in the stage, in layout order, its `rows` rows one after the other. That byte
// string is cut into `parts` pieces of kExtentBytes (the last one shorter); this extent is piece
// `part`. `parts` > 1 only when rows == 1.
struct ExtentInfo {
  RowGroup group = RowGroup::kFull;
  std::uint16_t stage = 0;
  std::uint32_t first = 0;  // first token; for kState the position: tokens that came before it
  std::uint32_t rows = 0;   // token rows; 1 for kState
  std::uint16_t part = 0;
  std::uint16_t parts = 1;
  std::uint32_t raw_bytes = 0;
  Digest128 checksum;  // XXH3-128 of the raw bytes, seed 0
  friend bool operator==(const ExtentInfo&, const ExtentInfo&) = default;
};

struct ParkKey {
  ConversationId conversation;
  std::uint32_t park = 0;  // numbered from 0 within the conversation
  friend bool operator==(const ParkKey&, const ParkKey&) = default;
  friend auto operator<=>(const ParkKey&, const ParkKey&) = default;
};

// Everything about a park except tokens, extents and bytes: what rewarming reads.
struct ParkSummary {
  ParkKey key;
  Digest128 identity;
  ConversationId parent;            // zero: a root
  std::uint32_t parent_tokens = 0;  // tokens [0, parent_tokens) are the parent's
  std::uint32_t first_token = 0;  // the park holds tokens [first_token, first_token + token_count)
  std::uint32_t token_count = 0;  // may be 0: only window rows or checkpoints were added
  std::uint64_t generation = 0;   // of the conversation, raised by forget
  std::int64_t created_unix_ms = 0;
  std::uint64_t payload_bytes = 0;         // raw bytes of all extents
  std::vector<std::uint64_t> page_hashes;  // pages that end in (first_token, first_token + count]
  std::vector<TokenRange> window_rows;     // ranges of window rows present, ascending, disjoint
  std::vector<std::uint32_t> checkpoints;  // positions, ascending
  StageMap stages;

  std::uint32_t end_token() const { return first_token + token_count; }
  friend bool operator==(const ParkSummary&, const ParkSummary&) = default;
};

// A whole park without its bytes. `extents[i]` is extent number i everywhere.
struct ParkRecord {
  ParkSummary summary;
  std::vector<Token> tokens;  // token_count of them
  std::vector<ExtentInfo> extents;
};

// Bytes of one extent. Memory comes from a BufferPool (src/manager) or from a tier; the last owner
// gives it back. Shared and immutable once filled, so any thread may read it.
class ExtentBuffer {
 public:
  ExtentBuffer(char* data, std::size_t size) : data_(data), size_(size) {}
  virtual ~ExtentBuffer() = default;
  ExtentBuffer(const ExtentBuffer&) = delete;
  ExtentBuffer& operator=(const ExtentBuffer&) = delete;

  char* data() { return data_; }
  const char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  char* data_;
  std::size_t size_;
};
using ExtentBytes = std::shared_ptr<const ExtentBuffer>;

// Total raw bytes of the payload that (group, stage) has for `rows` rows.
std::uint64_t GroupRowBytes(const StateLayout& layout, const Stage& stage, RowGroup group);

// Cuts rows [range) of one group of every stage into extents (checksums left zero), ordered by
// token, then stage, then part. For kState, range is [position, position + 1).
std::vector<ExtentInfo> CutIntoExtents(const StateLayout& layout, const StageMap& stages,
                                       RowGroup group, TokenRange range);

// One run of bytes inside an extent's raw payload that belongs to one plane.
struct PlaneSlice {
  std::size_t plane = 0;            // index into StateLayout::planes
  std::uint64_t extent_offset = 0;  // where in this extent's raw bytes
  std::uint64_t plane_offset = 0;   // where in the plane's `rows` rows (bytes)
  std::uint64_t bytes = 0;
};

// The slices of an extent in ascending extent_offset; empty when the extent does not fit the layout
// (a damaged or foreign extent).
std::vector<PlaneSlice> SlicesOf(const StateLayout& layout, const Stage& stage,
                                 const ExtentInfo& extent);

}  // namespace parkade
