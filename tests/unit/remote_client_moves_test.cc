// A real cluster whose slots move while the client works.
#include <atomic>
#include <thread>

#include "tests/unit/remote_client_fixture.h"
#include "tiers/remote/slots.h"

namespace parkade::remote {
namespace {

using test::RedisCluster;
using test::WaitUntil;

// Keys of one slot, which master 0 has, on their way to master 1.
class RemoteMovesTest : public RemoteClientTest {
 protected:
  void SetUp() override {
    RemoteClientTest::SetUp();
    if (IsSkipped()) return;
    cluster_ = std::make_unique<RedisCluster>(0);
    redis_ = MakeRedis(Url(cluster_->node(0).port()));
    int number = 0;
    while (RedisCluster::MasterOf(SlotOf(absl::StrCat("{", number, "}"))) != 0) ++number;
    tag_ = absl::StrCat("{", number, "}");
    slot_ = SlotOf(tag_);
  }
  std::string Key(int number) const { return absl::StrCat(tag_, number); }
  RedisCluster& cluster() { return *cluster_; }
  Redis& redis() { return *redis_; }

  int Count(int node, const std::string& section, const std::string& name) {
    const std::string line = cluster_->node(node).Info(section, name);
    return line.empty() ? 0 : std::stoi(line.substr(line.find('=') + 1));
  }
  int MapsRead() {
    int reads = 0;
    for (int i = 0; i < 3; ++i) reads += Count(i, "commandstats", "cmdstat_cluster|slots");
    return reads;
  }

