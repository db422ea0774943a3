#include "tests/bench/copy_cuda.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/device/cuda_copier.h"
#include "src/device/cuda_handles.h"
#include "tests/bench/measure.h"

namespace parkade::bench {
namespace {

constexpr double kGoal = 0.9;

// Stages on several cards at the same time.
struct Card {
  int device = 0;
  CudaMemory memory;
  PinnedMemory packed;
  std::unique_ptr<StageCopier> copier;
  std::vector<PlaneRows> flat;
  std::vector<PlaneRows> paged;
};

absl::StatusOr<std::unique_ptr<Card>> OpenCard(int device, const StateLayout& layout,
                                               std::uint32_t tokens, std::uint64_t bytes,
                                               std::uint64_t seed) {
  const WithDevice with(device);
  auto card = std::make_unique<Card>();
  card->device = device;
  absl::Status made = CudaStatus(cudaMalloc(card->memory.out(), bytes), "the card's memory");
  made.Update(CudaStatus(cudaHostAlloc(card->packed.out(), bytes, cudaHostAllocPortable),
                         "page-locked memory"));
  if (!made.ok()) return made;
  auto copier = NewCudaCopier(device, nullptr);
  if (!copier.ok()) return copier.status();
  card->copier = *std::move(copier);
  auto* memory = static_cast<char*>(card->memory.get());
  card->flat = PlanesIn(memory, layout, tokens, 0, seed);
  card->paged = PlanesIn(memory, layout, tokens, 16, seed);
  return card;
}

absl::StatusOr<double> TimeBus(Card& card, std::uint64_t bytes, bool out) {
  const WithDevice with(card.device);
  const double begin = NowSeconds();
  absl::Status done = CudaStatus(
      out ? cudaMemcpy(card.packed.get(), card.memory.get(), bytes, cudaMemcpyDeviceToHost)
          : cudaMemcpy(card.memory.get(), card.packed.get(), bytes, cudaMemcpyHostToDevice),
      "one large copy");
  done.Update(CudaStatus(cudaDeviceSynchronize(), "one large copy"));
  if (!done.ok()) return done;
  return NowSeconds() - begin;
}

absl::StatusOr<double> TimeCard(Card& card, const std::vector<PlaneRows>& planes,
                                const std::vector<ExtentInfo>& extents, bool out) {
  return TimeRows(*card.copier, planes, extents, static_cast<char*>(card.packed.get()), out);
}

// One thread queues the copies of all stages and waits once.
absl::StatusOr<double> TimeBoth(Card& first, Card& second, const std::vector<ExtentInfo>& extents) {
  const double begin = NowSeconds();
  char* at[] = {static_cast<char*>(first.packed.get()), static_cast<char*>(second.packed.get())};
  for (const ExtentInfo& extent : extents) {
    Card* const cards[] = {&first, &second};
    for (int i = 0; i < 2; ++i) {
      const std::vector<PlaneRun> runs = RunsOf(cards[i]->paged, extent);
      if (absl::Status s = cards[i]->copier->CopyIn(runs, at[i], nullptr); !s.ok()) return s;
      at[i] += extent.raw_bytes;
    }
  }
  absl::Status done = first.copier->Wait();
  done.Update(second.copier->Wait());
  if (!done.ok()) return done;
  return NowSeconds() - begin;
}

absl::Status AddTwoCards(Card& first, const StateLayout& layout,
                         const std::vector<ExtentInfo>& extents, std::uint32_t tokens,
                         std::uint64_t bytes, std::uint64_t seed, Outcome* outcome) {
  auto second = OpenCard(1, layout, tokens, bytes, seed + 1);
  if (!second.ok()) return second.status();
  auto medians = MedianSeconds(
      {{"first", [&] { return TimeCard(first, first.paged, extents, false); }},
       {"second", [&] { return TimeCard(**second, (*second)->paged, extents, false); }},
       {"both", [&] { return TimeBoth(first, **second, extents); }}},
      kRounds, seed);
  if (!medians.ok()) return medians.status();
  outcome->Add("card_two_stages_vs_slower",
               (*medians)["both"] / std::max((*medians)["first"], (*medians)["second"]));
  outcome->AtMost("card_two_stages_vs_slower", 1.1);
  return absl::OkStatus();
}

}  // namespace

absl::Status AddCardCopies(const StateLayout& layout, const std::vector<ExtentInfo>& extents,
                           std::uint32_t tokens, const BenchOptions& options, Outcome* outcome) {
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || devices == 0) {
    outcome->notes.push_back(
        absl::StrCat("no copies of a card: no CUDA device: ", cudaGetErrorString(found)));
    return absl::OkStatus();
  }
  std::uint64_t bytes = 0;
  for (const ExtentInfo& extent : extents) bytes += extent.raw_bytes;
  auto card = OpenCard(0, layout, tokens, bytes, options.seed);
  if (!card.ok()) return card.status();
  std::vector<Contestant> contestants;
  for (const bool out : {false, true}) {
    const std::string way = out ? "park" : "restore";
    contestants.push_back({"bus_" + way, [&, out] { return TimeBus(**card, bytes, out); }});
    contestants.push_back(
        {"flat_" + way, [&, out] { return TimeCard(**card, (*card)->flat, extents, out); }});
    contestants.push_back(
        {"paged_" + way, [&, out] { return TimeCard(**card, (*card)->paged, extents, out); }});
  }
  auto medians = MedianSeconds(contestants, kRounds, options.seed);
  if (!medians.ok()) return medians.status();
  for (const std::string way : {"restore", "park"}) {
    for (const std::string kind : {"flat_", "paged_"}) {
      const std::string figure = absl::StrCat("card_", kind, way, "_vs_bus");
      outcome->Add(figure, (*medians)["bus_" + way] / (*medians)[kind + way]);
      outcome->AtLeast(figure, kGoal);
    }
    outcome->Add(absl::StrCat("card_bus_", way, "_mib_per_s"),
                 static_cast<double>(bytes) / (1 << 20) / (*medians)["bus_" + way]);
  }
  if (devices < 2) {
    outcome->notes.push_back("no two stages on two cards: there is one card");
    return absl::OkStatus();
  }
  return AddTwoCards(**card, layout, extents, tokens, bytes, options.seed, outcome);
}

}  // namespace parkade::bench
