// The remote tier over Redis on loopback, one server and a cluster of three, against GETs and SETs
// of the same values in the same flight.

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/format/checksum.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"
#include "tests/bench/remote_reference.h"
#include "tests/bench/workload.h"
#include "tests/support/redis_server.h"
#include "tiers/remote/remote_tier.h"

namespace parkade::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kValues = 64;
constexpr std::uint32_t kRowTokens = 256;  // of one value
// A park holds at most 60 MiB.
constexpr std::uint32_t kValuesAPark = 26;

// A conversation of so many values, published anew each time.
class Subject {
 public:
  // Restores to `received`, which has room for kInFlight values: where memory lies, and whether it
  // was ever touched, decides what a copy costs, so it is the reference's.
  Subject(std::size_t values, absl::Span<const char> data, TouchedMemory& received,
          std::uint64_t seed)
      : values_(values),
        chats_(kValueBytes / kRowTokens, data),
        checksum_(Checksum(data.subspan(0, kValueBytes))),
        received_(received),
        seed_(seed) {}

  absl::StatusOr<double> Publish(SharedTier& tier) {
    const PublishRequest way = chats_.Make(static_cast<std::uint32_t>(values_) * kRowTokens,
                                           kValuesAPark * kRowTokens, ++seed_);
    PublishOutcome outcome;
    const double begin = NowSeconds();
    const absl::Status published = tier.Publish(way, &outcome);
    const double seconds = NowSeconds() - begin;
    if (!published.ok()) return published;
    if (outcome.written_bytes != std::uint64_t{values_} * kValueBytes) {
      return absl::InternalError("not all was published");
    }
    keys_ = outcome.bound;
    return seconds;
  }

  // Reads all of the last published conversation, kInFlight at a time, and checks every value.
  absl::StatusOr<double> Restore(SharedTier& tier) {
    std::atomic<std::size_t> next{0};
    std::atomic<bool> sound{true};
    const double begin = NowSeconds();
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kInFlight; ++t) {
      threads.emplace_back([&, t] {
        const auto buffer =
            std::make_shared<View>(received_.data() + t * kValueBytes, std::size_t{kValueBytes});
        for (std::size_t i = next++; i < values_ && sound; i = next++) {
          const auto bytes =
              tier.ReadExtent(keys_[i / kValuesAPark], static_cast<std::uint32_t>(i % kValuesAPark),
                              [&buffer](std::size_t) { return buffer; });
          if (!bytes.ok() || !(Checksum({(*bytes)->data(), (*bytes)->size()}) == checksum_)) {
            sound = false;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const double seconds = NowSeconds() - begin;
    if (!sound) return absl::InternalError("a value did not come back as it was");
    return seconds;
  }

 private:
  const std::size_t values_;
  const MadeUpChats chats_;
  const Digest128 checksum_;
  TouchedMemory& received_;
  std::uint64_t seed_;
  std::vector<ParkKey> keys_;
};

struct Seconds {
  std::vector<double> published, restored, sets, gets;
};

absl::Status RunTier(Subject& subject, SharedTier& tier, Seconds* seconds) {
  const absl::StatusOr<double> published = subject.Publish(tier);
  if (!published.ok()) return published.status();
  const absl::StatusOr<double> restored = subject.Restore(tier);
  if (!restored.ok()) return restored.status();
  seconds->published.push_back(*published);
  seconds->restored.push_back(*restored);
  return absl::OkStatus();
}

absl::Status RunReference(RawValues& raw, Seconds* seconds) {
  const absl::StatusOr<double> sets = raw.Sets();
  if (!sets.ok()) return sets.status();
  const absl::StatusOr<double> gets = raw.Gets();
  if (!gets.ok()) return gets.status();
  seconds->sets.push_back(*sets);
  seconds->gets.push_back(*gets);
  return absl::OkStatus();
}

absl::StatusOr<Seconds> RunRounds(const std::vector<int>& ports, std::size_t values,
                                  std::uint64_t seed) {
  RemoteTierOptions remote;
  remote.url.seeds = {{"127.0.0.1", ports[0]}};
  remote.deadline = absl::Seconds(30);
  const auto tier = OpenRemoteTier(remote);
  if (!tier.ok()) return tier.status();
  TouchedMemory data(kInFlight * std::size_t{kValueBytes});
  FillRandom(data, seed);
  TouchedMemory received(data.size());
  Subject subject(values, {data.data(), data.size()}, received, seed);
  RawValues raw(ports, values, data, received);
  Seconds counted;
  for (int round = 0; round <= kRounds; ++round) {
    // What a round leaves is taken away before the next one, or memory would grow with rounds.
    if (absl::Status s = raw.Empty(); !s.ok()) return s;
    // The store was wiped: the first call finds that out, and stores nothing.
    (void)subject.Publish(**tier);
    // The first round connects, and finds memory.
    Seconds first;
    Seconds* const seconds = round == 0 ? &first : &counted;
    for (int part = 0; part < 2; ++part) {
      const absl::Status status =
          (round + part) % 2 == 0 ? RunTier(subject, **tier, seconds) : RunReference(raw, seconds);
      if (!status.ok()) return status;
    }
  }
  return counted;
}

void Report(const std::string& prefix, const Seconds& seconds, std::size_t values,
            Outcome* outcome) {
  const double mib = static_cast<double>(values) * kValueBytes / kMib;
  const auto add = [&](const char* name, double value) { outcome->Add(prefix + name, value); };
  add("restore_vs_gets", Median(seconds.gets) / Median(seconds.restored));
  add("spill_vs_sets", Median(seconds.sets) / Median(seconds.published));
  add("restore_mib_per_s", mib / Median(seconds.restored));
  add("spill_mib_per_s", mib / Median(seconds.published));
  add("gets_mib_per_s", mib / Median(seconds.gets));
  add("sets_mib_per_s", mib / Median(seconds.sets));
}

}  // namespace

absl::StatusOr<Outcome> RunRemote(const BenchOptions& options) {
  const std::string missing = test::RedisMissing();
  if (!missing.empty()) return absl::NotFoundError(missing);
  const auto values = static_cast<std::size_t>(std::max(8.0, kValues * options.scale));
  Outcome outcome;
  outcome.notes.push_back(
      absl::StrFormat("%d values of %d KiB, %d in flight; one server, then (cluster_*) three "
                      "masters",
                      values, kValueBytes >> 10, kInFlight));
  try {
    {
      const test::RedisServer server;
      const absl::StatusOr<Seconds> one = RunRounds({server.port()}, values, options.seed);
      if (!one.ok()) return one.status();
      Report("", *one, values, &outcome);
    }
    test::RedisCluster cluster(0);
    std::vector<int> ports;
    for (int i = 0; i < cluster.size(); ++i) ports.push_back(cluster.node(i).port());
    const absl::StatusOr<Seconds> three = RunRounds(ports, values, options.seed);
    if (!three.ok()) return three.status();
    Report("cluster_", *three, values, &outcome);
  } catch (const std::exception& e) {
    return absl::UnavailableError(e.what());
  }
  return outcome;
}

}  // namespace parkade::bench
