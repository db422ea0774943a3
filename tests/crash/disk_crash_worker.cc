#include "tests/crash/disk_crash_worker.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "src/engine/fake/fake_engine.h"
#include "tests/support/disk_checks.h"
#include "tests/support/power_cut.h"

namespace parkade::test {
namespace {

constexpr int kWorkers = 2;
constexpr std::uint32_t kParkTokens = 64;

StateLayout CrashLayout() { return MakeFakeLayout(3, 1024, 1, 40, 0, 0); }

void Say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(STDOUT_FILENO, whole.data(), whole.size()) < 0) ::_exit(3);
}

std::string Line(char what, std::uint64_t conversation, std::uint64_t number) {
  return std::string(1, what) + " " + std::to_string(conversation) + " " + std::to_string(number);
}

// One thread's conversations; no other thread touches them.
class Worker {
 public:
  Worker(Tier* tier, std::uint64_t seed, int number)
      : tier_(tier),
        random_(seed * 31 + number),
        number_(number),
        next_id_(static_cast<std::uint64_t>(absl::ToUnixMillis(absl::Now())) * 1000 * kWorkers +
                 number) {}

  void Load(const ParkSummary& summary) {
    const std::uint64_t id = summary.key.conversation.low;
    if (static_cast<int>(id % kWorkers) != number_) return;
    Chat& chat = chats_[id];
    chat.parent = summary.parent.low;
    chat.parent_tokens = summary.parent_tokens;
    chat.parks = std::max(chat.parks, summary.key.park + 1);
  }

  void Run() {
    while (true) {
      const std::uint64_t dice = random_() % 100;
      if (dice < 70 || chats_.empty()) {
        Append();
      } else if (dice < 80) {
        Name();
      } else if (dice < 92) {
        RemoveTail();
      } else {
        Forget();
      }
    }
  }

 private:
  struct Chat {
    std::uint64_t parent = 0;
    std::uint32_t parent_tokens = 0;
    std::uint32_t parks = 0;
  };

  std::uint64_t AnyChat() {
    auto it = chats_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random_() % chats_.size()));
    return it->first;
  }
  // 0: none.
  std::uint64_t AnyLeaf() {
    for (int attempt = 0; attempt < 20 && !chats_.empty(); ++attempt) {
      const std::uint64_t id = AnyChat();
      bool needed = false;
      for (const auto& [other, chat] : chats_) needed = needed || chat.parent == id;
      if (!needed) return id;
    }
    return 0;
  }

  void Append() {
    std::uint64_t id = chats_.empty() ? 0 : AnyChat();
    if (id == 0 || random_() % 4 == 0) {
      Chat chat;
      // One that could not be stored yet is no conversation that another could be a fork of.
      if (id != 0 && chats_[id].parks > 0 && random_() % 2 == 0) {
        chat.parent = id;
        chat.parent_tokens = chats_[id].parent_tokens + kParkTokens * chats_[id].parks;
      }
      id = next_id_;
      next_id_ += kWorkers;
      chats_[id] = chat;
    }
    Chat& chat = chats_[id];
    SampleParkSpec spec;
    spec.key = {CrashConversation(id), chat.parks};
    spec.layout = CrashLayout();
    spec.stages = MakeFakeStages(spec.layout, {2, 1});
    spec.first_token = chat.parent_tokens + kParkTokens * chat.parks;
    spec.token_count = kParkTokens;
    spec.window_rows = {{spec.first_token, spec.first_token + kParkTokens}};
    if (chat.parent != 0) spec.parent = CrashConversation(chat.parent);
    spec.parent_tokens = chat.parent_tokens;
    const SamplePark park = MakeSamplePark(spec);
    while (tier_->Shortfall(park.record.summary.payload_bytes) > 0) RemoveTail();
    if (chats_.count(id) == 0 || chats_[id].parks != spec.key.park) return;  // evicted itself
    Say(Line('s', id, spec.key.park));
    const absl::Status stored = tier_->Store(park.record, park.payload);
    if (absl::IsResourceExhausted(stored)) return;  // the other worker was quicker
    if (!stored.ok()) ::_exit(4);
    chats_[id].parks++;
    Say(Line('S', id, spec.key.park));
  }

  void RemoveTail() {
    const std::uint64_t id = AnyLeaf();
    if (id == 0) return;
    Chat& chat = chats_[id];
    if (chat.parks == 0) {
      chats_.erase(id);
      return;
    }
    const std::uint32_t park = chat.parks - 1;
    Say(Line('r', id, park));
    if (!tier_->Remove({{CrashConversation(id), park}}).ok()) ::_exit(5);
    Say(Line('R', id, park));
    if (--chat.parks == 0) chats_.erase(id);
  }

  void Forget() {
    const std::uint64_t id = AnyLeaf();
    if (id == 0) return;
    std::vector<ParkKey> keys;
    for (std::uint32_t i = 0; i < chats_[id].parks; ++i) keys.push_back({CrashConversation(id), i});
    Say(Line('f', id, 0));
    if (!tier_->Forget(CrashConversation(id), keys).ok()) ::_exit(6);
    Say(Line('F', id, 0));
    chats_.erase(id);
  }

  void Name() {
    const std::uint64_t id = AnyChat();
    if (chats_[id].parks == 0) return;
    ConversationAttributes attributes;
    attributes.conversation = CrashConversation(id);
    attributes.pinned = true;
    const std::uint64_t name = random_() % 1000;
    attributes.name = std::to_string(name);
    Say(Line('n', id, name));
    if (!tier_->WriteAttributes({attributes}, true).ok()) ::_exit(7);
    Say(Line('N', id, name));
  }

  Tier* const tier_;
  std::mt19937_64 random_;
  const int number_;
  std::map<std::uint64_t, Chat> chats_;
  // As those of real conversations, an id is never given twice, whatever became of the first one.
  std::uint64_t next_id_;
};

}  // namespace

