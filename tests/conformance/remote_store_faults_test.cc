// A store that loses, cuts, changes, exchanges or replaces any one value between the machine that
// wrote it and one that reads: what is read is exact, or said to be gone or damaged, and whoever
// has the conversation stores anew what is missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/format/checksum.h"
#include "tests/conformance/remote_under_test.h"
#include "tests/support/heap_buffer.h"

namespace parkade::test {
namespace {

constexpr std::uint64_t kTokenBytes = 64;
// Boundaries at 512, 576, 1024 and 1088: the last two, and the two before, lead to the same parks.
constexpr std::uint32_t kCounts[] = {600, 30, 500};

struct Harm {
  const char* name;
  // What the value becomes; null: another one's.
  std::string (*change)(std::string value);
  bool deletes = false;
  bool other_type = false;
};

std::string FlipAt(std::string value, std::size_t at) {
  value[at] = static_cast<char>(value[at] ^ 0x04);
  return value;
}

const Harm kHarms[] = {
    {"deleted", [](std::string) { return std::string(); }, true, false},
    {"a list", [](std::string) { return std::string(); }, false, true},
    {"empty", [](std::string) { return std::string(); }},
    {"half", [](std::string value) { return value.substr(0, value.size() / 2); }},
    {"a byte less", [](std::string value) { return value.substr(0, value.size() - 1); }},
    {"a byte more", [](std::string value) { return value + "x"; }},
    {"first byte", [](std::string value) { return FlipAt(std::move(value), 0); }},
    {"middle byte",
     [](std::string value) {
       const std::size_t at = value.size() / 2;
       return FlipAt(std::move(value), at);
     }},
    {"last byte",
     [](std::string value) {
       const std::size_t at = value.size() - 1;
       return FlipAt(std::move(value), at);
     }},
    {"exchanged", nullptr},
};

class RemoteStoreFaults : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!RedisMissing().empty()) GTEST_SKIP() << RedisMissing();
    static std::atomic<int> begun{0};
    prefix_ = absl::StrCat("faults-", begun.fetch_add(1));
    if (GetParam()) key_ = *SealKey::Parse(std::string(kSealKeyBytes, 'k'));
    MakeParks();
    TheRedisServer().Ask({"FLUSHALL"});
    ASSERT_TRUE(Publish());
    for (const auto& name : absl::StrSplit(TheRedisServer().Ask({"KEYS", "*"}), '\n')) {
      sound_[std::string(name)] = TheRedisServer().Ask({"GET", std::string(name)});
    }
    ASSERT_EQ(Names("b").size(), 4u);
    ASSERT_EQ(Names("r").size(), 3u);
    ASSERT_EQ(Names("x").size(), 6u);
  }

  std::unique_ptr<SharedTier> Machine() {
    return OpenRemote(prefix_, key_, TheRedisServer().port());
  }

  // A machine that has all of it brings it to the store.
  bool Publish() {
    const auto machine = Machine();
    PublishOutcome outcome;
    absl::Status status;
    // Aborted: something is gone that was there; the next time it is stored.
    for (int attempt = 0; attempt < 3; ++attempt) {
      status = machine->Publish(way_, &outcome);
      if (!absl::IsAborted(status)) break;
    }
    EXPECT_EQ(status, absl::OkStatus());
    EXPECT_EQ(outcome.steps, parks_.size());
    return status.ok() && outcome.steps == parks_.size();
  }

  std::vector<std::string> Names(const std::string& kind) const {
    std::vector<std::string> names;
    const std::string begin = absl::StrCat(prefix_, ":", kind, ":");
    for (const auto& [name, value] : sound_) {
      if (name.rfind(begin, 0) == 0) names.push_back(name);
    }
    return names;
  }

  std::size_t BoundariesLeft() const {
    const std::vector<std::string> names = Names("b");
    return static_cast<std::size_t>(
        std::count_if(names.begin(), names.end(), [](const std::string& name) {
          return TheRedisServer().Ask({"EXISTS", name}) == "1";
        }));
  }

  // The store as it was when all had been published, but for one value or two.
  void Apply(const std::string& name, const Harm& harm) {
    RedisServer& server = TheRedisServer();
    server.Ask({"FLUSHALL"});
    for (const auto& [one, value] : sound_) server.Ask({"SET", one, value});
    if (harm.change != nullptr) {
      server.Ask({"DEL", name});
      if (harm.other_type) server.Ask({"RPUSH", name, "x"});
      if (!harm.deletes && !harm.other_type) server.Ask({"SET", name, harm.change(sound_[name])});
      return;
    }
    server.Ask({"SET", name, sound_[Other(name)]});
    server.Ask({"SET", Other(name), sound_[name]});
  }

  // The next one of its kind with another value.
  std::string Other(const std::string& name) const {
    const std::string kind(1, name[prefix_.size() + 1]);
    const std::vector<std::string> names = Names(kind);
    auto at = std::find(names.begin(), names.end(), name);
    do {
      if (++at == names.end()) at = names.begin();
    } while (sound_.at(*at) == sound_.at(name));
    return *at;
  }

  // Parks from the first on, each as it was stored and where the one before ends.
  void ExpectSound(const FoundWay& way) const {
    ASSERT_LE(way.parks.size(), parks_.size());
    for (std::size_t i = 0; i < way.parks.size(); ++i) {
      ParkRecord record = way.parks[i].record;
      record.summary.page_hashes = parks_[i].record.summary.page_hashes;
      EXPECT_EQ(record.summary, parks_[i].record.summary);
      EXPECT_EQ(record.tokens, parks_[i].record.tokens);
      EXPECT_EQ(record.extents, parks_[i].record.extents);
      EXPECT_EQ(way.parks[i].end, record.summary.end_token());
    }
  }

  FoundWay Find(SharedTier& machine) const {
    std::vector<Token> prompt = way_.tokens;
    prompt.push_back(1);
    auto way = machine.Find(way_.identity, prompt, 0);
    EXPECT_TRUE(way.ok()) << way.status();
    if (!way.ok()) return FoundWay();
    ExpectSound(*way);
    return *std::move(way);
  }

  static ParkKey BoundKey(std::size_t park) { return {{99, 99}, static_cast<std::uint32_t>(park)}; }

  // OK: all bytes of the bound park are those that were stored. Nothing else passes for right.
  absl::Status ReadAll(SharedTier& machine, std::size_t park) const {
    const auto extents = machine.ReadExtents(BoundKey(park));
    if (!extents.ok()) return extents.status();
    EXPECT_EQ(*extents, parks_[park].record.extents);
    for (std::uint32_t i = 0; i < extents->size(); ++i) {
      const auto bytes = machine.ReadExtent(BoundKey(park), i, MakeHeapBuffer);
      if (!bytes.ok()) return bytes.status();
      // What every caller does.
      if (Checksum({(*bytes)->data(), (*bytes)->size()}) != (*extents)[i].checksum) {
        // Sealed bytes say by themselves that they are others.
        EXPECT_FALSE(GetParam());
        return absl::DataLossError("checksum");
      }
      EXPECT_TRUE(ViewOf(*bytes) == ViewOf(parks_[park].payload[i]));
    }
    return absl::OkStatus();
  }

  struct Seen {
    FoundWay way;
    std::size_t whole = 0;  // parks from the first on that could be read
    absl::Status stopped;   // why not the next one
  };

  // Finds and reads all there is, and says of what can't be read that it is of no use.
  Seen Look(SharedTier& machine) const {
    Seen seen;
    seen.way = Find(machine);
    for (std::size_t i = 0; i < seen.way.parks.size(); ++i) {
      machine.Bind(BoundKey(i), seen.way.parks[i]);
    }
    while (seen.whole < seen.way.parks.size()) {
      seen.stopped = ReadAll(machine, seen.whole);
      if (!seen.stopped.ok()) {
        machine.Reject(BoundKey(seen.whole));
        break;
      }
      ++seen.whole;
    }
    return seen;
  }

  // One that had it all: the next one that comes finds it all.
  void ExpectHealed(SharedTier& reader) {
    reader.Tick();
    ASSERT_TRUE(Publish());
    const Seen seen = Look(*Machine());
    EXPECT_EQ(seen.whole, parks_.size()) << seen.stopped;
    EXPECT_EQ(seen.way.lost_tokens, 0u);
    EXPECT_FALSE(seen.way.damaged);
  }

  // Which park, from 0, the row or extent under the name belongs to.
  std::size_t ParkOf(const std::string& name) {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (name.find(ToHex(rows_[i].row)) != std::string::npos) return i;
    }
    ADD_FAILURE() << name;
    return 0;
  }
  // Of the first one that the harm touches.
  std::size_t FirstHarmed(const std::string& name, const Harm& harm) {
    if (harm.change != nullptr) return ParkOf(name);
    return std::min(ParkOf(name), ParkOf(Other(name)));
  }

  std::string prefix_;
  SharedSealKey key_;
  std::vector<SamplePark> parks_;
  PublishRequest way_;
  std::map<std::string, std::string> sound_;
  std::vector<FoundPark> rows_;  // of a test that asks ParkOf

 private:
  void MakeParks() {
    const StateLayout layout = PlainLayout(kTokenBytes);
    way_.identity = SampleIdentityDigest(layout);
    std::uint32_t first = 0;
    for (const std::uint32_t count : kCounts) {
      SampleParkSpec spec;
      spec.key = {{7, 1}, static_cast<std::uint32_t>(parks_.size())};
      spec.layout = layout;
      spec.stages.stages = {Stage{"CPU", {0}}};
      spec.first_token = first;
      spec.token_count = count;
      spec.variant = spec.key.park;
      parks_.push_back(MakeSamplePark(spec));
      const SamplePark& park = parks_.back();
      first += count;
      way_.steps.push_back({spec.key, {spec.first_token, first}, first});
      way_.tokens.insert(way_.tokens.end(), park.record.tokens.begin(), park.record.tokens.end());
    }
    way_.read = [this](const PublishStep& step) -> absl::StatusOr<PublishPayload> {
      return PublishPayload{parks_[step.key.park].record, parks_[step.key.park].payload};
    };
  }
};

