// The decorator with faults over every tier: each fault shows as scripted, and the tier behind it
// is as it was. What other suites build on.
#include <gtest/gtest.h>

#include "src/format/checksum.h"
#include "tests/conformance/tier_under_test.h"
#include "tests/support/heap_buffer.h"
#include "tests/support/recording_sink.h"

namespace parkade::test {
namespace {

constexpr std::uint64_t kPayload = 100000;

class TierFaults : public TierConformance {
 protected:
  void SetUp() override {
    TierConformance::SetUp();
    if (IsSkipped()) return;
    Open();
    ASSERT_EQ(Put(park_, PlainLayout(kPayload)), absl::OkStatus());
  }
  FaultyTier& faulty() { return static_cast<FaultyTier&>(tier()); }
  absl::StatusOr<ExtentBytes> Read() { return tier().ReadExtent(park_.key(), 0, MakeHeapBuffer); }

  const SamplePark park_ = MakePlainPark({Conversation(1), 0}, kPayload);
};

TEST_P(TierFaults, FailsTheChosenCalls) {
  Fault fault;
  fault.call = TierCall::kReadExtent;
  fault.status = absl::UnavailableError("cable");
  fault.skip = 1;
  fault.times = 2;
  faulty().AddFault(fault);
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(Read().status(), fault.status);
  EXPECT_EQ(Read().status(), fault.status);
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(faulty().faults_hit(), 2u);
  EXPECT_EQ(faulty().calls(TierCall::kReadExtent), 4u);
  EXPECT_EQ(faulty().payload_bytes_read(), 2 * kPayload);
  ExpectHeld(park_);
}

TEST_P(TierFaults, HitsOnlyTheKeyAndExtentItNames) {
  const SampleParkSpec spec = MixedSpec({Conversation(2), 0});
  const SamplePark mixed = MakeSamplePark(spec);
  ASSERT_EQ(Put(mixed, spec.layout), absl::OkStatus());
  Fault fault;
  fault.key = mixed.key();
  fault.extent = 2;
  fault.status = absl::NotFoundError("gone");
  faulty().AddFault(fault);
  for (std::uint32_t i = 0; i < mixed.payload.size(); ++i) {
    EXPECT_EQ(tier().ReadExtent(mixed.key(), i, MakeHeapBuffer).ok(), i != 2) << i;
  }
  EXPECT_TRUE(Read().ok());
  faulty().ClearFaults();
  ExpectHeld(mixed);
}

TEST_P(TierFaults, FlipsAndShortensCopiesOnly) {
  Fault fault;
  fault.kind = Fault::Kind::kFlip;
  fault.at = kPayload + 17;  // modulo the size
  fault.times = 1;
  faulty().AddFault(fault);
  fault.kind = Fault::Kind::kShorten;
  faulty().AddFault(fault);
  const auto flipped = Read();
  ASSERT_TRUE(flipped.ok());
  EXPECT_EQ((*flipped)->size(), kPayload);
  EXPECT_EQ((*flipped)->data()[17], park_.payload[0]->data()[17] ^ 1);
  EXPECT_NE(Checksum({(*flipped)->data(), kPayload}), park_.record.extents[0].checksum);
  const auto shortened = Read();
  ASSERT_TRUE(shortened.ok());
  EXPECT_TRUE(ViewOf(*shortened) == ViewOf(park_.payload[0]).substr(0, kPayload - 1));
  ExpectHeld(park_);
}

TEST_P(TierFaults, OmitsExtents) {
  const SampleParkSpec spec = MixedSpec({Conversation(2), 0});
  const SamplePark mixed = MakeSamplePark(spec);
  ASSERT_EQ(Put(mixed, spec.layout), absl::OkStatus());
  Fault fault;
  fault.call = TierCall::kReadExtents;
  fault.kind = Fault::Kind::kOmit;
  fault.extent = 1;
  fault.times = 1;
  faulty().AddFault(fault);
  std::vector<ExtentInfo> wanted = mixed.record.extents;
  wanted.erase(wanted.begin() + 1);
  auto extents = tier().ReadExtents(mixed.key());
  ASSERT_TRUE(extents.ok());
  EXPECT_EQ(*extents, wanted);
  ExpectHeld(mixed);
}

TEST_P(TierFaults, StoreFailsBeforeOrAfterTheTier) {
  const SamplePark next = MakePlainPark({Conversation(1), 1}, kPayload);
  Fault fault;
  fault.call = TierCall::kStore;
  fault.times = 1;
  faulty().AddFault(fault);
  EXPECT_EQ(tier().Store(next.record, next.payload), fault.status);
  ExpectNotHeld(next.key());
  fault.kind = Fault::Kind::kFailAfter;
  faulty().AddFault(fault);
  EXPECT_EQ(tier().Store(next.record, next.payload), fault.status);
  ExpectHeld(next);
  EXPECT_EQ(tier().Store(next.record, next.payload).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(faulty().payload_bytes_written(), kPayload);  // the first park's
}

TEST_P(TierFaults, StoreOfFlippedBytesLeavesTheCallersAlone) {
  const SamplePark next = MakePlainPark({Conversation(1), 1}, kPayload);
  Fault fault;
  fault.call = TierCall::kStore;
  fault.kind = Fault::Kind::kFlip;
  faulty().AddFault(fault);
  ASSERT_EQ(tier().Store(next.record, next.payload), absl::OkStatus());
  EXPECT_EQ(Checksum({next.payload[0]->data(), kPayload}), next.record.extents[0].checksum);
  auto bytes = tier().ReadExtent(next.key(), 0, MakeHeapBuffer);
  // A tier may notice by itself.
  EXPECT_FALSE(bytes.ok() && ViewOf(*bytes) == ViewOf(next.payload[0]));
}

TEST_P(TierFaults, EveryOtherCallCanFail) {
  for (const TierCall call :
       {TierCall::kEnumerate, TierCall::kEnumerateAttributes, TierCall::kEnumerateIdentities,
        TierCall::kReadTokens, TierCall::kReadExtents, TierCall::kShortfall, TierCall::kRemove,
        TierCall::kForget, TierCall::kPutIdentity, TierCall::kWriteAttributes}) {
    Fault fault;
    fault.call = call;
    faulty().AddFault(fault);
  }
  const absl::Status wanted = Fault{}.status;
  EXPECT_EQ(tier().Enumerate([](const ParkSummary&) { FAIL(); }), wanted);
  EXPECT_EQ(tier().EnumerateAttributes([](const ConversationAttributes&) { FAIL(); }), wanted);
  EXPECT_EQ(tier().EnumerateIdentities([](const Digest128&, const StoredIdentity&) { FAIL(); }),
            wanted);
  EXPECT_EQ(tier().ReadTokens(park_.key()).status(), wanted);
  EXPECT_EQ(tier().ReadExtents(park_.key()).status(), wanted);
  EXPECT_EQ(tier().Shortfall(1), UINT64_MAX);
  EXPECT_EQ(tier().Remove({park_.key()}), wanted);
  EXPECT_EQ(tier().Forget(park_.key().conversation, {park_.key()}), wanted);
  EXPECT_EQ(tier().PutIdentity({1, 1}, {}), wanted);
  EXPECT_EQ(tier().WriteAttributes({ConversationAttributes{}}, true), wanted);
  EXPECT_EQ(faulty().faults_hit(), 10u);
  faulty().ClearFaults();
  ExpectHeld(park_);
  EXPECT_TRUE(Attributes().empty());
}

TEST_P(TierFaults, ObserverSeesCallsBeforeTheyHappen) {
  std::vector<std::string> seen;
  faulty().SetObserver([&](const CallSubject& subject) {
    if (subject.call == TierCall::kReadExtent) {
      seen.push_back(ToHex(subject.keys.at(0).conversation) + "/" +
                     std::to_string(subject.extent.value()));
      // A removal that comes between: the read is a miss.
      ASSERT_EQ(faulty().inner().Remove({park_.key()}), absl::OkStatus());
    }
  });
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(seen, (std::vector<std::string>{ToHex(park_.key().conversation) + "/0"}));
}

INSTANTIATE_TEST_SUITE_P(Tiers, TierFaults, ::testing::ValuesIn(DecoratedTiers()),
                         [](const auto& tested) { return tested.param.name; });

TEST(RecordingSink, KeepsEveryEvent) {
  RecordingSink sink;
  LookupRecord lookup;
  lookup.prompt_tokens = 5;
  sink.OnLookup(lookup);
  sink.OnPark({{Conversation(1), 2}, 64, 1000, 0.5});
  sink.OnSpill(TierKind::kDisk, 10, 0.25);
  sink.OnRestore(TierKind::kRam, 20, 0.5);
  sink.OnStageRestored(1, 30);
  sink.OnStageRestored(1, 12);
  sink.OnStageLimited(3);
  sink.OnSkippedPark(SkipReason::kNoSpace, 7);
  sink.OnEvict(TierKind::kDisk, EvictReason::kTtl, 9);
  sink.OnCorrupt(TierKind::kRam);
  sink.OnTierError(TierKind::kRemote, "timeout");
  sink.Log(LogLevel::kWarning, "a line");
  const RecordedEvents events = sink.events();
  EXPECT_EQ(events.lookups.at(0).prompt_tokens, 5u);
  EXPECT_EQ(events.parks.at(0).key, (ParkKey{Conversation(1), 2}));
  EXPECT_EQ(events.spills.at(0).bytes, 10u);
  EXPECT_EQ(events.restores.at(0).tier, TierKind::kRam);
  EXPECT_EQ(events.stage_restored_bytes.at(1), 42u);
  EXPECT_EQ(events.stages_limited, (std::vector<std::uint16_t>{3}));
  EXPECT_EQ(events.skips.at(0).reason, SkipReason::kNoSpace);
  EXPECT_EQ(events.evictions.at(0).reason, EvictReason::kTtl);
  EXPECT_EQ(events.corrupt, (std::vector<TierKind>{TierKind::kRam}));
  EXPECT_EQ(events.errors.at(0).second, "timeout");
  EXPECT_EQ(events.log.at(0).text, "a line");
  EXPECT_TRUE(sink.WaitUntil([](const RecordedEvents& all) { return !all.parks.empty(); }));
  sink.Reset();
  EXPECT_FALSE(sink.WaitUntil([](const RecordedEvents& all) { return !all.parks.empty(); },
                              absl::Milliseconds(1)));
}

}  // namespace
}  // namespace parkade::test