  std::unique_ptr<RedisCluster> cluster_;
  std::unique_ptr<Redis> redis_;
  std::string tag_;
  int slot_ = 0;
};

TEST_F(RemoteMovesTest, AsksWhereTheSlotIsOnItsWay) {
  const std::string large = Bytes(1 << 20);
  ASSERT_EQ(SetValue(redis(), Key(0), large), absl::OkStatus());
  ASSERT_EQ(SetValue(redis(), Key(1), "stays"), absl::OkStatus());
  cluster().BeginMove(slot_, 0, 1);
  cluster().MoveKey(Key(0), 0, 1);
  EXPECT_TRUE(Same(GetValue(redis(), Key(0)), large));
  EXPECT_EQ(*GetValue(redis(), Key(1)), "stays");
  EXPECT_EQ(GetValue(redis(), Key(2)).status().code(), absl::StatusCode::kNotFound);
  const std::vector<std::string> keys = {Key(0), Key(1), Key(3)};
  std::vector<Command> commands;
  for (const std::string& key : keys) commands.push_back({{"GET", key}, key});
  commands.push_back({{"SET", keys[2], "new"}, keys[2]});
  const auto replies = redis().Run(commands, Ample());
  ASSERT_TRUE(replies.ok()) << replies.status();
  EXPECT_TRUE(Same(replies->at(0), large));
  EXPECT_EQ(replies->at(1).bytes, "stays");
  EXPECT_EQ(replies->at(2).kind, Reply::Kind::kNil);
  EXPECT_EQ(replies->at(3).bytes, "OK");
  EXPECT_GE(Count(0, "errorstats", "errorstat_ASK"), 5);
  EXPECT_EQ(MapsRead(), 1);
  EXPECT_EQ(*GetValue(redis(), Key(3)), "new");
}

TEST_F(RemoteMovesTest, WaitsForKeysThatAreInTwoPlaces) {
  ASSERT_EQ(SetValue(redis(), Key(0), "a"), absl::OkStatus());
  ASSERT_EQ(SetValue(redis(), Key(1), "b"), absl::OkStatus());
  cluster().BeginMove(slot_, 0, 1);
  cluster().MoveKey(Key(0), 0, 1);
  const std::string a = Key(0), b = Key(1);
  const Command both = {{"MGET", a, b}, a};
  const auto deadline = absl::Now() + absl::Milliseconds(200);
  const absl::Status status = redis().Run(absl::MakeConstSpan(&both, 1), deadline).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(": TRYAGAIN"), absl::string_view::npos) << status;
  std::thread mover([&] {
    const int refused = Count(0, "errorstats", "errorstat_TRYAGAIN");
    EXPECT_TRUE(WaitUntil([&] { return Count(0, "errorstats", "errorstat_TRYAGAIN") > refused; }));
    cluster().MoveKey(Key(1), 0, 1);
  });
  const auto replies = redis().Run(absl::MakeConstSpan(&both, 1), Ample());
  mover.join();
  ASSERT_TRUE(replies.ok()) << replies.status();
  ASSERT_EQ(replies->at(0).elements.size(), 2u);
  EXPECT_EQ(replies->at(0).elements[0].bytes, "a");
  EXPECT_EQ(replies->at(0).elements[1].bytes, "b");
}

TEST_F(RemoteMovesTest, ReadsTheMapOnceForManyMoved) {
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(SetValue(redis(), Key(i), absl::StrCat(i)), absl::OkStatus());
  }
  EXPECT_EQ(MapsRead(), 1);
  cluster().BeginMove(slot_, 0, 1);
  for (int i = 0; i < 8; ++i) cluster().MoveKey(Key(i), 0, 1);
  cluster().EndMove(slot_, 1);
  const absl::Time start = absl::Now();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      EXPECT_EQ(*GetValue(redis(), Key(thread)), absl::StrCat(thread));
      EXPECT_EQ(RunOne(redis(), {"GET", Key(thread)})->bytes, absl::StrCat(thread));
    });
  }
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(MapsRead(), 2);
  const int moved = Count(0, "errorstats", "errorstat_MOVED");
  EXPECT_GE(moved, 1);
  // Now it is known.
  EXPECT_EQ(SetValue(redis(), Key(0), "again"), absl::OkStatus());
  EXPECT_EQ(Count(0, "errorstats", "errorstat_MOVED"), moved);
  EXPECT_EQ(cluster().node(1).Ask({"GET", Key(0)}), "again");
  // Another slot right after it: it is corrected, the map is not read again.
  cluster().BeginMove(slot_, 1, 0);
  for (int i = 0; i < 8; ++i) cluster().MoveKey(Key(i), 1, 0);
  cluster().EndMove(slot_, 0);
  EXPECT_EQ(*GetValue(redis(), Key(5)), "5");
  const int reads = MapsRead();
  const bool soon = absl::Now() - start < absl::Seconds(1);
  EXPECT_LE(reads, soon ? 2 : 3);
}

TEST_F(RemoteMovesTest, LosesNothingWhileSlotsMoveBackAndForth) {
  std::atomic<bool> over{false};
  std::atomic<int> rounds{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const std::string key = Key(thread);
      for (int i = 0; !over; ++i) {
        const std::string value =
            Bytes(static_cast<std::size_t>(40000 * (i % 2) + 10), static_cast<std::uint64_t>(i));
        ASSERT_EQ(SetValue(redis(), key, value), absl::OkStatus());
        ASSERT_TRUE(Same(GetValue(redis(), key), value));
        ASSERT_TRUE(Same(RunOne(redis(), {"GET", key}), value));
        ++rounds;
      }
    });
  }
  for (int move = 0; move < 6; ++move) {
    const int from = move % 2, to = 1 - from;
    cluster().BeginMove(slot_, from, to);
    const auto left = [&] {
      return cluster().node(from).Ask({"CLUSTER", "GETKEYSINSLOT", absl::StrCat(slot_), "1"});
    };
    for (std::string key = left(); !key.empty(); key = left()) {
      cluster().MoveKey(key, from, to);
    }
    cluster().EndMove(slot_, to);
    const int before = rounds;
    EXPECT_TRUE(WaitUntil([&] { return rounds > before + 8; }));
  }
  over = true;
  for (std::thread& one : threads) one.join();
}

}  // namespace
}  // namespace parkade::remote