TEST_P(RemoteStoreFaults, OfBoundaries) {
  for (const std::string& name : Names("b")) {
    for (const Harm& harm : kHarms) {
      SCOPED_TRACE(testing::Message() << name << " " << harm.name);
      Apply(name, harm);
      const auto reader = Machine();
      const Seen seen = Look(*reader);
      EXPECT_EQ(seen.whole, seen.way.parks.size()) << seen.stopped;
      // A boundary that leads elsewhere ends the match; of those that lead nowhere the one before
      // leads to the same parks.
      if (harm.change != nullptr) {
        EXPECT_EQ(seen.whole, parks_.size());
      } else {
        EXPECT_TRUE(seen.whole == parks_.size() || seen.way.lost_tokens > 0);
      }
      ExpectHealed(*reader);
    }
  }
}

TEST_P(RemoteStoreFaults, OfRows) {
  rows_ = Find(*Machine()).parks;
  ASSERT_EQ(rows_.size(), parks_.size());
  for (const std::string& name : Names("r")) {
    for (const Harm& harm : kHarms) {
      SCOPED_TRACE(testing::Message() << name << " " << harm.name);
      Apply(name, harm);
      const auto reader = Machine();
      const Seen seen = Look(*reader);
      const std::size_t harmed = FirstHarmed(name, harm);
      EXPECT_EQ(seen.way.parks.size(), harmed);
      EXPECT_EQ(seen.whole, harmed) << seen.stopped;
      EXPECT_GT(seen.way.lost_tokens, 0u);
      EXPECT_EQ(seen.way.damaged, !harm.deletes);
      // What leads there is taken away: the deepest one, or, if nothing before it can be read, all
      // that were tried.
      reader->Tick();
      EXPECT_EQ(BoundariesLeft(), harmed == 0 ? 1u : 3u);
      ExpectHealed(*reader);
    }
  }
}

