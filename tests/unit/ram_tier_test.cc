#include "tiers/ram/ram_tier.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace parkade {
namespace {

ExtentBytes MakeBytes(std::size_t bytes) {
  auto text = std::make_shared<std::string>(bytes, 'x');
  return ExtentBytes(new ExtentBuffer(text->data(), bytes),
                     [text](const ExtentBuffer* buffer) { delete buffer; });
}

struct Park {
  ParkRecord record;
  std::vector<ExtentBytes> payload;
};

Park MakePark(std::uint32_t number, std::uint32_t tokens, std::size_t extent_bytes) {
  Park park;
  park.record.summary.key = {{1, 2}, number};
  park.record.summary.identity = {3, 4};
  park.record.summary.token_count = tokens;
  park.record.summary.payload_bytes = extent_bytes;
  park.record.tokens.assign(tokens, 5);
  ExtentInfo info;
  info.rows = tokens;
  info.raw_bytes = static_cast<std::uint32_t>(extent_bytes);
  park.record.extents.push_back(info);
  park.payload.push_back(MakeBytes(extent_bytes));
  return park;
}

std::unique_ptr<Tier> MakeTier(std::uint64_t budget_bytes) {
  RamTierOptions options;
  options.budget_bytes = budget_bytes;
  auto tier = MakeRamTier(options);
  EXPECT_EQ(tier->PutIdentity({3, 4}, {}), absl::OkStatus());
  return tier;
}

TEST(RamTier, SecretIsRandom) {
  EXPECT_NE(MakeTier(0)->secret(), MakeTier(0)->secret());
  EXPECT_FALSE(MakeTier(0)->secret().IsZero());
}

TEST(RamTier, SharesBytesAndKeepsThemForReaders) {
  auto tier = MakeTier(1 << 20);
  Park park = MakePark(0, 10, 1000);
  const char* data = park.payload[0]->data();
  ASSERT_EQ(tier->Store(park.record, park.payload), absl::OkStatus());
  park.payload.clear();
  const auto no_buffer = [](std::size_t) -> std::shared_ptr<ExtentBuffer> {
    ADD_FAILURE() << "asked for a buffer";
    return nullptr;
  };
  auto bytes = tier->ReadExtent(park.record.summary.key, 0, no_buffer);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ((*bytes)->data(), data);
  ASSERT_EQ(tier->Remove({park.record.summary.key}), absl::OkStatus());
  EXPECT_EQ((*bytes)->data()[999], 'x');
  EXPECT_EQ(bytes->use_count(), 1);
}

TEST(RamTier, CountsWhatItHolds) {
  auto tier = MakeTier(10 << 20);
  const std::uint64_t empty = tier->usage().used_bytes;
  EXPECT_GT(empty, 0u);  // the identity
  Park park = MakePark(0, 1000, 50000);
  park.record.summary.page_hashes.assign(15, 9);
  ASSERT_EQ(tier->Store(park.record, park.payload), absl::OkStatus());
  const std::uint64_t held = tier->usage().used_bytes - empty;
  EXPECT_GE(held, 50000u + 1000 * sizeof(Token) + 15 * 8 + sizeof(ParkRecord));
  EXPECT_LE(held, 50000u + 1000 * sizeof(Token) + 15 * 8 + 1024);
  ConversationAttributes row;
  row.conversation = {1, 2};
  row.name = std::string(5000, 'n');
  ASSERT_EQ(tier->WriteAttributes({row}, false), absl::OkStatus());
  EXPECT_GE(tier->usage().used_bytes, empty + held + 5000);
  row.name.clear();
  ASSERT_EQ(tier->WriteAttributes({row}, false), absl::OkStatus());
  EXPECT_LT(tier->usage().used_bytes, empty + held + 1000);
  ASSERT_EQ(tier->Forget({1, 2}, {park.record.summary.key}), absl::OkStatus());
  EXPECT_EQ(tier->usage().used_bytes, empty);
  EXPECT_EQ(tier->usage().written_bytes, 50000u);
  EXPECT_EQ(tier->usage().state, "up");
}

TEST(RamTier, ShortfallSetsRoomForTheRecordAside) {
  auto tier = MakeTier(1 << 20);
  EXPECT_EQ(tier->Shortfall(0), 0u);
  EXPECT_EQ(tier->Shortfall(1000000), 0u);
  EXPECT_EQ(tier->Shortfall(1 << 20), UINT64_MAX);
  EXPECT_EQ(tier->Shortfall(UINT64_MAX), UINT64_MAX);
  Park park = MakePark(0, 10, 600000);
  ASSERT_EQ(tier->Store(park.record, park.payload), absl::OkStatus());
  const std::uint64_t used = tier->usage().used_bytes;
  EXPECT_EQ(tier->Shortfall(640000), used + 640000 + 4096 + 10000 - (1 << 20));
  tier->SetBudget(0);
  EXPECT_EQ(tier->Shortfall(0), UINT64_MAX);
  tier->SetBudget(700000);
  EXPECT_EQ(tier->Shortfall(640000), used + 640000 + 4096 + 10000 - 700000);
  EXPECT_EQ(tier->usage().budget_bytes, 700000u);
}

TEST(RamTier, PromiseOfShortfallHoldsForTinyRows) {
  auto tier = MakeTier(100000);
  Park park = MakePark(0, 40000, 2000);  // tokens weigh 160000 bytes
  ASSERT_EQ(tier->Shortfall(2000), 0u);
  ASSERT_EQ(tier->Store(park.record, park.payload), absl::OkStatus());
  EXPECT_GT(tier->usage().used_bytes, 160000u);
  EXPECT_GT(tier->Shortfall(2000), 60000u);
  Park next = MakePark(1, 1, 2000);
  EXPECT_EQ(tier->Store(next.record, next.payload).code(), absl::StatusCode::kResourceExhausted);
}

TEST(RamTier, BelowTheFloorNothingIsTakenInButReadingGoesOn) {
  RamTierOptions options;
  options.budget_bytes = 1 << 20;
  options.min_free_bytes = 100 << 20;
  options.available_bytes = [] { return (100ull << 20) - 1; };
  auto tier = MakeRamTier(options);
  ASSERT_EQ(tier->PutIdentity({3, 4}, {}), absl::OkStatus());
  EXPECT_EQ(tier->Shortfall(10), UINT64_MAX);
  Park park = MakePark(0, 1, 10);
  EXPECT_EQ(tier->Store(park.record, park.payload).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(tier->usage().free_bytes, (100u << 20) - 1);
  EXPECT_EQ(tier->usage().state, "read_only: 99 MiB of memory available, 100 MiB are to be left");
  EXPECT_EQ(tier->ReadTokens(park.record.summary.key).status().code(), absl::StatusCode::kNotFound);

  options.available_bytes = [] { return 100ull << 20; };
  tier = MakeRamTier(options);
  EXPECT_EQ(tier->Shortfall(10), 0u);
  options.available_bytes = [] { return UINT64_MAX; };  // can't be read: no floor
  tier = MakeRamTier(options);
  EXPECT_EQ(tier->Shortfall(10), 0u);
  EXPECT_EQ(tier->usage().free_bytes, 0u);
}

TEST(RamTier, RefusesWhatDoesNotMatchItself) {
  auto tier = MakeTier(1 << 20);
  Park park = MakePark(0, 10, 1000);
  std::vector<ExtentBytes> payload = park.payload;
  payload.push_back(MakeBytes(1));
  EXPECT_EQ(tier->Store(park.record, payload).code(), absl::StatusCode::kInvalidArgument);
  payload = {nullptr};
  EXPECT_EQ(tier->Store(park.record, payload).code(), absl::StatusCode::kInvalidArgument);
  payload = {MakeBytes(999)};
  EXPECT_EQ(tier->Store(park.record, payload).code(), absl::StatusCode::kInvalidArgument);
  Park other = park;
  other.record.tokens.pop_back();
  EXPECT_EQ(tier->Store(other.record, other.payload).code(), absl::StatusCode::kInvalidArgument);
  other = park;
  other.record.summary.identity = {9, 9};
  EXPECT_EQ(tier->Store(other.record, other.payload).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tier->usage().written_bytes, 0u);
  EXPECT_EQ(tier->Store(park.record, park.payload), absl::OkStatus());
}

TEST(RamTier, VisitorsMayCallTheTier) {
  auto tier = MakeTier(1 << 20);
  for (std::uint32_t i = 0; i < 3; ++i) {
    Park park = MakePark(i, 1, 10);
    ASSERT_EQ(tier->Store(park.record, park.payload), absl::OkStatus());
  }
  std::vector<std::uint32_t> seen;
  ASSERT_EQ(tier->Enumerate([&](const ParkSummary& summary) {
    seen.push_back(summary.key.park);
    EXPECT_EQ(tier->Remove({summary.key}), absl::OkStatus());
  }),
            absl::OkStatus());
  EXPECT_EQ(seen, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(tier->ReadTokens({{1, 2}, 0}).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace parkade
