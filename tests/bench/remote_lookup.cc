// From a long prompt to its first extent among many conversations of a remote tier: what it costs
// in round trips, counted by a proxy, in time, and in the server's memory.

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"
#include "tests/bench/remote_reference.h"
#include "tests/bench/workload.h"
#include "tests/support/redis_server.h"
#include "tests/support/tcp_proxy.h"
#include "tiers/remote/remote_tier.h"

namespace parkade::bench {
namespace {

constexpr double kChats = 100000;
constexpr std::uint32_t kTokens = 1024;
constexpr std::uint32_t kLongTokens = 32000;
constexpr std::uint32_t kLongParkTokens = 2048;
constexpr std::uint32_t kPublishers = 4;
constexpr int kLookups = 21;
// Their bytes don't matter: what is counted is what each of them needs beside those.
constexpr std::uint32_t kRowBytes = 1;
constexpr std::uint32_t kLongRowBytes = kValueBytes / 1024;

absl::StatusOr<std::unique_ptr<SharedTier>> Open(int port) {
  RemoteTierOptions options;
  options.url.seeds = {{"127.0.0.1", port}};
  options.deadline = absl::Seconds(30);
  options.redis.connect_timeout = absl::Seconds(30);
  return OpenRemoteTier(options);
}

absl::Status Publish(SharedTier& tier, const PublishRequest& way) {
  PublishOutcome outcome;
  const absl::Status published = tier.Publish(way, &outcome);
  if (published.ok() && outcome.written_parks != way.steps.size()) {
    return absl::InternalError("not all was published");
  }
  return published;
}

absl::Status PublishMany(int port, std::uint32_t chats, const MadeUpChats& maker,
                         std::uint64_t seed) {
  const auto tier = Open(port);
  if (!tier.ok()) return tier.status();
  // The secret is there before many ask for it.
  if (absl::Status s = Publish(**tier, maker.Make(kTokens, kTokens, seed)); !s.ok()) return s;
  std::atomic<std::uint32_t> next{1};
  std::vector<absl::Status> done(kPublishers);
  std::vector<std::thread> publishers;
  for (absl::Status& status : done) {
    publishers.emplace_back([&] {
      for (std::uint32_t i = next++; i < chats && status.ok(); i = next++) {
        status = Publish(**tier, maker.Make(kTokens, kTokens, seed + i));
      }
    });
  }
  for (std::thread& publisher : publishers) publisher.join();
  absl::Status all;
  for (const absl::Status& one : done) all.Update(one);
  return all;
}

// A machine that has never seen the conversation, but has asked something before: the first call
// of all connects, asks for the secret and whether the server is a cluster.
absl::StatusOr<std::unique_ptr<SharedTier>> OpenCold(int port, const Digest128& identity) {
  auto tier = Open(port);
  if (!tier.ok()) return tier.status();
  const auto nothing = (*tier)->Find(identity, std::vector<Token>(2 * kPageTokens, 1), 0);
  if (!nothing.ok()) return nothing.status();
  return tier;
}

struct Way {
  double found_s = 0;
  double first_extent_s = 0;
};

// From the prompt to the bytes of its first extent, which `buffer` has room for.
absl::StatusOr<Way> GoTo(SharedTier& tier, const PublishRequest& chat,
                         const std::shared_ptr<ExtentBuffer>& buffer) {
  const double begin = NowSeconds();
  const auto found = tier.Find(chat.identity, chat.tokens, 0);
  Way way;
  way.found_s = NowSeconds() - begin;
  if (!found.ok()) return found.status();
  if (found->parks.empty() || found->parks.back().end != kLongTokens) {
    return absl::InternalError("the long conversation is not found");
  }
  const ParkKey key{{9, 9}, 0};
  tier.Bind(key, found->parks[0]);
  const auto extents = tier.ReadExtents(key);
  if (!extents.ok()) return extents.status();
  const auto bytes = tier.ReadExtent(key, 0, [&buffer](std::size_t) { return buffer; });
  if (!bytes.ok()) return bytes.status();
  if ((*bytes)->size() != kValueBytes) return absl::InternalError("an extent of another size");
  way.first_extent_s = NowSeconds() - begin;
  return way;
}

absl::Status CountRoundTrips(int port, const PublishRequest& chat,
                             const std::shared_ptr<ExtentBuffer>& buffer, Outcome* outcome) {
  test::TcpProxy proxy(port);
  const auto tier = OpenCold(proxy.port(), chat.identity);
  if (!tier.ok()) return tier.status();
  proxy.ResetCounts();
  const absl::StatusOr<Way> way = GoTo(**tier, chat, buffer);
  if (!way.ok()) return way.status();
  outcome->Add("round_trips", static_cast<double>(proxy.counts().round_trips));
  outcome->AtMost("round_trips", 3);
  return absl::OkStatus();
}

absl::Status TimeLookups(int port, const PublishRequest& chat,
                         const std::shared_ptr<ExtentBuffer>& buffer, const BenchOptions& options,
                         Outcome* outcome) {
  RawConnection raw(port);
  const std::string name = "raw";
  if (!raw.Set(name, {buffer->data(), kValueBytes})) return absl::InternalError("SET was refused");
  std::vector<double> found, first, gets;
  std::mt19937_64 random(options.seed);
  const auto get = [&]() -> absl::Status {
    const double begin = NowSeconds();
    if (!raw.Get(name, buffer->data(), kValueBytes)) return absl::InternalError("GET was refused");
    gets.push_back(NowSeconds() - begin);
    return absl::OkStatus();
  };
  const auto look_up = [&]() -> absl::Status {
    const auto tier = OpenCold(port, chat.identity);
    if (!tier.ok()) return tier.status();
    const absl::StatusOr<Way> way = GoTo(**tier, chat, buffer);
    if (!way.ok()) return way.status();
    found.push_back(way->found_s);
    first.push_back(way->first_extent_s);
    return absl::OkStatus();
  };
  for (int i = 0; i < kLookups; ++i) {
    const bool get_first = random() % 2 == 0;
    for (const bool getting : {get_first, !get_first}) {
      if (absl::Status s = getting ? get() : look_up(); !s.ok()) return s;
    }
  }
  outcome->Add("first_extent_vs_get", Median(first) / Median(gets));
  outcome->Add("first_extent_ms", 1e3 * Median(first));
  outcome->Add("found_ms", 1e3 * Median(found));
  outcome->Add("get_ms", 1e3 * Median(gets));
  return absl::OkStatus();
}

absl::StatusOr<double> UsedBytes(test::RedisServer& server) {
  double bytes = 0;
  if (!absl::SimpleAtod(server.Info("memory", "used_memory"), &bytes)) {
    return absl::InternalError("the server does not say how much memory it uses");
  }
  return bytes;
}

absl::StatusOr<Outcome> Run(const BenchOptions& options) {
  const auto chats = static_cast<std::uint32_t>(std::max(100.0, kChats * options.scale));
  TouchedMemory data(kValueBytes);
  FillRandom(data, options.seed);
  test::RedisServer server;
  const absl::StatusOr<double> before = UsedBytes(server);
  if (!before.ok()) return before.status();
  const MadeUpChats maker(kRowBytes, {data.data(), data.size()});
  const double begin = NowSeconds();
  if (absl::Status s = PublishMany(server.port(), chats, maker, options.seed); !s.ok()) return s;
  const double seconds = NowSeconds() - begin;
  const absl::StatusOr<double> after = UsedBytes(server);
  if (!after.ok()) return after.status();
  const MadeUpChats long_maker(kLongRowBytes, {data.data(), data.size()});
  const PublishRequest chat = long_maker.Make(kLongTokens, kLongParkTokens, options.seed - 1);
  {
    const auto tier = Open(server.port());
    if (!tier.ok()) return tier.status();
    if (absl::Status s = Publish(**tier, chat); !s.ok()) return s;
  }
  TouchedMemory received(kValueBytes);
  const auto buffer = std::make_shared<View>(received.data(), received.size());
  Outcome outcome;
  outcome.notes.push_back(absl::StrFormat(
      "%d conversations of %d tokens, one of %d in parks of %d; %d lookups, an extent of %d KiB",
      chats, kTokens, kLongTokens, kLongParkTokens, kLookups, kValueBytes >> 10));
  if (absl::Status s = CountRoundTrips(server.port(), chat, buffer, &outcome); !s.ok()) return s;
  if (absl::Status s = TimeLookups(server.port(), chat, buffer, options, &outcome); !s.ok()) {
    return s;
  }
  outcome.Add("server_kib_per_chat", (*after - *before) / chats / 1024);
  outcome.Add("published_chats_per_s", chats / seconds);
  return outcome;
}

}  // namespace

absl::StatusOr<Outcome> RunRemoteLookup(const BenchOptions& options) {
  const std::string missing = test::RedisMissing();
  if (!missing.empty()) return absl::NotFoundError(missing);
  try {
    return Run(options);
  } catch (const std::exception& e) {
    return absl::UnavailableError(e.what());
  }
}

}  // namespace parkade::bench
