// Eight threads on a few keys: what is read is exact or not found.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "src/format/checksum.h"
#include "tests/conformance/tier_under_test.h"
#include "tests/support/heap_buffer.h"

namespace parkade::test {
namespace {

constexpr int kThreads = 8;
constexpr std::uint64_t kVariants = 3;
constexpr std::uint64_t kPayload = 20000;

bool IsMissOrOk(const absl::Status& status) { return status.ok() || absl::IsNotFound(status); }

// One thread's random walk. Any variant of a park may be there at any time, so its bytes, tokens
// and extents are each checked for being those of some variant.
class Racer {
 public:
  Racer(Tier* tier, std::uint64_t seed) : tier_(*tier), random_(seed) {}

  void Step() {
    const ParkKey key{Conversation(random_() % 3), static_cast<std::uint32_t>(random_() % 4)};
    switch (random_() % 8) {
      case 0:
      case 1:
        return Store(key);
      case 2:
        return Check("remove", tier_.Remove({key}).ok());
      case 3:
        return ReadTokens(key);
      case 4:
        return List();
      case 5:
        return Attributes(key);
      default:
        return ReadBytes(key);
    }
  }

  const std::vector<std::string>& failures() const { return failures_; }
  int exact() const { return exact_; }

 private:
  void Check(const std::string& what, bool holds) {
    if (!holds) failures_.push_back(what);
  }

  void Store(const ParkKey& key) {
    const SamplePark park = MakePlainPark(key, kPayload, random_() % kVariants);
    const absl::Status status = tier_.Store(park.record, park.payload);
    Check("store: " + status.ToString(), status.ok() || absl::IsAlreadyExists(status));
  }

  void ReadTokens(const ParkKey& key) {
    const auto tokens = tier_.ReadTokens(key);
    Check("tokens: " + tokens.status().ToString(), IsMissOrOk(tokens.status()));
    if (!tokens.ok()) return;
    bool known = false;
    for (std::uint64_t variant = 0; variant < kVariants; ++variant) {
      known |= *tokens == MakePlainPark(key, kPayload, variant).record.tokens;
    }
    Check("tokens of another park", known);
  }

  void ReadBytes(const ParkKey& key) {
    const auto extents = tier_.ReadExtents(key);
    Check("extents: " + extents.status().ToString(), IsMissOrOk(extents.status()));
    if (extents.ok()) Check("extent list", extents->size() == 1);
    const auto bytes = tier_.ReadExtent(key, 0, MakeHeapBuffer);
    Check("bytes: " + bytes.status().ToString(), IsMissOrOk(bytes.status()));
    if (!bytes.ok()) return;
    const absl::Span<const char> view{(*bytes)->data(), (*bytes)->size()};
    const absl::Status right = CheckSampleBytes(key, 0, view);
    Check(right.ToString(), right.ok() && view.size() == kPayload);
    ++exact_;
  }

  void List() {
    std::vector<ParkKey> keys;
    const absl::Status status =
        tier_.Enumerate([&](const ParkSummary& one) { keys.push_back(one.key); });
    Check("enumerate", status.ok() && std::is_sorted(keys.begin(), keys.end()) &&
                           std::adjacent_find(keys.begin(), keys.end()) == keys.end());
  }

  void Attributes(const ParkKey& key) {
    ConversationAttributes row;
    row.conversation = key.conversation;
    row.hits = random_();
    Check("attributes", tier_.WriteAttributes({row}, false).ok());
    tier_.WillRead({key});
    tier_.Tick();
    Check("shortfall", tier_.Shortfall(kPayload) == 0);
    Check("usage", tier_.usage().state == "up");
  }

  Tier& tier_;
  std::mt19937_64 random_;
  std::vector<std::string> failures_;
  int exact_ = 0;
};

TEST_P(TierConformance, EightThreadsSeeExactBytesOrNothing) {
  Open();
  const StateLayout layout = PlainLayout(kPayload);
  ASSERT_EQ(tier().PutIdentity(SampleIdentityDigest(layout), SampleIdentity(layout)),
            absl::OkStatus());
  const std::uint64_t seed = RaceSeed();
  std::vector<Racer> racers;
  for (int i = 0; i < kThreads; ++i) racers.emplace_back(&tier(), seed + i);
  std::vector<std::thread> threads;
  for (Racer& racer : racers) {
    threads.emplace_back([&racer] {
      for (int step = 0; step < GetParam().race_steps; ++step) racer.Step();
    });
  }
  for (std::thread& thread : threads) thread.join();
  int exact = 0;
  for (const Racer& racer : racers) {
    for (const std::string& failure : racer.failures()) ADD_FAILURE() << failure;
    exact += racer.exact();
  }
  EXPECT_GT(exact, 0) << "no read met a park: this race tests nothing";

  for (int round = 0; round < (GetParam().durable ? 2 : 1); ++round) {
    for (const ParkSummary& summary : Summaries()) {
      const auto extents = tier().ReadExtents(summary.key);
      ASSERT_TRUE(extents.ok()) << extents.status();
      const auto bytes = tier().ReadExtent(summary.key, 0, MakeHeapBuffer);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      EXPECT_EQ(Checksum({(*bytes)->data(), (*bytes)->size()}), extents->at(0).checksum);
    }
    if (GetParam().durable) Open();
  }
}

TEST_P(TierConformance, OneOfManyStoresOfAKeyWins) {
  Open();
  const StateLayout layout = PlainLayout(kPayload);
  ASSERT_EQ(tier().PutIdentity(SampleIdentityDigest(layout), SampleIdentity(layout)),
            absl::OkStatus());
  for (std::uint32_t round = 0; round < 5; ++round) {
    std::vector<SamplePark> parks;
    for (std::uint64_t i = 0; i < kThreads; ++i) {
      parks.push_back(MakePlainPark({Conversation(1), round}, kPayload, i));
    }
    std::vector<absl::Status> results(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back(
          [&, i] { results[i] = tier().Store(parks[i].record, parks[i].payload); });
    }
    for (std::thread& thread : threads) thread.join();
    int winner = -1;
    for (int i = 0; i < kThreads; ++i) {
      if (results[i].ok()) {
        EXPECT_EQ(winner, -1) << "two winners";
        winner = i;
      } else {
        EXPECT_EQ(results[i].code(), absl::StatusCode::kAlreadyExists) << results[i];
      }
    }
    ASSERT_GE(winner, 0);
    ExpectHeld(parks[winner]);
  }
}

}  // namespace
}  // namespace parkade::test
