// What a tier of the conformance suite is, and the fixture all its tests use.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "parkade/tier.h"
#include "tests/support/faulty_tier.h"
#include "tests/support/sample_park.h"

namespace parkade::test {

inline constexpr std::uint64_t kMiB = 1ull << 20;

struct TierUnderTest {
  std::string name;
  TierKind kind = TierKind::kRam;
  bool durable = false;
  bool encrypted = false;
  bool has_budget = true;  // holds what fits its budget; else others decide what it holds
  bool lists = true;       // knows what it holds, with attributes and identities
  int race_steps = 1000;   // of each thread in a race; fewer where a store is synced
  // Opens the tier over `directory`, where an earlier one may have left its data.
  std::function<std::unique_ptr<Tier>(const std::string& directory, std::uint64_t budget_bytes)>
      open;
  bool decorated = false;  // behind a FaultyTier without faults
  // Why it can't be tried on this machine, empty if it can. Null: it always can.
  std::function<std::string()> missing;
};

// What GoogleTest shows of it.
inline void PrintTo(const TierUnderTest& tested, std::ostream* out) { *out << tested.name; }

std::vector<TierUnderTest> AllTiers();
std::vector<TierUnderTest> DurableTiers();
std::vector<TierUnderTest> BudgetTiers();
std::vector<TierUnderTest> BoundlessTiers();
std::vector<TierUnderTest> ListingTiers();
std::vector<TierUnderTest> DecoratedTiers();

// Set for a process that stops in the middle of a test: it works in its parent's directory, which
// the parent removes.
inline constexpr char kDirectoryVariable[] = "PARKADE_CONFORMANCE_DIRECTORY";

class TierConformance : public ::testing::TestWithParam<TierUnderTest> {
 protected:
  TierConformance();
  ~TierConformance() override;

  void SetUp() override;
  // Closes what is open, then opens over the same directory.
  void Open(std::uint64_t budget_bytes = 256 * kMiB);
  void Close() { tier_.reset(); }
  Tier& tier() { return *tier_; }
  const std::string& directory() const { return directory_; }

  // Puts the identity of the layout and stores the park.
  absl::Status Put(const SamplePark& park, const StateLayout& layout);
  absl::Status PutPlain(const ParkKey& key, std::uint64_t payload_bytes, std::uint64_t variant = 0);
  std::vector<ParkSummary> Summaries();
  std::vector<ConversationAttributes> Attributes();
  // Reads the whole park and compares every field and byte.
  void ExpectHeld(const SamplePark& park);
  void ExpectNotHeld(const ParkKey& key);

 private:
  std::string directory_;
  std::unique_ptr<Tier> tier_;
};

// Tests of what lies on a medium after a tier has closed, or while it looks away.
class DurableTier : public TierConformance {};

// Of what a tier holds at most.
class BudgetTier : public TierConformance {};
// Of one that nobody here gives a budget.
class BoundlessTier : public TierConformance {};

// Of what a tier says that it holds.
class ListingTier : public TierConformance {};

// PARKADE_SEED, or a new one; printed either way.
std::uint64_t RaceSeed();

inline ConversationId Conversation(std::uint64_t number) {
  // The first two differ in the low half only; larger ones reach the sign bit.
  return {number < 2 ? 7 : number << 60, number};
}

// Every group, three stages, a state that is cut into parts.
StateLayout MixedLayout();
SampleParkSpec MixedSpec(const ParkKey& key);

}  // namespace parkade::test
