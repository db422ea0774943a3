#include "tests/support/sample_park.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/engine/fake/fake_engine.h"
#include "src/engine/fake/fake_rows.h"
#include "src/format/checksum.h"
#include "tests/support/heap_buffer.h"

namespace parkade::test {
namespace {

// Head of every extent; what follows is filled from the variant. Cut off where an extent is
// shorter.
struct Head {
  std::uint64_t conversation_high, conversation_low, park, extent, variant;
};

std::uint64_t FillSeed(const Head& head) {
  std::uint64_t seed = fake::Mix(head.conversation_high, head.conversation_low);
  seed = fake::Mix(seed, head.park << 32 | head.extent);
  return fake::Mix(seed, head.variant);
}

void FillSample(const Head& head, char* data, std::size_t bytes) {
  const std::size_t head_bytes = std::min(bytes, sizeof(head));
  std::memcpy(data, &head, head_bytes);
  fake::FillRow(FillSeed(head), false, data + head_bytes, bytes - head_bytes);
}

Head HeadOf(const ParkKey& key, std::uint32_t extent, std::uint64_t variant) {
  return {key.conversation.high, key.conversation.low, key.park, extent, variant};
}

void AddExtents(const SampleParkSpec& spec, RowGroup group, TokenRange range, SamplePark* park) {
  for (ExtentInfo info : CutIntoExtents(spec.layout, spec.stages, group, range)) {
    const auto number = static_cast<std::uint32_t>(park->payload.size());
    auto bytes = MakeHeapBuffer(info.raw_bytes);
    FillSample(HeadOf(spec.key, number, spec.variant), bytes->data(), bytes->size());
    info.checksum = Checksum({bytes->data(), bytes->size()});
    park->record.summary.payload_bytes += info.raw_bytes;
    park->record.extents.push_back(info);
    park->payload.push_back(std::move(bytes));
  }
}

}  // namespace

StoredIdentity SampleIdentity(const StateLayout& layout) {
  StoredIdentity stored;
  stored.identity.Set("weights", "sample");
  std::uint64_t planes = layout.window_tokens;
  for (const Plane& plane : layout.planes) {
    planes = fake::Mix(fake::RowSeed(plane, planes), plane.row_bytes);
  }
  stored.identity.Set("layout", std::to_string(planes));
  stored.layout = layout;
  return stored;
}

Digest128 SampleIdentityDigest(const StateLayout& layout) {
  return SampleIdentity(layout).identity.digest();
}

SamplePark MakeSamplePark(const SampleParkSpec& spec) {
  SamplePark park;
  ParkSummary& summary = park.record.summary;
  summary.key = spec.key;
  summary.identity = SampleIdentityDigest(spec.layout);
  summary.parent = spec.parent;
  summary.parent_tokens = spec.parent_tokens;
  summary.first_token = spec.first_token;
  summary.token_count = spec.token_count;
  summary.generation = 3;
  summary.created_unix_ms = 1'700'000'000'000 + spec.key.park;
  summary.window_rows = spec.window_rows;
  summary.checkpoints = spec.checkpoints;
  summary.stages = spec.stages;
  std::uint64_t hash = fake::Mix(spec.key.conversation.low, spec.variant);
  for (std::uint32_t i = 0; i < spec.token_count; ++i) {
    hash = fake::Mix(hash, i);
    park.record.tokens.push_back(static_cast<Token>(hash % 250'000));
    if ((spec.first_token + i + 1) % kPageTokens == 0) summary.page_hashes.push_back(hash);
  }
  AddExtents(spec, RowGroup::kFull, {spec.first_token, summary.end_token()}, &park);
  for (const TokenRange& rows : spec.window_rows) AddExtents(spec, RowGroup::kWindow, rows, &park);
  for (const std::uint32_t position : spec.checkpoints) {
    AddExtents(spec, RowGroup::kState, {position, position + 1}, &park);
  }
  return park;
}

StateLayout PlainLayout(std::uint64_t payload_bytes) {
  return MakeFakeLayout(1, payload_bytes / 2, 0, 0, 0, 0);
}

SamplePark MakePlainPark(const ParkKey& key, std::uint64_t payload_bytes, std::uint64_t variant) {
  SampleParkSpec spec;
  spec.key = key;
  spec.layout = PlainLayout(payload_bytes);
  spec.stages = MakeFakeStages(spec.layout, {1});
  spec.first_token = key.park;
  spec.token_count = 1;
  spec.variant = variant;
  return MakeSamplePark(spec);
}

absl::Status CheckSampleBytes(const ParkKey& key, std::uint32_t extent,
                              absl::Span<const char> bytes) {
  Head head = HeadOf(key, extent, 0);
  const std::size_t variant_at = offsetof(Head, variant);
  if (bytes.size() >= sizeof(head)) {
    std::memcpy(&head.variant, bytes.data() + variant_at, sizeof(head.variant));
  }
  std::vector<char> wanted(bytes.size());
  FillSample(head, wanted.data(), wanted.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == wanted[i]) continue;
    return absl::DataLossError(absl::StrCat("extent ", extent, " of park ", key.park, " of ",
                                            ToHex(key.conversation), ": wrong byte at ", i, " of ",
                                            bytes.size()));
  }
  return absl::OkStatus();
}

}  // namespace parkade::test