// Found before the harm, and read after it.
TEST_P(RemoteStoreFaults, OfRowsThatWereFound) {
  rows_ = Find(*Machine()).parks;
  ASSERT_EQ(rows_.size(), parks_.size());
  for (const std::string& name : Names("r")) {
    for (const Harm& harm : kHarms) {
      for (const bool prepared : {false, true}) {
        SCOPED_TRACE(testing::Message() << name << " " << harm.name << " " << prepared);
        Apply(name, harm);
        const auto reader = Machine();
        for (std::size_t i = 0; i < rows_.size(); ++i) reader->Bind(BoundKey(i), rows_[i]);
        if (prepared) reader->Prepare({BoundKey(0), BoundKey(1), BoundKey(2)});
        for (std::size_t i = 0; i < rows_.size(); ++i) {
          const bool is_harmed =
              i == ParkOf(name) || (harm.change == nullptr && i == ParkOf(Other(name)));
          const auto tokens = reader->ReadTokens(BoundKey(i));
          EXPECT_EQ(tokens.ok(), !is_harmed);
          EXPECT_EQ(ReadAll(*reader, i).ok(), !is_harmed);
          if (tokens.ok()) {
            EXPECT_EQ(*tokens, parks_[i].record.tokens);
            continue;
          }
          // Once it was found useless nobody asks for it again: it is as good as gone.
          EXPECT_EQ(tokens.status().code(), harm.deletes || prepared ? absl::StatusCode::kNotFound
                                                                     : absl::StatusCode::kDataLoss);
        }
      }
    }
  }
}

TEST_P(RemoteStoreFaults, OfExtents) {
  rows_ = Find(*Machine()).parks;
  ASSERT_EQ(rows_.size(), parks_.size());
  for (const std::string& name : Names("x")) {
    for (const Harm& harm : kHarms) {
      SCOPED_TRACE(testing::Message() << name << " " << harm.name);
      Apply(name, harm);
      const auto reader = Machine();
      const Seen seen = Look(*reader);
      EXPECT_EQ(seen.way.parks.size(), parks_.size());
      EXPECT_EQ(seen.whole, FirstHarmed(name, harm));
      EXPECT_EQ(seen.stopped.code(),
                harm.deletes ? absl::StatusCode::kNotFound : absl::StatusCode::kDataLoss)
          << seen.stopped;
      EXPECT_EQ(reader->usage().state, "up");
      ExpectHealed(*reader);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Store, RemoteStoreFaults, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Encrypted" : "Plain"; });

}  // namespace
}  // namespace parkade::test
