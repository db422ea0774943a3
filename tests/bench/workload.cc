#include "tests/bench/workload.h"

#include <algorithm>

namespace parkade::bench {

void Outcome::Add(std::string figure, double value) {
  figures.emplace_back(std::move(figure), value);
}

void Outcome::AtMost(std::string figure, double bound) {
  goals.push_back({std::move(figure), Goal::Kind::kAtMost, bound});
}

void Outcome::AtLeast(std::string figure, double bound) {
  goals.push_back({std::move(figure), Goal::Kind::kAtLeast, bound});
}

const double* Outcome::Find(std::string_view figure) const {
  for (const auto& [name, value] : figures) {
    if (name == figure) return &value;
  }
  return nullptr;
}

bool Outcome::Meets(const Goal& goal) const {
  const double* value = Find(goal.figure);
  if (value == nullptr) return false;
  return goal.kind == Goal::Kind::kAtMost ? *value <= goal.bound : *value >= goal.bound;
}

bool Outcome::MeetsAll() const {
  return std::all_of(goals.begin(), goals.end(), [this](const Goal& goal) { return Meets(goal); });
}

const std::vector<Workload>& Workloads() {
  static const auto& workloads = *new std::vector<Workload>{
      {"churn", "five times the disk budget written: bytes written and held", RunChurn},
      {"sequential", "one large image: restore cold and warm, durable spill", RunSequential},
      {"sealed", "the same in an encrypted directory and a plain one", RunSealed},
      {"split", "a long image in two stages against one", RunSplit},
      {"capture", "20 turns of 200 tokens on 10,000: bytes copied and written", RunCapture},
      {"lookup", "10,000 conversations of 32,000 tokens: time, memory, opening", RunLookup},
      {"rebuild", "a catalogue that is lost, made again from 10,000 segments", RunRebuild},
      {"api", "parkade-server with 10,000 conversations: scrapes and lists", RunApi},
      {"copy", "import into engine memory against memcpy", RunCopy},
      {"engine", "parkade-server restores a long prompt, every layer whole", RunEngine},
      {"engine_ram", "the same from the RAM tier of one process", RunEngineRam},
      {"overhead", "parkade-server with and without the cache, nothing reused", RunOverhead},
      {"remote", "the remote tier over a Redis and a cluster, against GETs and SETs", RunRemote},
      {"remote_lookup", "a long prompt among 100,000 remote conversations", RunRemoteLookup},
      {"remote_paused", "parkade-server while its Redis stands still", RunRemotePaused},
      {"restart", "parkade-server killed and started again", RunRestart},
      {"resume", "parkade-server decodes a chat that was in RAM, on disk, never away", RunResume},
      {"stages", "the same with the model split over two RPC devices", RunStages},
  };
  return workloads;
}

const Workload* FindWorkload(std::string_view name) {
  for (const Workload& workload : Workloads()) {
    if (workload.name == name) return &workload;
  }
  return nullptr;
}

}  // namespace parkade::bench