DiskTierOptions CrashTierOptions(const std::string& directory, bool encrypted) {
  DiskTierOptions options;
  if (encrypted) options.key = *SealKey::Parse(std::string(32, 'k'));
  options.directory = directory;
  options.budget_bytes = kCrashBudgetBytes;
  options.min_free_bytes = 0;
  if (std::getenv("PARKADE_CRASH_SEALED") != nullptr) {
    options.key = *SealKey::Parse(std::string(kSealKeyBytes, 'k'));
  }
  return options;
}

ConversationId CrashConversation(std::uint64_t number) {
  return {0x9e3779b97f4a7c15ull * number, number};
}

absl::Status CheckCrashPark(Tier& tier, const ParkSummary& summary) {
  return CheckPark(tier, summary, CheckSampleBytes);
}

std::vector<std::string> CrashOrder::ToArguments() const {
  return {"--work",
          directory,
          std::to_string(seed),
          point,
          std::to_string(nth),
          encrypted ? "encrypted" : "plain",
          power ? "power" : "kill",
          std::to_string(at_change),
          std::to_string(lies)};
}

CrashOrder CrashOrder::FromArguments(char** arguments) {
  CrashOrder order;
  order.directory = arguments[0];
  order.seed = std::strtoull(arguments[1], nullptr, 10);
  order.point = arguments[2];
  order.nth = std::atoi(arguments[3]);
  order.encrypted = std::string_view(arguments[4]) == "encrypted";
  order.power = std::string_view(arguments[5]) == "power";
  order.at_change = std::strtoull(arguments[6], nullptr, 10);
  order.lies = static_cast<unsigned>(std::atoi(arguments[7]));
  return order;
}

int RunCrashWorker(const CrashOrder& order) {
  DiskTierOptions options = CrashTierOptions(order.directory, order.encrypted);
  std::unique_ptr<PowerCut> power;
  if (order.power) {
    PowerCut::Options cut;
    cut.attic = order.directory + ".attic";
    std::filesystem::remove_all(cut.attic);
    std::filesystem::create_directories(cut.attic);
    cut.seed = order.seed;
    cut.at_change = order.at_change;
    cut.gone = [] { ::kill(::getpid(), SIGKILL); };
    cut.lies = order.lies;
    power = std::make_unique<PowerCut>(std::move(cut));
    options.files = power.get();
  }
  std::atomic<int> left{order.nth};
  if (!order.point.empty()) {
    options.failpoint = [&](std::string_view reached) {
      if (reached != order.point || left.fetch_sub(1) != 1) return;
      if (power != nullptr) power->Cut();
      ::kill(::getpid(), SIGKILL);
    };
  }
  auto opened = OpenDiskTier(options);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
    return 2;
  }
  Tier& tier = **opened;
  if (!tier.PutIdentity(SampleIdentityDigest(CrashLayout()), SampleIdentity(CrashLayout())).ok()) {
    return 2;
  }
  std::vector<Worker> workers;
  for (int i = 0; i < kWorkers; ++i) workers.emplace_back(&tier, order.seed, i);
  if (!tier.Enumerate([&](const ParkSummary& summary) {
             for (Worker& worker : workers) worker.Load(summary);
           })
           .ok()) {
    return 2;
  }
  std::vector<std::thread> threads;
  for (Worker& worker : workers) threads.emplace_back([&worker] { worker.Run(); });
  for (std::thread& thread : threads) thread.join();
  return 0;
}

int RunCrashReader(const std::string& directory) {
  auto opened = OpenDiskTier(CrashTierOptions(directory));
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
    return 2;
  }
  std::vector<ParkSummary> summaries;
  if (!(*opened)->Enumerate([&](const ParkSummary& one) { summaries.push_back(one); }).ok()) {
    return 2;
  }
  for (const ParkSummary& summary : summaries) {
    const absl::Status whole = CheckCrashPark(**opened, summary);
    if (!whole.ok()) {
      std::fprintf(stderr, "%s\n", whole.ToString().c_str());
      return 1;
    }
    Say(Line('P', summary.key.conversation.low, summary.key.park));
  }
  std::vector<ConversationAttributes> attributes;
  if (!(*opened)
           ->EnumerateAttributes(
               [&](const ConversationAttributes& one) { attributes.push_back(one); })
           .ok()) {
    return 2;
  }
  for (const ConversationAttributes& one : attributes) {
    if (one.pinned) Say("A " + std::to_string(one.conversation.low) + " " + one.name);
  }
  return 0;
}

int RunCrashVerifier(const std::string& directory, bool repair) {
  const auto report = VerifyDiskTier(directory, repair, nullptr, CrashTierOptions(directory).key);
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", report.status().ToString().c_str());
    return 2;
  }
  for (const std::string& finding : report->findings) Say(finding);
  return 0;
}

}  // namespace parkade::test
